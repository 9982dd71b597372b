package podgroup

import (
	"cmp"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
)

const (
	// mostShapes is how many pod sets a quota Workload of a gang can have.
	mostShapes = 8
	// reservedPodSet asks for what a PodGroup says that its pods will ask for together.
	reservedPodSet = "reserved"
)

// shapeOf names what quota depends on in a pod: what it requests, and where it can run. A pod set counts all pods whose shape has its name
// and asks for what the first of them does, so nobody may be able to make two shapes of one name.
func shapeOf(pod *corev1.Pod) string {
	var required *corev1.NodeSelector
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	shape, err := json.Marshal(struct {
		Requests     corev1.ResourceList
		NodeSelector map[string]string
		Affinity     *corev1.NodeSelector
		Tolerations  []corev1.Toleration
		Claims       []corev1.PodResourceClaim
	}{stageplan.PodRequests(&pod.Spec), pod.Spec.NodeSelector, required, pod.Spec.Tolerations, pod.Spec.ResourceClaims})
	if err != nil {
		// Nothing in there can fail to be written. If it did, a pod would be its own shape.
		shape = []byte(pod.UID)
	}
	return digest(string(shape))
}

// podSets returns a pod set for each shape, in the order of their names.
func podSets(pods []*corev1.Pod) []kueue.PodSet {
	var all []kueue.PodSet
	for _, pod := range pods {
		name := kueue.PodSetReference(shapeOf(pod))
		i := slices.IndexFunc(all, func(p kueue.PodSet) bool { return p.Name == name })
		if i < 0 {
			all = append(all, kueue.PodSet{Name: name, Template: templateOf(pod)})
			i = len(all) - 1
		}
		all[i].Count++
	}
	slices.SortFunc(all, func(a, b kueue.PodSet) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// templateOf keeps of a pod what quota depends on. What else there is differs between pods of the same shape.
func templateOf(pod *corev1.Pod) corev1.PodTemplateSpec {
	spec := &pod.Spec
	return corev1.PodTemplateSpec{Spec: *(&corev1.PodSpec{
		Containers: bare(spec.Containers), InitContainers: bare(spec.InitContainers), Overhead: spec.Overhead, Resources: spec.Resources,
		RuntimeClassName: spec.RuntimeClassName, NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations,
		ResourceClaims: spec.ResourceClaims, RestartPolicy: spec.RestartPolicy,
	}).DeepCopy()}
}

func bare(containers []corev1.Container) []corev1.Container {
	var all []corev1.Container
	for i := range containers {
		c := &containers[i]
		all = append(all, corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return all
}

// reserved asks for what a PodGroup says that its pods will ask for together. Nothing is known of where they can run.
func reserved(total corev1.ResourceList) []kueue.PodSet {
	return []kueue.PodSet{{
		Name: reservedPodSet, Count: 1,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "gang", Image: "example.com/gang", Resources: corev1.ResourceRequirements{Requests: total.DeepCopy()}}},
		}},
	}}
}
