package jobset

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// createWorkloads creates the last stage first: if one is rejected, no stage that is open from the start holds quota without use.
func (r *Reconciler) createWorkloads(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	if prebuilt := jobsetstate.PrebuiltWorkloadOf(s.JobSet); s.Target != nil && prebuilt != "" {
		if err := dropForeign(ctx, r, s, prebuilt); err != nil {
			return err
		}
	}
	for _, workload := range slices.Backward(w.CreateWorkloads) {
		err := r.writer.Create(ctx, workload)
		if apply.IsRefusal(err) {
			return &refusedWorkload{fmt.Errorf("stage %q has no quota Workload, because the API server rejects it; fix the JobSet and submit it again: %w",
				workload.Labels[apis.StageLabel], err)}
		}
		if apierrors.IsAlreadyExists(err) && s.Target != nil {
			err = r.takeOver(ctx, s, workload)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	if len(w.CreateWorkloads) > 0 && len(s.Owned.Workloads) == 0 {
		r.config.Metrics.WorkloadsCreated("JobSet", s.JobSet, time.Now())
		if s.Whole != "" {
			events.AdmittedWhole(s.Whole).Emit(r.config.Recorder, s.JobSet)
		}
	}
	return nil
}

func (r *Reconciler) changeWorkloads(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, c := range w.ChangeWorkloads {
		if err := r.writer.Change(ctx, c.Before, c.After); err != nil {
			return err
		}
	}
	return nil
}

// evictWorkloads marks the other stages of an evicted JobSet as evicted, too.
func (r *Reconciler) evictWorkloads(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, e := range w.EvictWorkloads {
		written, err := r.writer.Evict(ctx, e.Workload, e.Eviction, nil)
		if err != nil {
			return err
		}
		if written != nil {
			stage, held := written.Labels[apis.StageLabel], engine.Usage(e.Workload.Status.Admission)
			events.StageEvicted(stage, held, e.Eviction.Reason, e.Eviction.Message).EmitAbout(r.config.Recorder, s.JobSet, e.Workload)
		}
	}
	return nil
}

func (r *Reconciler) reportProgress(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, p := range w.Progress {
		written, err := r.writer.Progress(ctx, p.Workload, p.Ready, p.Finished)
		switch {
		case err != nil:
			return err
		case written == nil:
		case p.HasSucceeded && w.JobSetSucceeds: // it is told with the end of the JobSet
		case p.Finished != nil:
			events.StageFinished(p.Stage, p.Finished.Message).EmitAbout(r.config.Recorder, s.JobSet, p.Workload)
		case isAwaited(s.Plan, p.Stage) && p.Ready.Status == metav1.ConditionTrue:
			events.StageReady(p.Stage).EmitAbout(r.config.Recorder, s.JobSet, p.Workload)
		}
	}
	return nil
}

// isAwaited reports whether another stage waits for a stage to be ready.
func isAwaited(plan *stageplan.Plan, stage string) bool {
	i := slices.IndexFunc(plan.Stages, func(st stageplan.Stage) bool { return st.Name == stage })
	return i >= 0 && plan.OpensByReady(i)
}

func (r *Reconciler) reclaimPods(ctx context.Context, _ *jobsetstate.Snapshot, w *stages.Step) error {
	for _, c := range w.Reclaim {
		if err := r.writer.Reclaim(ctx, c.Workload, c.Pods); err != nil {
			return err
		}
	}
	return nil
}

// releaseQuota releases the quota of suspended and evicted stages, and notifies the engine at once. The cache may not show yet that a Job was
// released or that a pod was created, so releaseQuota repeats the decision on live reads.
func (r *Reconciler) releaseQuota(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	live, err := r.refresh(ctx, s)
	if err != nil {
		return err
	}
	w.RequeueForUnwatchedPods(live)
	kept := stages.KeptJobs(live)
	for _, workload := range stages.Next(live).ReleaseQuota {
		status := releasedStatus(live, workload)
		stage := workload.Labels[apis.StageLabel]
		event := events.StageSuspended(stage)
		switch {
		case quotaworkload.IsTrue(workload, kueue.WorkloadEvicted):
			event = events.StageRequeued(stage, kept[stage], workloadstatus.EvictionOf(workload).Message)
			if jobsetstate.GrowthNumber(workload) > 0 {
				event = events.GrowthRequeued(stage, workloadstatus.EvictionOf(workload).Message)
			}
		case !jobsetstate.IsSuspendedByUser(live.JobSet):
			event = events.StageClosed(stage)
		}
		written, err := r.writer.Admission(ctx, workload, status)
		if err != nil {
			return err
		}
		if written != nil {
			event.EmitAbout(r.config.Recorder, s.JobSet, workload)
		}
	}
	return nil
}

// releasedStatus returns the status of a quota Workload that releases its quota because it is evicted, because its JobSet is suspended, or because its stage
// must not start.
func releasedStatus(s *jobsetstate.Snapshot, workload *kueue.Workload) kueue.WorkloadStatus {
	switch {
	case s.OtherEngine:
		return workloadstatus.Cleared(workload, time.Now())
	case quotaworkload.IsTrue(workload, kueue.WorkloadEvicted):
		return workloadstatus.QuotaReleased(workload, time.Now())
	}
	return workloadstatus.Suspended(workload, time.Now())
}

func (r *Reconciler) reopenStages(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, workload := range w.Reopen {
		if err := r.writer.Delete(ctx, workload); err != nil {
			return err
		}
		events.StageReopened(workload.Labels[apis.StageLabel]).EmitAbout(r.config.Recorder, s.JobSet, workload)
	}
	return nil
}

// createGrowths creates the quota Workloads of growths.
func (r *Reconciler) createGrowths(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, growth := range w.CreateGrowths {
		err := r.writer.Create(ctx, growth)
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("grow stage %q: %w", growth.Labels[apis.StageLabel], err)
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
