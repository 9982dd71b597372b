package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// NeedNamespace creates a Namespace that the scenario does not declare.
func (cl *Cluster) NeedNamespace(name string) {
	if _, ok := cl.Namespaces[name]; !ok {
		cl.PutNamespace(name, nil)
	}
}

// NamespaceLabels returns the labels of a Namespace with the label that the API server gives each Namespace.
func NamespaceLabels(name string, labels map[string]string) map[string]string {
	all := map[string]string{corev1.LabelMetadataName: name}
	for key, value := range labels {
		if key != corev1.LabelMetadataName {
			all[key] = value
		}
	}
	return all
}

// PutNamespace writes a Namespace.
func (cl *Cluster) PutNamespace(name string, labels map[string]string) {
	labels = NamespaceLabels(name, labels)
	cl.Namespaces[name] = labels
	cl.Observe(admission.NamespaceObserved{Name: name, Labels: labels})
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
