package engine

import (
	"cmp"
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
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// evict writes an eviction and settles the decision. The stage controller does the rest: it holds the Jobs, and releases the quota once
// their pods have terminated.
func (w *writer) evict(ctx context.Context, d *admission.Evict) {
	before, after, err := w.writeEviction(ctx, d)
	if apierrors.IsConflict(err) {
		// The cache needs time to observe the change: often the quota Workload has finished.
		time.AfterFunc(w.retries.When(d.Stage), func() {
			if ctx.Err() == nil {
				w.add(retriedEviction{*d})
			}
		})
		return
	}
	if err != nil {
		w.config.Metrics.WriteFailed("Evict")
		ctrl.LoggerFrom(ctx).V(1).Info("Writing an eviction failed, the engine will decide again", "workload", klog.KRef(d.Stage.Namespace, d.Stage.Name), "cause", err.Error())
		w.takeBack(ctx, d.Stage, d.ID)
		return
	}
	w.settle(d.Stage, d.ID, cmp.Or(after, before))
	if after != nil {
		w.announceEviction(before, after, d)
	}
}

// A retriedEviction is a retried eviction. In the meantime the stage may have released its quota, and hold new quota.
type retriedEviction struct{ admission.Evict }

// evictIfAwaited writes a retriedEviction, unless it no longer applies to the quota that the stage holds.
func (w *writer) evictIfAwaited(ctx context.Context, d *retriedEviction) {
	isAwaited := false
	err := w.runner.View(ctx, func(e *admission.Engine) { isAwaited = e.InFlight(d.ID) })
	if err != nil || !isAwaited {
		w.retries.Forget(d.Stage)
		return
	}
	w.evict(ctx, &d.Evict)
}

// writeEviction returns the quota Workload before and after the eviction, or nil if there is nothing to evict: the Workload has been
// replaced, has finished, holds no quota, or is already evicted. The write is based on the version that was read: an eviction increments
// its own counters, and must not restore a reservation that is gone. It reads the cache first, and the API server if the cache lacks the
// reservation.
func (w *writer) writeEviction(ctx context.Context, d *admission.Evict) (before, after *kueue.Workload, err error) {
	before, err = w.readHolder(ctx, d.Stage, d.UID)
	if err != nil || !isHeld(before, d.UID) {
		return before, nil, err
	}
	e := workloadstatus.Eviction{Reason: d.Reason, Message: d.Message}
	if d.Preemption != nil {
		e.Preempted = d.Preemption.Reason
		p, err := w.preemptor(ctx, d.Stage, d.Preemption)
		if err != nil {
			return nil, nil, err
		}
		e.Message, e.Preemptor = workloadstatus.PreemptionMessage(p), p.Name
	}
	after, err = w.apply(ctx, before, workloadstatus.Evicted(before, e, time.Now()), before.ResourceVersion)
	return before, after, err
}

// readHolder reads a quota Workload that has to release its quota from the cache, or from the API server if the cache lacks the reservation.
func (w *writer) readHolder(ctx context.Context, stage admission.StageKey, uid types.UID) (*kueue.Workload, error) {
	seen := &kueue.Workload{}
	err := w.config.Client.Get(ctx, stage, seen)
	if err == nil && !isHeld(seen, uid) && !isOver(seen, uid) || apierrors.IsNotFound(err) {
		seen = &kueue.Workload{}
		err = w.config.Reader.Get(ctx, stage, seen)
	}
	if err != nil {
		return nil, fmt.Errorf("read quota Workload %s: %w", stage, err)
	}
	return seen, nil
}

// isHeld reports whether the quota Workload holds quota that can be evicted.
func isHeld(workload *kueue.Workload, uid types.UID) bool {
	return !isOver(workload, uid) && workload.Status.Admission != nil && quotaworkload.IsTrue(workload, kueue.WorkloadQuotaReserved) &&
		!quotaworkload.IsTrue(workload, kueue.WorkloadEvicted)
}

// isOver reports whether there will never be anything to evict: the quota Workload has been replaced, or has finished.
func isOver(workload *kueue.Workload, uid types.UID) bool {
	return workload.UID != uid || quotaworkload.IsTrue(workload, kueue.WorkloadFinished)
}

// preemptor returns what the status of the victim reports about its preemptor.
func (w *writer) preemptor(ctx context.Context, victim admission.StageKey, d *admission.Preemption) (workloadstatus.Preemptor, error) {
	var preemptor kueue.Workload
	err := w.config.Client.Get(ctx, d.Preemptor, &preemptor)
	if err != nil && !apierrors.IsNotFound(err) {
		return workloadstatus.Preemptor{}, fmt.Errorf("read the preemptor, quota Workload %s: %w", d.Preemptor, err)
	}
	p := workloadstatus.Preemptor{UID: d.PreemptorUID, Reason: d.Reason, Path: d.PreemptorPath, VictimPath: d.VictimPath}
	if preemptor.UID == p.UID {
		p.JobUID, p.Name = preemptor.Labels[apis.JobUIDLabel], workloadstatus.OwnerNameOf(victim.Namespace, &preemptor)
	}
	return p, nil
}

// announcePreemption emits Events for the victim and for the preemptor.
func (w *writer) announcePreemption(before, after *kueue.Workload, d *admission.Evict, message string) {
	w.config.Metrics.Preempted(d.Preemption.ClusterQueue, d.Preemption.Reason)
	if !w.events.TryAccept() {
		return
	}
	events.Preempted(message).Emit(w.config.Recorder, after)
	preemptor := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.Preemption.Preemptor.Namespace, Name: d.Preemption.Preemptor.Name, UID: d.Preemption.PreemptorUID,
	}}
	victim := workloadstatus.NameOf(preemptor.Namespace, d.Stage)
	events.PreemptedWorkload(victim, string(after.UID), string(before.Status.Admission.ClusterQueue)).Emit(w.config.Recorder, preemptor)
}

// announceEviction emits Events for the quota Workload and for its JobSet.
func (w *writer) announceEviction(before, after *kueue.Workload, d *admission.Evict) {
	e := workloadstatus.EvictionOf(after)
	if w.events.TryAccept() {
		events.Evicted(e.EventReason(), e.Message).Emit(w.config.Recorder, after)
	}
	if d.ResolvesDeadlock {
		w.config.Metrics.DeadlockResolved(string(before.Status.Admission.ClusterQueue))
	}
	message := e.Message
	if d.Preemption != nil {
		if d.Preemption.Preemptor.Namespace != d.Stage.Namespace { // otherwise the condition names it
			message += "; preemptor: " + workloadstatus.NameOf(d.Stage.Namespace, d.Preemption.Preemptor)
		}
		message += "; " + d.Message
		w.announcePreemption(before, after, d, message)
	}
	if stage := after.Labels[apis.StageLabel]; stage != "" {
		events.StageEvicted(StageName(stage, after), Usage(before.Status.Admission), e.Reason, message).EmitOnOwner(w.config.Recorder, after)
	}
}

// StageName returns the name of a stage as Events contain it, followed by the number of the growth, if it is one.
func StageName(stage string, workload *kueue.Workload) string {
	if growth := workload.Labels[apis.GrowthLabel]; growth != "" {
		stage += " (growth " + growth + ")"
	}
	return stage
}
