package stages

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// This file keeps the timeline of a JobSet. The timeline is derived from the conditions of the quota Workloads, so it is written only when
// a quota hold ends, before its times are lost: when a stage has finished, and before an eviction, a suspension, a restart or the loss of a
// pod overwrites them, including a restart that leaves a stage its quota. A JobSet that runs without interruption costs at most one write
// for each stage.

// noteAfter is how long after the end of a stage, while its JobSet runs, the manager writes that end into the timeline and removes the finalizer of
// the quota Workload. When a stage finishes, the next one starts: its release does not wait for these writes, which conflict with those of the JobSet
// controller at that moment. Stages that finish within this time share the write to the JobSet.
const noteAfter = 2 * time.Minute

// isNoteDue reports whether it is time to write about the finished stage of a quota Workload. If not, it requests a reconcile at that time.
func (w *Step) isNoteDue(s *jobsetstate.Snapshot, workload *kueue.Workload) bool {
	left := noteAfter - s.Now.Sub(finishedAt(workload).Time)
	if left > 0 {
		w.RequeueWithin(left)
	}
	return left <= 0
}

// endedHolds returns the quota holds whose end must be noted. An End of zero means now.
func (w *Step) endedHolds(s *jobsetstate.Snapshot, stages []stage) []jobsetstatus.Hold {
	over, _ := jobsetstate.OutcomeOf(s.JobSet)
	timeline := jobsetstatus.TimelineOf(s.JobSet)
	var order []string
	for i := range stages {
		order = append(order, stages[i].Name)
	}
	var ended, fresh []jobsetstatus.Hold
	for i := range stages {
		st := &stages[i]
		if st.workload == nil || !st.holdsQuota() {
			continue
		}
		h := st.hold(stages)
		h.Closes = w.closes(st)
		switch finished := finishedAt(st.workload); {
		case finished != nil && !jobsetstatus.IsCounted(&timeline, st.Name, st.workload, order):
			h.End = finished.Time
			if !over && !w.endsHold(st) && !w.isNoteDue(s, st.workload) {
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
func (w *Step) endsHold(st *stage) bool {
	releases := func(workload *kueue.Workload) bool {
		return w.Does(workload, quotastep.Release, quotastep.Reopen, quotastep.RemoveFinalizer, quotastep.Delete)
	}
	return releases(st.workload) || slices.ContainsFunc(holding(st.growths), releases) || w.closes(st) || w.forgetsReadiness(st)
}

// closes reports whether this reconcile notes that a restart has gated a stage, which keeps its quota.
func (w *Step) closes(st *stage) bool {
	return w.writesProgress(st, func(p *quotastep.Write) bool { return p.Ready.Type == "" && p.Finished == nil })
}

// writesProgress reports whether this reconcile writes such a report about the pods of a stage.
func (w *Step) writesProgress(st *stage, is func(*quotastep.Write) bool) bool {
	return slices.ContainsFunc(w.Writes, func(p quotastep.Write) bool {
		return p.Kind == quotastep.Progress && p.Workload == st.workload && is(&p)
	})
}

// losesFirstPod reports whether this reconcile overwrites since when the pods of a stage were ready, which is not counted yet.
func (w *Step) losesFirstPod(st *stage, timeline *apis.Timeline) bool {
	return jobsetstatus.IsReadyUncounted(timeline, st.Name, st.workload) && w.writesProgress(st, func(p *quotastep.Write) bool {
		return p.Ready.Reason == kueue.WorkloadWaitForRecovery
	})
}

// forgetsReadiness reports whether this reconcile overwrites that the pods of a stage were ready: the stage is evicted, suspended or gated
// again. The condition of a stage that waits for recovery still contains it.
func (w *Step) forgetsReadiness(st *stage) bool {
	ready := apimeta.FindStatusCondition(st.workload.Status.Conditions, kueue.WorkloadPodsReady)
	if ready == nil || ready.Status != metav1.ConditionTrue && ready.Reason != kueue.WorkloadWaitForRecovery {
		return false
	}
	return st.mustRelease && ready.Status == metav1.ConditionTrue || w.writesProgress(st, func(p *quotastep.Write) bool {
		return p.Ready.Status != metav1.ConditionTrue && p.Ready.Reason != kueue.WorkloadWaitForRecovery
	})
}

func finishedAt(w *kueue.Workload) *metav1.Time {
	if c := quotaworkload.FindTrue(w, kueue.WorkloadFinished); c != nil {
		return &c.LastTransitionTime
	}
	return nil
}

// hold returns the quota hold of a stage, without its end.
func (st *stage) hold(stages []stage) jobsetstatus.Hold {
	h := jobsetstatus.Hold{Stage: st.Name, Workload: st.workload, Growths: holding(st.growths)}
	waitedFor := map[stageplan.Status][]*kueue.Workload{}
	for _, c := range st.After {
		if workload := stages[c.Stage].workload; workload != nil {
			waitedFor[c.Status] = append(waitedFor[c.Status], workload)
		}
	}
	h.Queued = jobsetstatus.QueuedSince(st.workload, waitedFor[stageplan.Succeeded], waitedFor[stageplan.Ready])
	for i := range stages {
		opens := func(c stageplan.Condition) bool { return c.Stage == st.index && c.Status == stageplan.Ready }
		if stages[i].workload != nil && slices.ContainsFunc(stages[i].After, opens) {
			h.Opens = append(h.Opens, stages[i].workload)
		}
	}
	return h
}

// RecordTimesOn returns the JobSet with the ended quota holds of the Step in its timeline, and for how long each hold waited for its quota.
func (w *Step) RecordTimesOn(js *jobsetapi.JobSet, plan *stageplan.Plan, now time.Time) (after *jobsetapi.JobSet, waited []time.Duration, err error) {
	var order []string
	for i := range plan.Stages {
		order = append(order, plan.Stages[i].Name)
	}
	timeline := jobsetstatus.TimelineOf(js)
	waited = make([]time.Duration, len(w.EndedHolds))
	for i, h := range w.EndedHolds {
		if h.End.IsZero() {
			h.End = now.Truncate(time.Second)
		}
		waited[i] = h.Count(&timeline, order)
	}
	value, err := jobsetstatus.RenderTimeline(timeline)
	if err != nil {
		return nil, nil, err
	}
	after = js.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.TimelineAnnotation, value)
	return after, waited, nil
}
