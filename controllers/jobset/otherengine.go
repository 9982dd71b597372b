package jobset

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

// This file reads what matters only if another engine admits the quota Workloads.

// readOtherEngine completes the snapshot of a queued JobSet with a plan.
func (r *Reconciler) readOtherEngine(ctx context.Context, s *jobsetstate.Snapshot) error {
	if r.config.Safety == nil || s.JobSet == nil || s.Plan == nil || s.IsUnqueued {
		return nil
	}
	s.OtherEngine, s.Unsafe = true, map[string]string{}
	if s.Refusal = jobsetstate.TopologyMisuse(s.JobSet); s.Refusal == "" {
		var err error
		if s.Refusal, err = r.managedTwice(ctx, s); err != nil {
			return err
		}
	}
	if s.Refusal != "" {
		s.Plan = nil
		return nil
	}
	for _, stage := range stages.Opening(s) {
		why, err := r.config.Safety.Unsafe(ctx, s.JobSet, s.Plan, stage)
		if err != nil {
			return fmt.Errorf("judge stage %q of JobSet %s: %w", stage, s.Key, err)
		}
		s.Unsafe[stage] = why
	}
	return nil
}

// managedTwice returns a message if Kueue's manager has made a Workload for the JobSet, or for one of its Jobs: both managers would start and
// stop them. The cache has all Workloads.
func (r *Reconciler) managedTwice(ctx context.Context, s *jobsetstate.Snapshot) (string, error) {
	const cure = "of Kueue manages it as well: delete the JobSet, and submit it again"
	found, err := r.foreignWorkload(ctx, s.JobSet)
	if err != nil {
		return "", err
	}
	if found != "" {
		return fmt.Sprintf("Workload %q exists for the JobSet, so the integration %s with the label %s instead of %s, or ask your administrator to remove "+
			"jobset.x-k8s.io/jobset from integrations.frameworks, and to set manageJobsWithoutQueueName to false, in the configuration of Kueue's manager",
			found, cure, apis.OwnQueueLabel, apis.QueueLabel), nil
	}
	for _, job := range s.Owned.Jobs {
		found, err := r.foreignWorkload(ctx, job)
		if err != nil {
			return "", err
		}
		if found != "" {
			return fmt.Sprintf("Workload %q exists for Job %q of the JobSet, so the integration %s when your administrator has set manageJobsWithoutQueueName to false "+
				"in the configuration of Kueue's manager", found, job.Name, cure), nil
		}
	}
	return "", nil
}

// foreignWorkload returns the name of a Workload that Kueue's manager has made for an object, or "".
func (r *Reconciler) foreignWorkload(ctx context.Context, owner client.Object) (string, error) {
	var list kueue.WorkloadList
	options := []client.ListOption{client.InNamespace(owner.GetNamespace()), client.MatchingFields{indexJobSetUID: string(owner.GetUID())}}
	if err := r.config.Client.List(ctx, &list, options...); err != nil {
		return "", fmt.Errorf("list Workloads of %s: %w", client.ObjectKeyFromObject(owner), err)
	}
	for i := range list.Items {
		if w := &list.Items[i]; w.Labels[apis.JobSetLabel] == "" {
			return w.Name, nil
		}
	}
	return "", nil
}

// confirm reads the quota Workload of a release past the cache, and reports whether it is still admitted as it was seen. The other engine takes no
// quota back afterwards before Tranche has cleared the admission.
func (r *Reconciler) confirm(ctx context.Context, rel *stages.ReleaseJobs) (bool, error) {
	var live kueue.Workload
	if err := r.reader.Get(ctx, client.ObjectKeyFromObject(rel.Workload), &live); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("read quota Workload %s: %w", client.ObjectKeyFromObject(rel.Workload), err)
	}
	isAdmitted := live.UID == rel.Workload.UID && live.DeletionTimestamp.IsZero() && quotaworkload.HoldsQuota(&live) &&
		quotaworkload.IsTrue(&live, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(&live, kueue.WorkloadEvicted)
	return isAdmitted && equality.Semantic.DeepEqual(live.Status.Admission, rel.Workload.Status.Admission), nil
}
