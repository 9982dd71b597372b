package snapshot

import (
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// This file lists the fields that decide admission. All others are left out of a snapshot: images, commands, environment variables, volumes,
// managedFields, and the labels and annotations of users.

// reduced returns the metadata without the labels and annotations of users.
func reduced(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	kept := withLabels(meta)
	kept.Labels = known(meta.Labels)
	return kept
}

// withLabels returns the metadata without the annotations of users. Selectors and ResourceFlavors compare the labels.
func withLabels(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion, Generation: meta.Generation,
		CreationTimestamp: meta.CreationTimestamp, DeletionTimestamp: meta.DeletionTimestamp, DeletionGracePeriodSeconds: meta.DeletionGracePeriodSeconds,
		Labels: meta.Labels, Annotations: known(meta.Annotations), OwnerReferences: meta.OwnerReferences, Finalizers: meta.Finalizers,
	}
}

// known returns the labels or annotations whose keys belong to Kubernetes, Kueue, JobSet, Tranche, or a scheduler of gangs.
func known(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool { return !isKnownKey(key) })
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// isKnownKey reports whether the domain of a key is one of an API that decides admission. kubectl writes whole objects into its annotations.
func isKnownKey(key string) bool {
	domain, _, isQualified := strings.Cut(key, "/")
	if !isQualified {
		return slices.Contains([]string{"job-name", "controller-uid", "pod-group.scheduling.sigs.k8s.io"}, key)
	}
	return domain != "kubectl.kubernetes.io" && slices.ContainsFunc(knownDomains(), func(known string) bool {
		return domain == known || strings.HasSuffix(domain, "."+known)
	})
}

// knownDomains are those of keys that decide admission, with their subdomains.
func knownDomains() []string {
	return []string{"kubernetes.io", "k8s.io", "x-k8s.io", "tranche.dev", "koordinator.sh", "volcano.sh"}
}

func reduceNamespace(o *corev1.Namespace) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: withLabels(&o.ObjectMeta), Status: corev1.NamespaceStatus{Phase: o.Status.Phase}}
}

func reduceNode(o *corev1.Node) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: withLabels(&o.ObjectMeta),
		Spec:       corev1.NodeSpec{Taints: o.Spec.Taints, Unschedulable: o.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Capacity: o.Status.Capacity, Allocatable: o.Status.Allocatable},
	}
	node.Annotations = nil
	for _, condition := range o.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			// The kubelet renews the heartbeat all the time.
			condition.LastHeartbeatTime = metav1.Time{}
			node.Status.Conditions = append(node.Status.Conditions, condition)
		}
	}
	return node
}

func reduceFlavor(o *kueue.ResourceFlavor) *kueue.ResourceFlavor {
	return &kueue.ResourceFlavor{ObjectMeta: withLabels(&o.ObjectMeta), Spec: o.Spec}
}

func reduceCheck(o *kueue.AdmissionCheck) *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{ObjectMeta: reduced(&o.ObjectMeta), Spec: o.Spec, Status: o.Status}
}

func reducePriorityClass(o *kueue.WorkloadPriorityClass) *kueue.WorkloadPriorityClass {
	return &kueue.WorkloadPriorityClass{ObjectMeta: reduced(&o.ObjectMeta), Value: o.Value}
}

func reducePodPriorityClass(o *schedulingv1.PriorityClass) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: reduced(&o.ObjectMeta), Value: o.Value, GlobalDefault: o.GlobalDefault, PreemptionPolicy: o.PreemptionPolicy}
}

func reduceCohort(o *kueue.Cohort) *kueue.Cohort {
	return &kueue.Cohort{ObjectMeta: withLabels(&o.ObjectMeta), Spec: o.Spec, Status: o.Status}
}

func reduceClusterQueue(o *kueue.ClusterQueue) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: withLabels(&o.ObjectMeta), Spec: o.Spec, Status: o.Status}
}

func reduceLocalQueue(o *kueue.LocalQueue) *kueue.LocalQueue {
	return &kueue.LocalQueue{ObjectMeta: withLabels(&o.ObjectMeta), Spec: o.Spec, Status: o.Status}
}

func reduceLimitRange(o *corev1.LimitRange) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: reduced(&o.ObjectMeta), Spec: o.Spec}
}

func reduceRuntimeClass(o *nodev1.RuntimeClass) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{ObjectMeta: reduced(&o.ObjectMeta), Handler: o.Handler, Overhead: o.Overhead, Scheduling: o.Scheduling}
}

func reduceDeviceClass(o *resourcev1.DeviceClass) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: reduced(&o.ObjectMeta), Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: o.Spec.ExtendedResourceName}}
}

func reduceClaimTemplate(o *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: reduced(&o.ObjectMeta),
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: o.Spec.Spec.Devices.Requests, Constraints: o.Spec.Spec.Devices.Constraints},
		}},
	}
}

func reduceJobSet(o *jobsetapi.JobSet) *jobsetapi.JobSet {
	spec := o.Spec
	spec.Network, spec.VolumeClaimPolicies = nil, nil
	if spec.Scheduling != nil {
		// Only whether the field is set decides.
		spec.Scheduling = &runtime.RawExtension{Raw: []byte("{}")}
	}
	spec.ReplicatedJobs = slices.Clone(spec.ReplicatedJobs)
	for i := range spec.ReplicatedJobs {
		template := &spec.ReplicatedJobs[i].Template
		template.ObjectMeta = reduced(&template.ObjectMeta)
		template.Spec = reduceJobSpec(&template.Spec)
	}
	return &jobsetapi.JobSet{ObjectMeta: reduced(&o.ObjectMeta), Spec: spec, Status: o.Status}
}

func reduceJob(o *batchv1.Job) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: reduced(&o.ObjectMeta), Spec: reduceJobSpec(&o.Spec), Status: o.Status}
}

func reduceJobSpec(o *batchv1.JobSpec) batchv1.JobSpec {
	spec := *o
	spec.Selector = nil
	spec.Template = reduceTemplate(&o.Template)
	return spec
}

func reducePod(o *corev1.Pod) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: reduced(&o.ObjectMeta), Spec: reducePodSpec(&o.Spec)}
	pod.Spec.NodeName = o.Spec.NodeName
	pod.Status = corev1.PodStatus{Phase: o.Status.Phase, Conditions: o.Status.Conditions, StartTime: o.Status.StartTime, Reason: o.Status.Reason}
	return pod
}

func reduceWorkload(o *kueue.Workload) *kueue.Workload {
	spec := o.Spec
	spec.PodSets = slices.Clone(spec.PodSets)
	for i := range spec.PodSets {
		spec.PodSets[i].Template = reduceTemplate(&spec.PodSets[i].Template)
	}
	return &kueue.Workload{ObjectMeta: reduced(&o.ObjectMeta), Spec: spec, Status: o.Status}
}

func reduceTemplate(o *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: reduced(&o.ObjectMeta), Spec: reducePodSpec(&o.Spec)}
}

// reducePodSpec keeps what a pod requests, which nodes it may have, which scheduler and which gang, and how it ends.
func reducePodSpec(o *corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		InitContainers: reduceContainers(o.InitContainers), Containers: reduceContainers(o.Containers),
		Resources: o.Resources, Overhead: o.Overhead, ResourceClaims: o.ResourceClaims, RuntimeClassName: o.RuntimeClassName,
		NodeSelector: o.NodeSelector, Affinity: o.Affinity, Tolerations: o.Tolerations, TopologySpreadConstraints: o.TopologySpreadConstraints,
		SchedulerName: o.SchedulerName, SchedulingGroup: o.SchedulingGroup, SchedulingGates: o.SchedulingGates,
		PriorityClassName: o.PriorityClassName, Priority: o.Priority, PreemptionPolicy: o.PreemptionPolicy,
		RestartPolicy: o.RestartPolicy, ActiveDeadlineSeconds: o.ActiveDeadlineSeconds, TerminationGracePeriodSeconds: o.TerminationGracePeriodSeconds,
	}
}

func reduceContainers(all []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for i := range all {
		c := &all[i]
		kept = append(kept, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return kept
}

// ReduceConfiguration returns a configuration without the fields that determine how the manager is run.
func ReduceConfiguration(o *configapi.Configuration) *configapi.Configuration {
	return &configapi.Configuration{
		TypeMeta:       metav1.TypeMeta{APIVersion: configapi.APIVersion, Kind: configapi.Kind},
		StageAdmission: o.StageAdmission, CoStart: o.CoStart, Reservation: o.Reservation, LookAhead: o.LookAhead, Preemption: o.Preemption,
		MaxPodPriority: o.MaxPodPriority,
		Gang:           o.Gang, PodGroups: o.PodGroups, WaitForPodsReady: o.WaitForPodsReady,
		FairSharing: o.FairSharing, AdmissionFairSharing: o.AdmissionFairSharing, Resources: o.Resources,
		ObjectRetentionPolicies: o.ObjectRetentionPolicies, FeatureGates: o.FeatureGates,
		ManagedNamespaceSelector: o.ManagedNamespaceSelector, ManageJobSetsWithoutQueueName: o.ManageJobSetsWithoutQueueName,
	}
}
