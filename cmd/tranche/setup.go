package main

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/cmd/tranche/cached"
	"github.com/tranche-dev/tranche/cmd/tranche/leader"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/watched"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/controllers/groupstart"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
	"github.com/tranche-dev/tranche/controllers/podgang"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// newManager returns a manager whose cache contains only what it needs.
func newManager(restConfig *rest.Config, config *configapi.Configuration) (ctrl.Manager, error) {
	scheme, err := query.NewScheme()
	if err != nil {
		return nil, err
	}
	ofJobSets, err := labels.Parse(jobset.JobSetUIDKey)
	if err != nil {
		return nil, err
	}
	ofGroups, err := labels.Parse(apis.JobSetLabel)
	if err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Scheme: scheme,
		// The ports of metrics and probes are those of servePorts.
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		NewCache:               watched.NewCache,
		// The priority queue of controller-runtime can block the end of the process. Controllers have the queues of package fairqueue.
		Controller: ctrlconfig.Controller{UsePriorityQueue: new(false)},
		Cache: cache.Options{
			DefaultTransform: cached.NewSharer().Transform,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}:               {Label: ofJobSets, Transform: stripPod},
				&resourcev1.ResourceClaim{}: {Transform: podgang.StripClaim},
				apiwatch.JobSetCRD():        {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, apiwatch.JobSetCRDName), Transform: apiwatch.StripCRD},
				// Only ConfigMaps of groups.
				&corev1.ConfigMap{}: {Label: ofGroups, Transform: stripConfigMap},
			},
		},
	}
	if !*config.LeaderElection.LeaderElect {
		return ctrl.NewManager(restConfig, options)
	}
	return newElectedManager(restConfig, &config.LeaderElection, options)
}

// newElectedManager returns a manager that leads while it holds the Lease, and is cut off from the API server while it cannot be sure of
// that.
func newElectedManager(restConfig *rest.Config, election *configapi.LeaderElection, options ctrl.Options) (ctrl.Manager, error) {
	named := leader.Config{
		Rest: restConfig, Namespace: election.ResourceNamespace, Name: election.ResourceName,
		RenewDeadline: election.RenewDeadline.Duration, RetryPeriod: election.RetryPeriod.Duration,
	}
	lease, err := leader.NewLease(named)
	if err != nil {
		return nil, err
	}
	options.LeaderElection, options.LeaderElectionReleaseOnCancel = true, true
	options.LeaderElectionID, options.LeaderElectionResourceLockInterface = election.ResourceName, lease
	options.LeaseDuration, options.RenewDeadline = &election.LeaseDuration.Duration, &election.RenewDeadline.Duration
	options.RetryPeriod, options.GracefulShutdownTimeout = new(named.TryEvery()), new(leader.StopTimeout)
	guarded := rest.CopyConfig(restConfig)
	lease.Fence.Guard(guarded)
	mgr, err := ctrl.NewManager(guarded, options)
	if err != nil {
		return nil, err
	}
	return mgr, mgr.Add(lease.Fence)
}

// stripConfigMap reduces the ConfigMap of a group to the data of its notice. Of any other ConfigMap with the label it keeps no data, so
// that the memory of the manager does not depend on it.
func stripConfigMap(object any) (any, error) {
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok {
		return object, nil
	}
	configMap.ManagedFields = nil
	data := configMap.Data
	configMap.Data, configMap.BinaryData = nil, nil
	owner := metav1.GetControllerOf(configMap)
	if owner == nil || owner.Kind != "JobSet" || configMap.Name != barrier.ConfigMapName(owner.Name) {
		configMap.Annotations = nil
		return configMap, nil
	}
	configMap.Data = map[string]string{}
	for _, key := range barrier.Keys() {
		if value, isThere := data[key]; isThere {
			configMap.Data[key] = value
		}
	}
	return configMap, nil
}

// stripPod reduces a pod to the fields that show whether it is terminal, its JobSet and Job, whether it waits for a node, and why, or for others of
// its group.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	stripped := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: jobsetstate.OriginalLabels(pod), OwnerReferences: pod.OwnerReferences,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, InitContainerStatuses: groupstart.KeepOfStatus(pod)},
	}
	for _, key := range []string{apis.ReleaseAnnotation, jobset.JobSetUIDKey} {
		if value, ok := pod.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&stripped.ObjectMeta, key, value)
		}
	}
	if why := jobsetstate.WithoutNode(pod); why != "" {
		stripped.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why}}
	}
	return stripped, nil
}
