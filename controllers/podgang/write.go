package podgang

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// reasonDisrupted is the reason of the condition DisruptionTarget.
const reasonDisrupted = "EvictedByTranche"

// write writes a Step. It stops at the first error: later writes may rely on earlier ones, and the next reconcile continues from the state
// reached.
func (r *Reconciler) write(ctx context.Context, s *snapshot, step *podgang.Step) (ctrl.Result, error) {
	r.observePlan(s, step)
	part := func(write func(context.Context, *snapshot, *podgang.Step) error) func(*podgang.Step) error {
		return func(step *podgang.Step) error { return write(ctx, s, step) }
	}
	err := step.Write(&podgang.Writer{
		NoteTimeout: part(r.noteTimeout), DeletePods: part(r.deletePods), Ungate: part(r.ungate), Report: part(r.report), KeepStatus: part(r.keepStatus),
		Quota: func(writes []quotastep.Write) error { return r.writeQuota(ctx, s, step, writes) },
	})
	if err == nil {
		r.requeuePeers(s)
	}
	if step.Message.IsWarning && (step.RequeueAfter == 0 || step.RequeueAfter > workloadstatus.RecheckAfter) {
		step.RequeueAfter = workloadstatus.RecheckAfter
	}
	return apply.Result(&step.Step, err)
}

// problem returns the message about a write that the API server rejects.
func problem(topic, format string, args ...any) podgang.Message {
	return podgang.Message{Reason: "Misconfigured", Topic: topic, Text: fmt.Sprintf(format, args...), IsWarning: true}
}

// errReported ends writes of which one that fails is a problem of the gang, which is reported.
var errReported = errors.New("the API server rejects what the gang needs")

// writeQuota writes to quota Workloads. One that is rejected, or whose name another object has, is a problem of the gang.
func (r *Reconciler) writeQuota(ctx context.Context, s *snapshot, step *podgang.Step, writes []quotastep.Write) error {
	err := r.writer.Write(ctx, writes, apply.Outcome{
		Done:   func(write *quotastep.Write, written *kueue.Workload) { r.reportFinished(s, write, written) },
		Failed: func(write *quotastep.Write, err error) error { return r.failed(ctx, s, step, write, err) },
	})
	if errors.Is(err, errReported) {
		return nil
	}
	if pods := s.Gang.Pods; err == nil && writes[0].Kind == quotastep.Create && len(s.Workloads) == 0 && len(pods) > 0 {
		r.config.Metrics.WorkloadsCreated("Pod", pods[len(pods)-1], time.Now())
	}
	return err
}

// failed reports to the user of a gang that the API server rejects a quota Workload. If it rejects a change, none of the pods is ungated: they may rely on it.
func (r *Reconciler) failed(ctx context.Context, s *snapshot, step *podgang.Step, write *quotastep.Write, err error) error {
	name := write.Workload.Name
	switch {
	case write.Kind == quotastep.Create && apierrors.IsAlreadyExists(err):
		if taken, err := r.isTaken(ctx, s, write.Workload); err != nil || !taken {
			return cmp.Or(err, errReported)
		}
		step.Message = problem("Create", "the gang has no quota Workload, because the quota Workload %q belongs to another object; rename the gang", name)
	case write.Kind == quotastep.Create && apply.IsRefusal(err):
		step.Message = problem("Create", "the gang has no quota Workload, because the API server rejects it; fix the pods of the gang: %s", err)
	case write.Kind == quotastep.Change && apply.IsRefusal(err):
		step.Ungate = nil
		step.Message = problem("Change", "the API server rejects the change of quota Workload %q that the gang needs; fix the gang: %s", name, err)
	default:
		return err
	}
	return errReported
}

// reportFinished lets the engine observe at once that a quota Workload has finished, and reports that to the user of a gang without PodGroup.
func (r *Reconciler) reportFinished(s *snapshot, write *quotastep.Write, written *kueue.Workload) {
	if write.Kind != quotastep.Progress || write.Finished == nil {
		return
	}
	r.config.Runner.Observe(admission.WorkloadObserved{Workload: written})
	if s.object != nil {
		return
	}
	subject := runtime.Object(written)
	if pods := s.Gang.All(); len(pods) > 0 {
		subject = pods[0]
	}
	events.GangFinished(write.Finished.Message).Emit(r.config.Recorder, subject)
}

// isTaken reports whether the quota Workload of a name belongs to another gang.
func (r *Reconciler) isTaken(ctx context.Context, s *snapshot, workload *kueue.Workload) (bool, error) {
	var there kueue.Workload
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(workload), &there); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	ref, ok := refOfWorkload(&there)
	return !ok || ref != s.Gang.Ref, nil
}

// ungate ungates pods, many at a time. If one pod cannot be ungated the others still are, and the next reconcile tries again. If the API
// server rejects the change of a pod, that is a problem of the gang.
func (r *Reconciler) ungate(ctx context.Context, _ *snapshot, step *podgang.Step) error {
	refused := make([]error, len(step.Ungate))
	err := r.writer.Each(ctx, len(step.Ungate), func(i int) error {
		rel := &step.Ungate[i]
		err := r.client.Patch(ctx, rel.After.DeepCopy(), patch.Locked(rel.Before, rel.Before.GetResourceVersion()))
		if apply.IsRefusal(err) {
			refused[i] = err
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("ungate pod %s: %w", client.ObjectKeyFromObject(rel.Before), err)
		}
		if err == nil {
			r.config.Metrics.Ungated(rel.Workload, time.Now())
		}
		return nil
	})
	if i := slices.IndexFunc(refused, func(err error) bool { return err != nil }); i >= 0 {
		step.Message = problem("Release", "pod %q is still gated, because the API server rejects the removal of its scheduling gate; fix or recreate the pod: %s", step.Ungate[i].Before.Name, refused[i])
	}
	return err
}

func (r *Reconciler) deletePods(ctx context.Context, _ *snapshot, step *podgang.Step) error {
	return r.writer.Each(ctx, len(step.Delete), func(i int) error {
		d := &step.Delete[i]
		if err := r.markDisrupted(ctx, d); err != nil {
			return err
		}
		err := r.client.Delete(ctx, d.Pod.DeepCopy(), client.Preconditions{UID: &d.Pod.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod %s of an evicted gang: %w", client.ObjectKeyFromObject(d.Pod), err)
		}
		if err == nil && i < reportedPods {
			event := events.PodEvicted(d.Why)
			if metav1.GetControllerOf(d.Pod) == nil {
				event = events.BarePodEvicted(d.Why)
			}
			event.Emit(r.config.Recorder, d.Pod)
		}
		return nil
	})
}

// markDisrupted records on a pod that is about to be deleted that the pod did not fail by itself, as Kubernetes does: the podFailurePolicy
// of a Job can then ignore the failure.
func (r *Reconciler) markDisrupted(ctx context.Context, d *podgang.Delete) error {
	const longest = 1024
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reasonDisrupted, Message: "The gang is evicted: " + d.Why, LastTransitionTime: metav1.Now(),
	}
	condition.Message = strings.ToValidUTF8(condition.Message[:min(len(condition.Message), longest)], "")
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": d.Pod.UID}, "status": map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return fmt.Errorf("render condition of pod %s: %w", client.ObjectKeyFromObject(d.Pod), err)
	}
	err = r.client.Status().Patch(ctx, d.Pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, data))
	// Another pod of its name has another UID, which is a conflict. A pod that cannot be marked is deleted nevertheless.
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) && !apply.IsRefusal(err) {
		return fmt.Errorf("mark pod %s of an evicted gang: %w", client.ObjectKeyFromObject(d.Pod), err)
	}
	return nil
}

// noteTimeout marks the pods of a gang that did not start in time, before the gang releases its quota: afterwards no other record shows
// that they have waited. If a pod or PodGroup cannot be marked, for example because of a webhook, it is left unchanged, and the gang still
// releases its quota.
func (r *Reconciler) noteTimeout(ctx context.Context, s *snapshot, step *podgang.Step) error {
	err := r.writer.Each(ctx, len(step.TimeOut), func(i int) error { return r.setTimeout(ctx, step.TimeOut[i], "true") })
	switch {
	case err != nil:
		return err
	case step.TimeOutObject:
		return r.setTimeout(ctx, s.object, "true")
	case step.ClearObject:
		return r.setTimeout(ctx, s.object, "")
	}
	return nil
}

// setTimeout notes on an object whether its gang has timed out.
func (r *Reconciler) setTimeout(ctx context.Context, object client.Object, value string) error {
	err := r.annotate(ctx, object, apis.KoordinatorTimeoutAnnotation, value)
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("note on %T %s whether its gang has timed out: %w", object, client.ObjectKeyFromObject(object), err)
	case client.IgnoreNotFound(err) != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Noting whether a gang has timed out", "object", client.ObjectKeyFromObject(object))
	}
	return nil
}
