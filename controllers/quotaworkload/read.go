package quotaworkload

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/life"
)

// read returns everything that a pass knows. Its objects belong to the cache and are not changed.
func (r *Reconciler) read(ctx context.Context, key types.NamespacedName) (*life.Seen, error) {
	var workload kueue.Workload
	if err := r.config.Client.Get(ctx, key, &workload); err != nil {
		return nil, err
	}
	s := &life.Seen{Workload: &workload}
	var err error
	if life.HoldsQuota(&workload) && !life.IsTrue(&workload, kueue.WorkloadAdmitted) {
		s.ReservedIn, err = r.readClusterQueue(ctx, workload.Status.Admission.ClusterQueue)
		return s, err
	}
	if !life.IsStopped(&workload) {
		return s, nil
	}
	var queue kueue.LocalQueue
	name := types.NamespacedName{Namespace: key.Namespace, Name: string(workload.Spec.QueueName)}
	if err := r.config.Client.Get(ctx, name, &queue); err != nil {
		return s, wrap(client.IgnoreNotFound(err), "read LocalQueue %s", name)
	}
	s.LocalQueue = &queue
	s.ClusterQueue, err = r.readClusterQueue(ctx, queue.Spec.ClusterQueue)
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
