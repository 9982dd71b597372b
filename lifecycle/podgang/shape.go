package podgang

import (
	"cmp"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

const (
	// mostShapes is how many pod sets a quota Workload of a gang can have.
	mostShapes = 8
	// mostExtras is how many pods of one shape wait for quota of their own at a time. The others would only queue behind them.
	mostExtras = 64
	// reservedPodSet is the pod set for minResources of a PodGroup.
	reservedPodSet = apis.ReservedPodSet
	// reservedPods counts these pods without the first.
	reservedPods = "reserved-pods"
)

// shapeOf returns a hash of all parts of a pod that affect quota: its requests, and where it can run. A pod set counts all pods whose shape has
// its name, and has the requests of the first of them, so it must be impossible to construct two shapes of one name.
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
		// Marshalling this cannot fail. If it did, the pod would be its own shape.
		shape = []byte(pod.UID)
	}
	return podgroup.Digest(string(shape))
}

// shapes caches the shapes of pods.
type shapes map[*corev1.Pod]kueue.PodSetReference

func (s shapes) of(pod *corev1.Pod) kueue.PodSetReference {
	shape, ok := s[pod]
	if !ok {
		shape = kueue.PodSetReference(shapeOf(pod))
		s[pod] = shape
	}
	return shape
}

// podSets returns a pod set for each shape, ordered by name.
func (s shapes) podSets(pods ...*corev1.Pod) []kueue.PodSet {
	var all []kueue.PodSet
	index := map[kueue.PodSetReference]int{}
	for _, pod := range pods {
		name := s.of(pod)
		i, ok := index[name]
		if !ok {
			i = len(all)
			index[name] = i
			all = append(all, kueue.PodSet{Name: name, Template: templateOf(pod)})
		}
		all[i].Count++
	}
	slices.SortFunc(all, func(a, b kueue.PodSet) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// chunks divides pods into parts of nearly equal size, pods of the same shape together.
func (s shapes) chunks(pods []*corev1.Pod) [][]*corev1.Pod {
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *corev1.Pod) int { return cmp.Compare(s.of(a), s.of(b)) })
	n := min(len(sorted), mostParts)
	var all [][]*corev1.Pod
	for i := range n {
		all = append(all, sorted[i*len(sorted)/n:(i+1)*len(sorted)/n])
	}
	return all
}

// templateOf returns the parts of a pod that affect quota. Other parts differ between pods of the same shape.
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

// reserved returns pod sets for minResources of a PodGroup. The constraints of the pods and the shares of each in the sum are not known: so the
// first pod set asks for all of it, and the other pods count only as pods.
func reserved(total corev1.ResourceList, pods int32) []kueue.PodSet {
	podSets := []kueue.PodSet{reservedOf(reservedPodSet, 1, total.DeepCopy())}
	if pods > 1 {
		podSets = append(podSets, reservedOf(reservedPods, pods-1, nil))
	}
	return podSets
}

func reservedOf(name kueue.PodSetReference, count int32, requests corev1.ResourceList) kueue.PodSet {
	return kueue.PodSet{
		Name: name, Count: count,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "gang", Image: "example.com/gang", Resources: corev1.ResourceRequirements{Requests: requests}}},
		}},
	}
}
