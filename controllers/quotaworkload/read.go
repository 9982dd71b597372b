package quotaworkload

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// needsRead reports whether the next step depends on other objects than the quota Workload.
func (r *Reconciler) needsRead(workload *kueue.Workload, now time.Time) bool {
	return quotaworkload.HoldsQuota(workload) && !quotaworkload.IsTrue(workload, kueue.WorkloadAdmitted) ||
		workloadstatus.IsOverdue(workload, &r.config.PodsReady, now) || workloadstatus.IsStopped(workload)
}

// read returns the snapshot that one reconcile works on. Its objects belong to the cache and are not changed.
func (r *Reconciler) read(ctx context.Context, workload *kueue.Workload) (*workloadstatus.Snapshot, error) {
	s, now := &workloadstatus.Snapshot{Workload: workload, Gates: r.config.Gates}, time.Now()
	if !r.needsRead(workload, now) {
		return s, nil
	}
	var err error
	if quotaworkload.HoldsQuota(workload) && !quotaworkload.IsTrue(workload, kueue.WorkloadAdmitted) {
		if s.LocalQueue, err = r.readLocalQueue(ctx, workload); err != nil {
			return s, err
		}
		s.ReservedIn, err = r.readClusterQueue(ctx, workload.Status.Admission.ClusterQueue)
		return s, err
	}
	if workloadstatus.IsOverdue(workload, &r.config.PodsReady, now) {
		s.Lacking, err = r.readLacking(ctx, workload)
		return s, err
	}
	if s.LocalQueue, err = r.readLocalQueue(ctx, workload); s.LocalQueue == nil {
		return s, err
	}
	s.ClusterQueue, err = r.readClusterQueue(ctx, s.LocalQueue.Spec.ClusterQueue)
	return s, err
}

// readLocalQueue returns the LocalQueue of a quota Workload, or nil if it does not exist.
func (r *Reconciler) readLocalQueue(ctx context.Context, workload *kueue.Workload) (*kueue.LocalQueue, error) {
	var queue kueue.LocalQueue
	name := types.NamespacedName{Namespace: workload.Namespace, Name: string(workload.Spec.QueueName)}
	if err := r.config.Client.Get(ctx, name, &queue); err != nil {
		return nil, wrap(client.IgnoreNotFound(err), "read LocalQueue %s", name)
	}
	return &queue, nil
}

// readLacking returns what keeps the pods of a stage from being ready. It reads past the cache, which does not keep the status of pods.
func (r *Reconciler) readLacking(ctx context.Context, workload *kueue.Workload) (string, error) {
	if workload.Labels[apis.StageLabel] == "" {
		return "", nil
	}
	var pods corev1.PodList
	err := r.config.Live.List(ctx, &pods, client.InNamespace(workload.Namespace), client.MatchingLabels{jobset.JobSetUIDKey: workload.Labels[apis.JobUIDLabel]})
	if err != nil {
		return "", fmt.Errorf("list the pods of quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
	}
	wanted := int32(0)
	ofStage := map[string]bool{}
	for i := range workload.Spec.PodSets {
		ofStage[string(workload.Spec.PodSets[i].Name)] = true
	}
	for _, assignment := range workload.Status.Admission.PodSetAssignments {
		wanted += ptr.Deref(assignment.Count, 0)
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !ofStage[pod.Labels[jobset.ReplicatedJobNameKey]] })
	return lackOf(wanted, pods.Items), nil
}

// readClusterQueue returns nil if the ClusterQueue does not exist.
func (r *Reconciler) readClusterQueue(ctx context.Context, name kueue.ClusterQueueReference) (*kueue.ClusterQueue, error) {
	var queue kueue.ClusterQueue
	if err := r.config.Client.Get(ctx, types.NamespacedName{Name: string(name)}, &queue); err != nil {
		return nil, wrap(client.IgnoreNotFound(err), "read ClusterQueue %s", name)
	}
	return &queue, nil
}

func wrap(err error, attempt string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(attempt+": %w", append(args, err)...)
}
