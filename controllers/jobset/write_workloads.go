package jobset

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// createWorkloads creates the last stage first: if one is rejected, no stage that is open from the start holds quota without use.
func (r *Reconciler) createWorkloads(ctx context.Context, _ *jobsetstate.Snapshot, w *stages.Step) error {
	for _, workload := range slices.Backward(w.CreateWorkloads) {
		err := r.config.Client.Create(ctx, workload)
		if apierrors.IsInvalid(err) {
			return &refusedWorkload{fmt.Errorf("stage %q gets no quota Workload, mend the JobSet and submit it again: %w", workload.Labels[apis.StageLabel], err)}
		}
		if client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
		}
	}
	return nil
}

func (r *Reconciler) changeWorkloads(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, c := range w.ChangeWorkloads {
		change := patch.IfSameUID(c.Before)
		if !equality.Semantic.DeepEqual(c.Before.Spec.PodSets, c.After.Spec.PodSets) {
			// It may have been admitted in the meantime, for the pods that it asked for before.
			change = patch.Locked(c.Before, c.Before.ResourceVersion)
		}
		if err := r.config.Client.Patch(ctx, c.After, change); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("change quota Workload %s: %w", client.ObjectKeyFromObject(c.Before), err)
		}
		if c.Opens {
			events.StageOpened(c.After.Labels[apis.StageLabel]).EmitAbout(r.config.Recorder, s.JobSet, c.After)
		}
	}
	return nil
}

// evictWorkloads marks the other stages of an evicted JobSet as evicted, too.
func (r *Reconciler) evictWorkloads(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, e := range w.EvictWorkloads {
		// The eviction increments its own counters and repeats what else the admission has written, so it must be based on the latest
		// object.
		written, err := r.apply(ctx, e.Workload, workloadstatus.Evicted(e.Workload, e.Eviction, time.Now()), apis.AdmissionFieldManager, e.Workload.ResourceVersion)
		if err != nil {
			return err
		}
		if written == nil {
			continue
		}
		r.config.Runner.Observe(admission.WorkloadObserved{Workload: written})
		events.Evicted(e.Eviction.EventReason(), e.Eviction.Message).Emit(r.config.Recorder, written)
		stage, held := written.Labels[apis.StageLabel], engine.Usage(e.Workload.Status.Admission)
		events.StageEvicted(stage, held, e.Eviction.Reason, e.Eviction.Message).EmitAbout(r.config.Recorder, s.JobSet, e.Workload)
	}
	return nil
}

func (r *Reconciler) reportProgress(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, p := range w.Progress {
		// A stage finishes once. If the cache does not show yet that it has, the API server rejects the write and no Event is emitted
		// twice.
		version := ""
		if p.Finished != nil {
			version = p.Workload.ResourceVersion
		}
		status := workloadstatus.Progress(p.Workload, p.Ready, p.Finished, time.Now())
		written, err := r.apply(ctx, p.Workload, status, apis.FieldManager, version)
		if err != nil {
			return err
		}
		switch {
		case written == nil:
		case p.Finished != nil:
			events.StageFinished(p.Stage, p.Finished.Message).EmitAbout(r.config.Recorder, s.JobSet, p.Workload)
		case p.Ready.Status == metav1.ConditionTrue:
			events.StageReady(p.Stage).EmitAbout(r.config.Recorder, s.JobSet, p.Workload)
		}
	}
	return nil
}

// reclaimFieldManager owns status.reclaimablePods of quota Workloads. It is Kueue's name.
const reclaimFieldManager client.FieldOwner = "kueue-reclaimable-pods"

func (r *Reconciler) reclaimPods(ctx context.Context, _ *jobsetstate.Snapshot, w *stages.Step) error {
	for _, c := range w.Reclaim {
		if _, err := r.apply(ctx, c.Workload, kueue.WorkloadStatus{ReclaimablePods: c.Pods}, reclaimFieldManager, ""); err != nil {
			return err
		}
	}
	return nil
}

// releaseQuota releases the quota of suspended and evicted stages, and notifies the engine at once. The cache may not show yet that a Job was
// released or that a pod was created, so releaseQuota repeats the decision on live reads.
func (r *Reconciler) releaseQuota(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	if len(w.ReleaseQuota) == 0 {
		return nil
	}
	live, err := r.refresh(ctx, s)
	if err != nil {
		return err
	}
	w.RequeueForUnwatchedPods(live)
	kept := stages.KeptJobs(live)
	for _, workload := range stages.Next(live).ReleaseQuota {
		status := workloadstatus.Suspended(workload, time.Now())
		told := events.StageSuspended(workload.Labels[apis.StageLabel])
		if quotaworkload.IsTrue(workload, kueue.WorkloadEvicted) {
			status = workloadstatus.QuotaReleased(workload, time.Now())
			stage := workload.Labels[apis.StageLabel]
			told = events.StageRequeued(stage, kept[stage], workloadstatus.EvictionOf(workload).Message)
			if jobsetstate.GrowthNumber(workload) > 0 {
				told = events.GrowthRequeued(workload.Labels[apis.StageLabel], workloadstatus.EvictionOf(workload).Message)
			}
		}
		written, err := r.apply(ctx, workload, status, apis.AdmissionFieldManager, workload.ResourceVersion)
		if err != nil {
			return err
		}
		if written != nil {
			r.config.Runner.Observe(admission.WorkloadObserved{Workload: written})
			told.EmitAbout(r.config.Recorder, s.JobSet, workload)
		}
	}
	return nil
}

func (r *Reconciler) reopenStages(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, workload := range w.Reopen {
		if err := r.delete(ctx, workload); err != nil {
			return err
		}
		events.StageReopened(workload.Labels[apis.StageLabel]).EmitAbout(r.config.Recorder, s.JobSet, workload)
	}
	return nil
}

// delete deletes a quota Workload as it was read. A Workload that was admitted in the meantime is reconciled again.
func (r *Reconciler) delete(ctx context.Context, workload *kueue.Workload) error {
	err := r.config.Client.Delete(ctx, workload, client.Preconditions{UID: &workload.UID, ResourceVersion: &workload.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
	}
	return nil
}

func (r *Reconciler) removeFinalizers(ctx context.Context, _ *jobsetstate.Snapshot, w *stages.Step) error {
	for _, workload := range w.RemoveFinalizers {
		if err := patch.RemoveFinalizer(ctx, r.config.Client, workload); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) deleteWorkloads(ctx context.Context, _ *jobsetstate.Snapshot, w *stages.Step) error {
	for _, workload := range w.DeleteWorkloads {
		if workload.DeletionTimestamp.IsZero() {
			if err := r.delete(ctx, workload); err != nil {
				return err
			}
		}
		if err := patch.RemoveFinalizer(ctx, r.config.Client, workload); err != nil {
			return err
		}
	}
	return nil
}

// createGrowths creates the quota Workloads of growths.
func (r *Reconciler) createGrowths(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, growth := range w.CreateGrowths {
		err := r.config.Client.Create(ctx, growth)
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("create quota Workload %s for the growth of a stage: %w", client.ObjectKeyFromObject(growth), err)
		}
		pods := int32(0)
		for i := range growth.Spec.PodSets {
			pods += growth.Spec.PodSets[i].Count
		}
		events.StageGrows(growth.Labels[apis.StageLabel], pods).EmitAbout(r.config.Recorder, s.JobSet, growth)
	}
	return nil
}

// deleteExpired deletes a JobSet, unless its quota Workload was activated again according to the API server.
func (r *Reconciler) deleteExpired(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	if w.DeleteExpired == nil {
		return nil
	}
	var live kueue.Workload
	if err := r.reader.Get(ctx, client.ObjectKeyFromObject(w.DeleteExpired), &live); err != nil {
		return client.IgnoreNotFound(err)
	}
	if at := workloadstatus.DeactivatedAt(&live); live.UID != w.DeleteExpired.UID || at == nil || !at.Equal(*workloadstatus.DeactivatedAt(w.DeleteExpired)) {
		return nil
	}
	err := r.config.Client.Delete(ctx, s.JobSet.DeepCopy(), client.Preconditions{UID: &s.JobSet.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete deactivated JobSet %s: %w", s.Key, err)
	}
	if err == nil {
		events.JobSetDeleted(w.DeleteExpired.Name, s.Retention.AfterDeactivatedByKueue.Duration).Emit(r.config.Recorder, s.JobSet)
	}
	return nil
}
