package engine

import (
	"cmp"
	"context"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// notify writes the notice of a preemption, or withdraws it, and settles the decision. If that fails, also by a conflict, the engine decides again.
func (w *writer) notify(ctx context.Context, d *admission.Notice) {
	before, after, err := w.writeNotice(ctx, d)
	if err != nil {
		w.config.Metrics.WriteFailed("Notice")
		ctrl.LoggerFrom(ctx).V(1).Info("Writing the notice of a preemption failed, the engine will decide again", "workload", klog.KRef(d.Stage.Namespace, d.Stage.Name), "cause", err.Error())
		w.takeBack(ctx, d.Stage, d.ID)
		return
	}
	w.settle(d.Stage, d.ID, cmp.Or(after, before))
	if after != nil {
		w.announceNotice(after, d)
	}
}

// writeNotice returns the quota Workload before and after the write, or only before it if there is nothing to preempt.
func (w *writer) writeNotice(ctx context.Context, d *admission.Notice) (before, after *kueue.Workload, err error) {
	before, err = w.readHolder(ctx, d.Stage, d.UID)
	if err != nil || !isHeld(before, d.UID) {
		return before, nil, err
	}
	status := workloadstatus.NoticeWithdrawn(before, time.Now())
	if d.Preemption != nil {
		p, err := w.preemptor(ctx, d.Stage, d.Preemption)
		if err != nil {
			return nil, nil, err
		}
		status = workloadstatus.Noticed(before, d.Ends, p, time.Now())
	}
	after, err = w.apply(ctx, before, status, before.ResourceVersion)
	return before, after, err
}

// announceNotice emits Events for the quota Workload and for its owner: those about jobs that will be stopped are not limited.
func (w *writer) announceNotice(after *kueue.Workload, d *admission.Notice) {
	c := apimeta.FindStatusCondition(after.Status.Conditions, apis.PreemptionPendingCondition)
	if c == nil {
		return // it was withdrawn before it was written
	}
	event, action := events.PreemptionPending(c.Message), "Given"
	if d.Preemption == nil {
		event, action = events.PreemptionWithdrawn(c.Message), "Withdrawn"
	}
	w.config.Metrics.Noticed(string(after.Status.Admission.ClusterQueue), action)
	event.Emit(w.config.Recorder, after)
	event.EmitOnOwner(w.config.Recorder, after)
}
