package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// NeedNamespace creates a Namespace that the scenario does not declare.
func (cl *Cluster) NeedNamespace(name string) {
	if _, ok := cl.Namespaces[name]; !ok {
		cl.PutNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}

// StoreNamespace stores a Namespace with the label that the API server gives each Namespace. The engine does not observe it.
func (cl *Cluster) StoreNamespace(object *corev1.Namespace) {
	metav1.SetMetaDataLabel(&object.ObjectMeta, corev1.LabelMetadataName, object.Name)
	cl.Namespaces[object.Name] = object
}

// PutNamespace writes a Namespace.
func (cl *Cluster) PutNamespace(object *corev1.Namespace) {
	cl.StoreNamespace(object)
	cl.Observe(namespaceObserved(object))
}

func namespaceObserved(o *corev1.Namespace) admission.Event {
	return admission.NamespaceObserved{Name: o.Name, Labels: o.Labels}
}

// PutPriorityClass writes a WorkloadPriorityClass, which the engine does not observe. Jobs follow its value: the manager changes the quota Workloads of
// JobSets when it reconciles them, and others at once.
func (cl *Cluster) PutPriorityClass(object *kueue.WorkloadPriorityClass) {
	before := cl.PriorityClasses[object.Name]
	cl.PriorityClasses[object.Name] = object
	if before == nil || before.Value == object.Value {
		return
	}
	for _, jobs := range []map[types.NamespacedName]*UserJob{cl.UserJobs, cl.QueuedJobs, cl.PlainJobs} {
		for _, key := range slices.SortedFunc(maps.Keys(jobs), CompareKeys) {
			j := jobs[key]
			if ref := j.ClassRef(); ref == nil || ref.Kind != kueue.WorkloadPriorityClassKind || ref.Name != object.Name {
				continue
			}
			after := *j.Submission
			after.Priority = object.Value
			j.Submission = &after
			cl.Touch(key.Namespace, key.Name)
			if w := cl.Workloads[key]; j.Plain != nil && w != nil && !IsFinished(w) {
				w = w.DeepCopy()
				w.Spec.Priority = &object.Value
				w.Generation++
				cl.PutWorkload(w)
			}
		}
	}
}

// PutFlavor writes a ResourceFlavor.
func (cl *Cluster) PutFlavor(object *kueue.ResourceFlavor) {
	write(cl, cl.Flavors, object.Name, object, flavorObserved)
}

// PutAdmissionCheck writes an AdmissionCheck.
func (cl *Cluster) PutAdmissionCheck(object *kueue.AdmissionCheck) {
	write(cl, cl.AdmissionChecks, object.Name, object, checkObserved)
}

// PutCohort writes a Cohort.
func (cl *Cluster) PutCohort(object *kueue.Cohort) {
	write(cl, cl.Cohorts, object.Name, object, cohortObserved)
}

// PutClusterQueue writes a ClusterQueue.
func (cl *Cluster) PutClusterQueue(object *kueue.ClusterQueue) {
	cl.WorkloadQueue.AddAll(cl)
	write(cl, cl.ClusterQueues, object.Name, object, clusterQueueObserved)
}

// PutLocalQueue writes a LocalQueue, and its Namespace.
func (cl *Cluster) PutLocalQueue(object *kueue.LocalQueue) {
	cl.NeedNamespace(object.Namespace)
	cl.WorkloadQueue.AddAll(cl)
	write(cl, cl.LocalQueues, types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, object, localQueueObserved)
}

// write stamps and stores an object, and lets the engine observe it.
func write[K comparable, T metav1.Object](cl *Cluster, objects map[K]T, key K, object T, observed func(T) admission.Event) {
	cl.Stamp(object)
	objects[key] = object
	cl.Observe(observed(object))
}

func flavorObserved(o *kueue.ResourceFlavor) admission.Event {
	return admission.FlavorObserved{Flavor: o.DeepCopy()}
}

func checkObserved(o *kueue.AdmissionCheck) admission.Event {
	return admission.CheckObserved{AdmissionCheck: o.DeepCopy()}
}

func cohortObserved(o *kueue.Cohort) admission.Event {
	return admission.CohortObserved{Cohort: o.DeepCopy()}
}

func clusterQueueObserved(o *kueue.ClusterQueue) admission.Event {
	return admission.ClusterQueueObserved{ClusterQueue: o.DeepCopy()}
}

func localQueueObserved(o *kueue.LocalQueue) admission.Event {
	return admission.LocalQueueObserved{LocalQueue: o.DeepCopy()}
}
