package snapshot

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// An Object is an API object of a snapshot.
type Object interface {
	runtime.Object
	metav1.Object
}

// A Kind is one kind of objects of a snapshot.
type Kind struct {
	// GVK identifies the kind.
	GVK schema.GroupVersionKind
	// Resource is its name in roles, without the group.
	Resource string
	// IsNamespaced is true if its objects are in namespaces.
	IsNamespaced bool

	new func() Object
	// has reports whether an object is of the kind.
	has func(Object) bool
	// reduce returns a copy with the fields that decide admission. The copy shares memory with the object.
	reduce func(Object) Object
	add    func(*Snapshot, Object)
	all    func(*Snapshot) iter.Seq[Object]
	sort   func(*Snapshot)
	clear  func(*Snapshot)
}

// FullResource returns the resource with its group, as in "workloads.kueue.x-k8s.io".
func (k *Kind) FullResource() string {
	return schema.GroupResource{Group: k.GVK.Group, Resource: k.Resource}.String()
}

// NewObject returns an empty object of a kind.
func NewObject(kind *Kind) Object { return kind.new() }

// file returns the name of the file that has the objects.
func (k *Kind) file() string { return k.FullResource() + fileSuffix }

// Kinds returns all kinds, in the order in which they are read and written. Objects that others refer to come first.
func Kinds() []*Kind {
	return []*Kind{
		cluster(corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces", func(s *Snapshot) *[]*corev1.Namespace { return &s.Namespaces }, reduceNamespace),
		cluster(corev1.SchemeGroupVersion.WithKind("Node"), "nodes", func(s *Snapshot) *[]*corev1.Node { return &s.Nodes }, reduceNode),
		cluster(kueue.SchemeGroupVersion.WithKind("ResourceFlavor"), "resourceflavors",
			func(s *Snapshot) *[]*kueue.ResourceFlavor { return &s.ResourceFlavors }, reduceFlavor),
		cluster(kueue.SchemeGroupVersion.WithKind("AdmissionCheck"), "admissionchecks",
			func(s *Snapshot) *[]*kueue.AdmissionCheck { return &s.AdmissionChecks }, reduceCheck),
		cluster(kueue.SchemeGroupVersion.WithKind("WorkloadPriorityClass"), "workloadpriorityclasses",
			func(s *Snapshot) *[]*kueue.WorkloadPriorityClass { return &s.PriorityClasses }, reducePriorityClass),
		cluster(schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), "priorityclasses",
			func(s *Snapshot) *[]*schedulingv1.PriorityClass { return &s.PodPriorityClasses }, reducePodPriorityClass),
		cluster(kueue.SchemeGroupVersion.WithKind("Cohort"), "cohorts", func(s *Snapshot) *[]*kueue.Cohort { return &s.Cohorts }, reduceCohort),
		cluster(kueue.SchemeGroupVersion.WithKind("ClusterQueue"), "clusterqueues",
			func(s *Snapshot) *[]*kueue.ClusterQueue { return &s.ClusterQueues }, reduceClusterQueue),
		namespaced(kueue.SchemeGroupVersion.WithKind("LocalQueue"), "localqueues",
			func(s *Snapshot) *[]*kueue.LocalQueue { return &s.LocalQueues }, reduceLocalQueue),
		namespaced(corev1.SchemeGroupVersion.WithKind("LimitRange"), "limitranges",
			func(s *Snapshot) *[]*corev1.LimitRange { return &s.LimitRanges }, reduceLimitRange),
		cluster(nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), "runtimeclasses",
			func(s *Snapshot) *[]*nodev1.RuntimeClass { return &s.RuntimeClasses }, reduceRuntimeClass),
		cluster(resourcev1.SchemeGroupVersion.WithKind("DeviceClass"), "deviceclasses",
			func(s *Snapshot) *[]*resourcev1.DeviceClass { return &s.DeviceClasses }, reduceDeviceClass),
		namespaced(resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"), "resourceclaimtemplates",
			func(s *Snapshot) *[]*resourcev1.ResourceClaimTemplate { return &s.ResourceClaimTemplates }, reduceClaimTemplate),
		namespaced(jobset.GroupVersion.WithKind("JobSet"), "jobsets", func(s *Snapshot) *[]*jobsetapi.JobSet { return &s.JobSets }, reduceJobSet),
		namespaced(batchv1.SchemeGroupVersion.WithKind("Job"), "jobs", func(s *Snapshot) *[]*batchv1.Job { return &s.Jobs }, reduceJob),
		namespaced(corev1.SchemeGroupVersion.WithKind("Pod"), "pods", func(s *Snapshot) *[]*corev1.Pod { return &s.Pods }, reducePod),
		namespaced(kueue.SchemeGroupVersion.WithKind("Workload"), "workloads",
			func(s *Snapshot) *[]*kueue.Workload { return &s.Workloads }, reduceWorkload),
	}
}

func namespaced[T any, P interface {
	*T
	Object
}](gvk schema.GroupVersionKind, resource string, list func(*Snapshot) *[]*T, reduce func(*T) *T) *Kind {
	k := cluster[T, P](gvk, resource, list, reduce)
	k.IsNamespaced = true
	return k
}

func cluster[T any, P interface {
	*T
	Object
}](gvk schema.GroupVersionKind, resource string, list func(*Snapshot) *[]*T, reduce func(*T) *T) *Kind {
	typed := func(object Object) *T { return (*T)(object.(P)) }
	return &Kind{
		GVK: gvk, Resource: resource,
		new: func() Object { return P(new(T)) },
		has: func(object Object) bool { _, is := object.(P); return is },
		reduce: func(object Object) Object {
			reduced := P(reduce(typed(object)))
			reduced.GetObjectKind().SetGroupVersionKind(gvk)
			return reduced
		},
		add: func(s *Snapshot, object Object) { *list(s) = append(*list(s), typed(object)) },
		all: func(s *Snapshot) iter.Seq[Object] {
			return func(yield func(Object) bool) {
				for _, object := range *list(s) {
					if !yield(P(object)) {
						return
					}
				}
			}
		},
		clear: func(s *Snapshot) { *list(s) = nil },
		sort: func(s *Snapshot) {
			slices.SortStableFunc(*list(s), func(a, b *T) int { return compareNames(P(a), P(b)) })
		},
	}
}

func compareNames(a, b metav1.Object) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}
