package podgang

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// podGroupAPIs are the served APIs of PodGroups, by the way in which pods name them.
type podGroupAPIs map[podgroup.Kind][]schema.GroupVersionKind

// knownAPIs returns all APIs of PodGroups, the preferred first. Only one version of an API group is read.
func knownAPIs() map[podgroup.Kind][][]string {
	return map[podgroup.Kind][][]string{
		podgroup.Core:         {{"scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1alpha2"}},
		podgroup.Coscheduling: {{"scheduling.x-k8s.io/v1alpha1"}},
		podgroup.Koordinator:  {{"scheduling.sigs.k8s.io/v1alpha1"}},
		podgroup.GroupName:    {{"scheduling.volcano.sh/v1beta1"}, {"scheduling.incubator.k8s.io/v1alpha1"}, {"incubator.scheduling.k8s.io/v1alpha1"}},
	}
}

// servedAPIs asks the API server which of them it serves, and in which of these the status has a subresource: a definition of kube-batch may
// have one, or not.
func servedAPIs(resources apiwatch.Lister) (all podGroupAPIs, withStatus sets.Set[schema.GroupVersionKind], err error) {
	serves := func(version, name string) bool {
		isServed := false
		if err == nil {
			isServed, err = apiwatch.Serves(resources, version, func(r metav1.APIResource) bool { return r.Name == name })
		}
		return isServed
	}
	all, withStatus = podGroupAPIs{}, sets.New[schema.GroupVersionKind]()
	for kind, groups := range knownAPIs() {
		for _, versions := range groups {
			i := slices.IndexFunc(versions, func(version string) bool { return serves(version, "podgroups") })
			if i < 0 {
				continue
			}
			gvk := schema.FromAPIVersionAndKind(versions[i], "PodGroup")
			all[kind] = append(all[kind], gvk)
			if serves(versions[i], "podgroups/status") {
				withStatus.Insert(gvk)
			}
		}
	}
	return all, withStatus, err
}

// isOfJobSet reports whether a PodGroup was created for a JobSet, whose quota Workloads already ask for what its pods need.
func isOfJobSet(object client.Object) bool {
	controller := metav1.GetControllerOfNoCopy(object)
	return object.GetLabels()[apis.JobSetLabel] != "" || controller != nil && controller.Kind == "JobSet"
}

// objectOf reads the relevant fields of a PodGroup of any API. A field of the wrong type counts as not set.
func objectOf(u *unstructured.Unstructured) *podgroup.Object {
	o := &podgroup.Object{
		APIVersion: u.GetAPIVersion(), Name: u.GetName(), UID: u.GetUID(), Created: u.GetCreationTimestamp().Time,
		Labels: u.GetLabels(), Annotations: u.GetAnnotations(),
	}
	for _, path := range [][]string{{"spec", "minMember"}, {"spec", "minMembers"}, {"spec", "schedulingPolicy", "gang", "minCount"}} {
		if n, found, err := unstructured.NestedInt64(u.Object, path...); found && err == nil {
			o.MinMember = n
		}
	}
	o.TimeoutSeconds, _, _ = unstructured.NestedInt64(u.Object, "spec", "scheduleTimeoutSeconds")
	for _, field := range []string{"minResources", "totalResources"} {
		amounts, found, err := unstructured.NestedMap(u.Object, "spec", field)
		if !found || err != nil {
			continue
		}
		o.MinResources = corev1.ResourceList{}
		for name, amount := range amounts {
			if q, err := resource.ParseQuantity(fmt.Sprint(amount)); err == nil {
				o.MinResources[corev1.ResourceName(name)] = q
			}
		}
	}
	return o
}

// stripPod reduces a pod of a gang to the fields that determine its gang, its requests, whether it has a node and whether it has ended.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	spec := &pod.Spec
	stripped := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, CreationTimestamp: pod.CreationTimestamp,
			Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{
			Containers: stripContainers(spec.Containers), InitContainers: stripContainers(spec.InitContainers), Overhead: spec.Overhead,
			Resources: spec.Resources, RuntimeClassName: spec.RuntimeClassName, NodeSelector: spec.NodeSelector, Affinity: spec.Affinity,
			Tolerations: spec.Tolerations, ResourceClaims: spec.ResourceClaims, RestartPolicy: spec.RestartPolicy,
			SchedulingGates: spec.SchedulingGates, SchedulingGroup: spec.SchedulingGroup, Priority: spec.Priority,
			PriorityClassName: spec.PriorityClassName, NodeName: spec.NodeName,
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, ResourceClaimStatuses: pod.Status.ResourceClaimStatuses},
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			stripped.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return stripped, nil
}

func stripContainers(containers []corev1.Container) []corev1.Container {
	var all []corev1.Container
	for i := range containers {
		c := &containers[i]
		all = append(all, corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return all
}

// StripClaim reduces a ResourceClaim in the cache to its requests and the pod it was created for.
func StripClaim(object any) (any, error) {
	claim, ok := object.(*resourcev1.ResourceClaim)
	if !ok {
		return object, nil
	}
	return &resourcev1.ResourceClaim{
		TypeMeta: claim.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion, OwnerReferences: claim.OwnerReferences,
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: claim.Spec.Devices.Requests}},
	}, nil
}
