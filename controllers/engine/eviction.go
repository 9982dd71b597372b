package engine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/life"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/metrics"
)

// evict writes an eviction and settles the decision. The stage controller does the rest: it holds the Jobs, and gives the quota back
// once their pods have ended.
func (w *writer) evict(ctx context.Context, d *admission.Evict) {
	before, after, err := w.writeEviction(ctx, d)
	if apierrors.IsConflict(err) {
		w.evictLater(ctx, d)
		return
	}
	if err != nil {
		metrics.WriteFailed("Evict")
		ctrl.LoggerFrom(ctx).V(1).Info("Eviction not written, deciding anew", "workload", klog.KRef(d.Stage.Namespace, d.Stage.Name), "cause", err.Error())
		w.takeBack(ctx, d.Stage, d.ID, err)
		return
	}
	w.retries.Forget(d.Stage)
	observed := before
	if after != nil {
		observed = after
	}
	w.runner.post(func(e *admission.Engine) {
		e.Apply(admission.WorkloadObserved{Workload: observed})
		e.Settle(d.ID, nil)
	})
	if after != nil {
		w.announceEviction(before, after, d)
	}
}

// evictLater tries again when the cache has had time to see what has changed: as often as not the quota Workload has finished.
func (w *writer) evictLater(ctx context.Context, d *admission.Evict) {
	time.AfterFunc(w.retries.When(d.Stage), func() {
		if ctx.Err() == nil {
			w.add(lateEviction{*d})
		}
	})
}

// A lateEviction is tried again. Meanwhile the stage may have given back what it held, and hold quota anew.
type lateEviction struct{ admission.Evict }

// evictIfAwaited writes a lateEviction, unless it means what is held no longer.
func (w *writer) evictIfAwaited(ctx context.Context, d *lateEviction) {
	isAwaited := false
	err := w.runner.View(ctx, func(e *admission.Engine) { isAwaited = e.Awaits(d.ID) })
	if err != nil || !isAwaited {
		w.retries.Forget(d.Stage)
		return
	}
	w.evict(ctx, &d.Evict)
}

// writeEviction returns the quota Workload as it was, and as it is with the eviction, or nil if there is nothing to evict: it has
// been replaced, has finished, holds nothing, or is evicted already. It writes only what it has read: an eviction counts itself, and
// must not bring back a reservation that has gone meanwhile. The cache is asked first, and the API itself if that has not seen the
// reservation yet.
func (w *writer) writeEviction(ctx context.Context, d *admission.Evict) (before, after *kueue.Workload, err error) {
	before = &kueue.Workload{}
	err = w.config.Client.Get(ctx, d.Stage, before)
	if err == nil && !isHeld(before, d.UID) && !isOver(before, d.UID) || apierrors.IsNotFound(err) {
		before = &kueue.Workload{}
		err = w.config.Reader.Get(ctx, d.Stage, before)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read quota Workload %s: %w", d.Stage, err)
	}
	if !isHeld(before, d.UID) {
		return before, nil, nil
	}
	e := life.Eviction{Reason: d.Reason, Message: d.Message}
	if d.Preemption != nil {
		e.Preempted = d.Preemption.Reason
		if e.Message, err = w.preemptionMessage(ctx, d); err != nil {
			return nil, nil, err
		}
	}
	after, err = w.apply(ctx, before, life.Evicted(before, e, time.Now()), before.ResourceVersion)
	return before, after, err
}

// isHeld tells whether there is something to evict.
func isHeld(workload *kueue.Workload, uid types.UID) bool {
	return !isOver(workload, uid) && workload.Status.Admission != nil && life.IsTrue(workload, kueue.WorkloadQuotaReserved) &&
		!life.IsTrue(workload, kueue.WorkloadEvicted)
}

// isOver tells whether there will be nothing to evict any more: the quota Workload has been replaced, or has finished.
func isOver(workload *kueue.Workload, uid types.UID) bool {
	return workload.UID != uid || life.IsTrue(workload, kueue.WorkloadFinished)
}

// preemptionMessage returns what the status of the victim says of the preemptor.
func (w *writer) preemptionMessage(ctx context.Context, d *admission.Evict) (string, error) {
	var preemptor kueue.Workload
	err := w.config.Client.Get(ctx, d.Preemption.Preemptor, &preemptor)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("read the preemptor, quota Workload %s: %w", d.Preemption.Preemptor, err)
	}
	p := life.Preemptor{
		UID: d.Preemption.PreemptorUID, Reason: d.Preemption.Reason, Path: d.Preemption.PreemptorPath, VictimPath: d.Preemption.VictimPath,
	}
	if preemptor.UID == p.UID {
		p.JobUID = preemptor.Labels[apis.JobUIDLabel]
	}
	return life.PreemptionMessage(p), nil
}

// announcePreemption tells the owners of the victim and of the preemptor.
func (w *writer) announcePreemption(before, after *kueue.Workload, d *admission.Evict, message string) {
	metrics.Preempted(d.Preemption.ClusterQueue, d.Preemption.Reason)
	if !w.events.TryAccept() {
		return
	}
	events.Preempted(message).Emit(w.config.Recorder, after)
	preemptor := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.Preemption.Preemptor.Namespace, Name: d.Preemption.Preemptor.Name, UID: d.Preemption.PreemptorUID,
	}}
	victim := life.NameOf(preemptor.Namespace, d.Stage)
	events.PreemptedWorkload(victim, string(after.UID), string(before.Status.Admission.ClusterQueue)).Emit(w.config.Recorder, preemptor)
}

// announceEviction tells the owners of the quota Workload and of the JobSet.
func (w *writer) announceEviction(before, after *kueue.Workload, d *admission.Evict) {
	e := life.EvictionOf(after)
	if w.events.TryAccept() {
		events.Evicted(e.EventReason(), e.Message).Emit(w.config.Recorder, after)
	}
	message := e.Message
	if d.Preemption != nil {
		message += "; preemptor: " + life.NameOf(d.Stage.Namespace, d.Preemption.Preemptor) + "; " + d.Message
		w.announcePreemption(before, after, d, message)
	}
	if stage := after.Labels[apis.StageLabel]; stage != "" {
		events.StageEvicted(StageName(stage, after), Usage(before.Status.Admission), e.Reason, message).EmitOnOwner(w.config.Recorder, after)
	}
}

// StageName returns the name of a stage as Events have it. A growth of the stage has a number behind the name.
func StageName(stage string, workload *kueue.Workload) string {
	if growth := workload.Labels[apis.GrowthLabel]; growth != "" {
		stage += " (growth " + growth + ")"
	}
	return stage
}
