package lint

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A kind is one that is checked.
type kind struct {
	gvk schema.GroupVersionKind
	// resource is the plural in URLs.
	resource     string
	isNamespaced bool
	// crd is the file of its CRD, or empty for a kind of Kubernetes.
	crd string
	// new returns a pointer to an empty object of a kind of Kubernetes.
	new func() any
}

// kinds lists the kinds that are checked. Objects of other kinds of Kubernetes are skipped.
func kinds() []kind {
	return []kind{
		crdKind(kueue.SchemeGroupVersion.WithKind("AdmissionCheck"), "admissionchecks"),
		crdKind(kueue.SchemeGroupVersion.WithKind("ClusterQueue"), "clusterqueues"),
		crdKind(kueue.SchemeGroupVersion.WithKind("Cohort"), "cohorts"),
		namespaced(crdKind(kueue.SchemeGroupVersion.WithKind("LocalQueue"), "localqueues")),
		crdKind(kueue.SchemeGroupVersion.WithKind("ResourceFlavor"), "resourceflavors"),
		crdKind(kueue.SchemeGroupVersion.WithKind("Topology"), "topologies"),
		crdKind(kueue.SchemeGroupVersion.WithKind("WorkloadPriorityClass"), "workloadpriorityclasses"),
		namespaced(crdKind(kueue.SchemeGroupVersion.WithKind("Workload"), "workloads")),
		namespaced(crdKind(jobset.GroupVersion.WithKind("JobSet"), "jobsets")),
		namespaced(builtIn[batchv1.Job](batchv1.SchemeGroupVersion.WithKind("Job"), "jobs")),
		namespaced(builtIn[batchv1.CronJob](batchv1.SchemeGroupVersion.WithKind("CronJob"), "cronjobs")),
		namespaced(builtIn[appsv1.Deployment](appsv1.SchemeGroupVersion.WithKind("Deployment"), "deployments")),
		namespaced(builtIn[appsv1.StatefulSet](appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "statefulsets")),
		namespaced(builtIn[appsv1.ReplicaSet](appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), "replicasets")),
		namespaced(builtIn[appsv1.DaemonSet](appsv1.SchemeGroupVersion.WithKind("DaemonSet"), "daemonsets")),
		namespaced(builtIn[corev1.ReplicationController](corev1.SchemeGroupVersion.WithKind("ReplicationController"), "replicationcontrollers")),
		namespaced(builtIn[corev1.Pod](corev1.SchemeGroupVersion.WithKind("Pod"), "pods")),
		builtIn[corev1.Namespace](corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces"),
		builtIn[corev1.Node](corev1.SchemeGroupVersion.WithKind("Node"), "nodes"),
		namespaced(builtIn[corev1.LimitRange](corev1.SchemeGroupVersion.WithKind("LimitRange"), "limitranges")),
		builtIn[nodev1.RuntimeClass](nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), "runtimeclasses"),
		builtIn[resourcev1.DeviceClass](resourcev1.SchemeGroupVersion.WithKind("DeviceClass"), "deviceclasses"),
		namespaced(builtIn[resourcev1.ResourceClaimTemplate](resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"), "resourceclaimtemplates")),
	}
}

func crdKind(gvk schema.GroupVersionKind, resource string) kind {
	return kind{gvk: gvk, resource: resource, crd: gvk.Group + "_" + resource + ".yaml"}
}

func builtIn[T any](gvk schema.GroupVersionKind, resource string) kind {
	return kind{gvk: gvk, resource: resource, new: func() any { return new(T) }}
}

func namespaced(k kind) kind {
	k.isNamespaced = true
	return k
}

// kindOf returns a kind that is checked, or nil.
func kindOf(gvk schema.GroupVersionKind) *kind {
	all := kinds()
	for i := range all {
		if all[i].gvk == gvk {
			return &all[i]
		}
	}
	return nil
}
