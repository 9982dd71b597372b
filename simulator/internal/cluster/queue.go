package cluster

import (
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
	cl.Observe(admission.NamespaceObserved{Name: object.Name, Labels: object.Labels})
}

// PutFlavor writes a ResourceFlavor.
func (cl *Cluster) PutFlavor(object *kueue.ResourceFlavor) {
	cl.Stamp(object)
	cl.Flavors[object.Name] = object
	cl.Observe(admission.FlavorObserved{Flavor: object.DeepCopy()})
}

// PutAdmissionCheck writes an AdmissionCheck.
func (cl *Cluster) PutAdmissionCheck(object *kueue.AdmissionCheck) {
	cl.Stamp(object)
	cl.AdmissionChecks[object.Name] = object
	cl.Observe(admission.CheckObserved{AdmissionCheck: object.DeepCopy()})
}

// PutCohort writes a Cohort.
func (cl *Cluster) PutCohort(object *kueue.Cohort) {
	cl.Stamp(object)
	cl.Cohorts[object.Name] = object
	cl.Observe(admission.CohortObserved{Cohort: object.DeepCopy()})
}

// PutClusterQueue writes a ClusterQueue.
func (cl *Cluster) PutClusterQueue(object *kueue.ClusterQueue) {
	cl.Stamp(object)
	cl.ClusterQueues[object.Name] = object
	cl.WorkloadQueue.AddAll(cl)
	cl.Observe(admission.ClusterQueueObserved{ClusterQueue: object.DeepCopy()})
}

// PutLocalQueue writes a LocalQueue, and its Namespace.
func (cl *Cluster) PutLocalQueue(object *kueue.LocalQueue) {
	cl.NeedNamespace(object.Namespace)
	cl.Stamp(object)
	cl.LocalQueues[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}] = object
	cl.WorkloadQueue.AddAll(cl)
	cl.Observe(admission.LocalQueueObserved{LocalQueue: object.DeepCopy()})
}
