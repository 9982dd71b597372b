package jobset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
)

// This file keeps the timeline of a JobSet. The timeline is derived from the conditions of the quota Workloads, so it is written only when
// a quota hold ends, before its times are lost: when a stage has finished, and before an eviction, a suspension, a restart or the loss of a
// pod overwrites them, including a restart that leaves a stage its quota. A JobSet that runs without interruption costs at most one write
// for each stage.

// While a JobSet runs, the manager writes to it and to the quota Workloads of its stages about finished stages once no stage was admitted
// and none has finished for noteAfter, and at the latest when a stage has been finished for noteLatest. When a stage finishes, the next one
// starts: its release does not wait for these writes, which conflict with those of the JobSet controller at that moment. Stages that finish
// soon after each other share a write.
const (
	noteAfter  = 5 * time.Second
	noteLatest = 30 * time.Second
)

// isSettled reports whether it is time to write about the finished stage of a quota Workload. If not, it requests a reconcile at that time.
func (w *actions) isSettled(s *snapshot, workload *kueue.Workload) bool {
	var last time.Time
	for _, other := range s.mine.workloads {
		for _, c := range other.Status.Conditions {
			isStep := c.Type == kueue.WorkloadAdmitted || c.Type == kueue.WorkloadFinished
			if isStep && c.Status == metav1.ConditionTrue && c.LastTransitionTime.After(last) {
				last = c.LastTransitionTime.Time
			}
		}
	}
	left := min(noteAfter-s.now.Sub(last), noteLatest-s.now.Sub(finishedAt(workload).Time))
	if left > 0 {
		w.lookAfter(left)
	}
	return left <= 0
}

// endedHolds returns the quota holds whose end must be noted. An End of zero means now.
func (w *actions) endedHolds(s *snapshot, stages []stage) []conditions.Hold {
	over, _ := outcomeOf(s.jobSet)
	timeline := conditions.TimelineOf(s.jobSet)
	var order []string
	for i := range stages {
		order = append(order, stages[i].Name)
	}
	var ended, fresh []conditions.Hold
	for i := range stages {
		st := &stages[i]
		if st.workload == nil || !st.holdsQuota() {
			continue
		}
		h := st.hold(stages)
		h.Closes = w.closes(st)
		switch finished := finishedAt(st.workload); {
		case finished != nil && !conditions.IsCounted(&timeline, st.Name, st.workload, order):
			h.End = finished.Time
			if !over && !w.endsHold(st) && !w.isSettled(s, st.workload) {
				fresh = append(fresh, h)
				continue
			}
		case finished != nil || !w.endsHold(st) && !w.losesFirstPod(st, &timeline):
			continue
		}
		ended = append(ended, h)
	}
	if len(ended) == 0 {
		return nil
	}
	return append(ended, fresh...)
}

// endsHold reports whether this reconcile releases the quota of a stage, or of one of its growths, or removes the record that its pods were
// ready.
func (w *actions) endsHold(st *stage) bool {
	for _, group := range [][]*kueue.Workload{w.giveBack, w.remove, w.removeFinalizers, w.drop} {
		if slices.Contains(group, st.workload) || slices.ContainsFunc(st.holdingGrowths(), func(g *kueue.Workload) bool { return slices.Contains(group, g) }) {
			return true
		}
	}
	return w.closes(st) || w.forgetsReadiness(st)
}

// closes reports whether this reconcile notes that a restart has gated a stage, which keeps its quota.
func (w *actions) closes(st *stage) bool {
	return slices.ContainsFunc(w.progress, func(p progress) bool { return p.workload == st.workload && p.ready.Type == "" && p.finished == nil })
}

// losesFirstPod reports whether this reconcile overwrites since when the pods of a stage were ready, which is not counted yet.
func (w *actions) losesFirstPod(st *stage, timeline *apis.Timeline) bool {
	return conditions.IsReadyUncounted(timeline, st.Name, st.workload) && slices.ContainsFunc(w.progress, func(p progress) bool {
		return p.workload == st.workload && p.ready.Reason == kueue.WorkloadWaitForRecovery
	})
}

// forgetsReadiness reports whether this reconcile overwrites that the pods of a stage were ready: the stage is evicted, suspended or gated
// again. The condition of a stage that waits for recovery still contains it.
func (w *actions) forgetsReadiness(st *stage) bool {
	ready := apimeta.FindStatusCondition(st.workload.Status.Conditions, kueue.WorkloadPodsReady)
	if ready == nil || ready.Status != metav1.ConditionTrue && ready.Reason != kueue.WorkloadWaitForRecovery {
		return false
	}
	return st.mustRelease && ready.Status == metav1.ConditionTrue || slices.ContainsFunc(w.progress, func(p progress) bool {
		return p.workload == st.workload && p.ready.Status != metav1.ConditionTrue && p.ready.Reason != kueue.WorkloadWaitForRecovery
	})
}

func finishedAt(w *kueue.Workload) *metav1.Time {
	for i := range w.Status.Conditions {
		if c := &w.Status.Conditions[i]; c.Type == kueue.WorkloadFinished && c.Status == metav1.ConditionTrue {
			return &c.LastTransitionTime
		}
	}
	return nil
}

// hold returns the quota hold of a stage, without its end.
func (st *stage) hold(stages []stage) conditions.Hold {
	h := conditions.Hold{Stage: st.Name, Workload: st.workload, Growths: st.holdingGrowths()}
	waitedFor := map[stageplan.Status][]*kueue.Workload{}
	for _, c := range st.After {
		if workload := stages[c.Stage].workload; workload != nil {
			waitedFor[c.Status] = append(waitedFor[c.Status], workload)
		}
	}
	h.Queued = conditions.QueuedSince(st.workload, waitedFor[stageplan.Succeeded], waitedFor[stageplan.Ready])
	for i := range stages {
		opens := func(c stageplan.Condition) bool { return c.Stage == st.index && c.Status == stageplan.Ready }
		if stages[i].workload != nil && slices.ContainsFunc(stages[i].After, opens) {
			h.Opens = append(h.Opens, stages[i].workload)
		}
	}
	return h
}

// note writes the timeline. If the API server does not answer, the JobSet is requeued, so that the next steps do not overwrite or delete
// times that are not noted. If the API server rejects the write, quota is released nevertheless: the user of a JobSet can make the write
// impossible, for instance by annotations that leave no room.
func (r *Reconciler) note(ctx context.Context, s *snapshot, w *actions) error {
	if len(w.ended) == 0 {
		return nil
	}
	err := r.noteOn(ctx, s.jobSet, s, w, client.MergeFromWithOptions(s.jobSet, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		err = r.noteOnLatest(ctx, s, w)
	}
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return ctx.Err()
	case isTransient(err):
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Times of stages are missing in the timeline", "cause", err.Error())
	return nil
}

// isTransient reports whether the same write can succeed later without any change of the object.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // no answer
	}
	return apierrors.IsConflict(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// noteOnLatest writes the timeline of a JobSet that other clients write to at the same time. It reads the JobSet past the cache. Only the
// manager writes the timeline, so the write needs no resource version: the API server merges it with the other writes.
func (r *Reconciler) noteOnLatest(ctx context.Context, s *snapshot, w *actions) error {
	var js jobsetapi.JobSet
	if err := r.reader.Get(ctx, s.key, &js); err != nil {
		return fmt.Errorf("read JobSet %s: %w", s.key, err)
	}
	if js.UID != s.jobSet.UID {
		return nil
	}
	return r.noteOn(ctx, &js, s, w, patch.IfSameUID(&js))
}

// noteOn patches the timeline of a JobSet. The timeline repeats what was noted before, so the JobSet must not be older than the last write.
func (r *Reconciler) noteOn(ctx context.Context, js *jobsetapi.JobSet, s *snapshot, w *actions, change client.Patch) error {
	var order []string
	for i := range s.plan.Stages {
		order = append(order, s.plan.Stages[i].Name)
	}
	timeline := conditions.TimelineOf(js)
	waited := make([]time.Duration, len(w.ended))
	for i, h := range w.ended {
		if h.End.IsZero() {
			h.End = time.Now().Truncate(time.Second)
		}
		waited[i] = h.Count(&timeline, order)
	}
	value, err := conditions.RenderTimeline(timeline)
	if err != nil {
		return fmt.Errorf("render timeline of JobSet %s: %w", s.key, err)
	}
	after := js.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.TimelineAnnotation, value)
	if err := r.config.Client.Patch(ctx, after, change); err != nil {
		return fmt.Errorf("note times of JobSet %s: %w", s.key, err)
	}
	for i, h := range w.ended {
		r.config.Metrics.WaitedForStage(h.Workload, waited[i])
	}
	return nil
}
