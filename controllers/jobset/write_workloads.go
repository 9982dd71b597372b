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
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// writeQuota writes to quota Workloads, and reports that.
func (r *Reconciler) writeQuota(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step, writes []quotastep.Write) error {
	isCreate := writes[0].Kind == quotastep.Create
	if isCreate && s.Target != nil {
		if prebuilt := jobsetstate.PrebuiltWorkloadOf(s.JobSet); prebuilt != "" {
			if err := dropForeign(ctx, r, s, prebuilt); err != nil {
				return err
			}
		}
	}
	err := r.writer.Write(ctx, writes, apply.Outcome{
		Done: func(write *quotastep.Write, written *kueue.Workload) {
			if event := eventOf(s, w, write); event != nil {
				event.EmitAbout(r.config.Recorder, s.JobSet, written)
			}
		},
		Failed: func(write *quotastep.Write, err error) error { return r.failed(ctx, s, write, err) },
	})
	if err == nil && isCreate && len(s.Owned.Workloads) == 0 {
		r.config.Metrics.WorkloadsCreated("JobSet", s.JobSet, time.Now())
		if s.Whole != "" {
			events.AdmittedWhole(s.Whole).Emit(r.config.Recorder, s.JobSet)
		}
	}
	return err
}

// failed returns what it means for a JobSet that a write to a quota Workload has failed.
func (r *Reconciler) failed(ctx context.Context, s *jobsetstate.Snapshot, write *quotastep.Write, err error) error {
	stage := write.Workload.Labels[apis.StageLabel]
	switch isCreate := write.Kind == quotastep.Create; {
	case isCreate && apply.IsRefusal(err):
		return &refusedWorkload{fmt.Errorf("stage %q has no quota Workload, because the API server rejects it; fix the JobSet and submit it again: %w", stage, err)}
	case isCreate && apierrors.IsAlreadyExists(err) && s.Target != nil:
		return r.takeOver(ctx, s, write.Workload)
	case apierrors.IsAlreadyExists(err):
		return nil
	case write.Kind == quotastep.Grow:
		return fmt.Errorf("grow stage %q: %w", stage, err)
	}
	return err
}

// eventOf returns what the user of a JobSet has to know about a write to a quota Workload, or nil.
func eventOf(s *jobsetstate.Snapshot, w *stages.Step, write *quotastep.Write) *events.Event {
	stage := write.Workload.Labels[apis.StageLabel]
	switch write.Kind {
	case quotastep.Admit:
		return new(events.JobSetAdopted(string(write.Admission.ClusterQueue)))
	case quotastep.Evict:
		return new(events.StageEvicted(stage, engine.Usage(write.Workload.Status.Admission), write.Eviction.Reason, write.Eviction.Message))
	case quotastep.Progress:
		switch {
		case write.HasSucceeded && w.JobSetSucceeds: // it is told with the end of the JobSet
		case write.Finished != nil:
			return new(events.StageFinished(stage, write.Finished.Message))
		case isAwaited(s.Plan, stage) && write.Ready.Status == metav1.ConditionTrue:
			return new(events.StageReady(stage))
		}
	case quotastep.Reopen:
		return new(events.StageReopened(stage))
	case quotastep.Grow:
		pods := int32(0)
		for i := range write.Workload.Spec.PodSets {
			pods += write.Workload.Spec.PodSets[i].Count
		}
		return new(events.StageGrows(stage, pods))
	case quotastep.Create, quotastep.Change, quotastep.Reclaim, quotastep.Release, quotastep.RemoveFinalizer, quotastep.Delete:
	}
	return nil
}

// isAwaited reports whether another stage waits for a stage to be ready.
func isAwaited(plan *stageplan.Plan, stage string) bool {
	i := slices.IndexFunc(plan.Stages, func(st stageplan.Stage) bool { return st.Name == stage })
	return i >= 0 && plan.OpensByReady(i)
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
	return r.writer.Write(ctx, stages.Next(live).Of(quotastep.Release), apply.Outcome{Done: func(write *quotastep.Write, _ *kueue.Workload) {
		stage := write.Workload.Labels[apis.StageLabel]
		event := events.StageSuspended(stage)
		switch {
		case quotaworkload.IsTrue(write.Workload, kueue.WorkloadEvicted) && jobsetstate.GrowthNumber(write.Workload) > 0:
			event = events.GrowthRequeued(stage, workloadstatus.EvictionOf(write.Workload).Message)
		case quotaworkload.IsTrue(write.Workload, kueue.WorkloadEvicted):
			event = events.StageRequeued(stage, kept[stage], workloadstatus.EvictionOf(write.Workload).Message)
		case !jobsetstate.IsSuspendedByUser(live.JobSet):
			event = events.StageClosed(stage)
		}
		event.EmitAbout(r.config.Recorder, s.JobSet, write.Workload)
	}})
}

// deleteExpired deletes a JobSet, unless its quota Workload was activated again according to the API server.
func (r *Reconciler) deleteExpired(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	if is, err := apply.IsStillDeactivated(ctx, r.reader, w.DeleteExpired); err != nil || !is {
		return err
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
