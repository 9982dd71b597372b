package quotaworkload

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/conditions"
)

// seen is everything that a pass knows. Its objects belong to the cache and are not changed.
type seen struct {
	workload *kueue.Workload
	// reservedIn is the ClusterQueue that holds the Workload's quota while it waits for AdmissionChecks. It is nil if there is none.
	reservedIn *kueue.ClusterQueue
	// localQueue and clusterQueue are where a Workload stands that was evicted because one of them was stopped. They are nil if
	// there are none.
	localQueue   *kueue.LocalQueue
	clusterQueue *kueue.ClusterQueue
}

func (r *Reconciler) read(ctx context.Context, key types.NamespacedName) (*seen, error) {
	var workload kueue.Workload
	if err := r.config.Client.Get(ctx, key, &workload); err != nil {
		return nil, err
	}
	s := &seen{workload: &workload}
	var err error
	if isReserved(&workload) && !conditions.IsTrue(&workload, kueue.WorkloadAdmitted) {
		s.reservedIn, err = r.readClusterQueue(ctx, workload.Status.Admission.ClusterQueue)
		return s, err
	}
	if !isStopped(&workload) {
		return s, nil
	}
	var queue kueue.LocalQueue
	name := types.NamespacedName{Namespace: key.Namespace, Name: string(workload.Spec.QueueName)}
	if err := r.config.Client.Get(ctx, name, &queue); err != nil {
		return s, wrap(client.IgnoreNotFound(err), "read LocalQueue %s", name)
	}
	s.localQueue = &queue
	s.clusterQueue, err = r.readClusterQueue(ctx, queue.Spec.ClusterQueue)
	return s, err
}

// readClusterQueue returns nil if there is none.
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

// isReserved tells whether a quota Workload holds quota.
func isReserved(workload *kueue.Workload) bool {
	return workload.Status.Admission != nil && conditions.IsTrue(workload, kueue.WorkloadQuotaReserved)
}

// isStopped tells whether a quota Workload waits for the queue to go on that it was evicted from.
func isStopped(workload *kueue.Workload) bool {
	c := keptOut(workload)
	return c != nil && (c.Reason == kueue.WorkloadEvictedByClusterQueueStopped || c.Reason == kueue.WorkloadEvictedByLocalQueueStopped)
}

// keptOut returns the condition that keeps a quota Workload out of the queue, if there is one.
func keptOut(workload *kueue.Workload) *metav1.Condition {
	c := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadRequeued)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	return c
}
