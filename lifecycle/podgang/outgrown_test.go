package podgang_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// TestReplacementAsksForMore: a pod that is recreated with more memory starts, also if the other pods of its gang have terminated meanwhile. The gang
// holds no quota then that no pod can use.
func TestReplacementAsksForMore(t *testing.T) {
	for name, phase := range map[string]corev1.PodPhase{"after the other has succeeded": corev1.PodSucceeded, "after the other has failed": corev1.PodFailed} {
		t.Run(name, func(t *testing.T) {
			w := newStarted(t, 2)
			w.pods[0].Status.Phase = phase
			w.settle()
			w.pods[1].Status.Phase = corev1.PodFailed
			w.settle()
			w.vanish(w.pods[1])
			w.add(3)
			w.settle()
			w.now = w.now.Add(2 * time.Minute)
			w.settle()
			initial := w.workloads[0]
			for _, p := range initial.Spec.PodSets {
				held := p.Count
				for _, r := range initial.Status.ReclaimablePods {
					held -= r.Count
				}
				if held > 0 && quotaworkload.HoldsQuota(initial) {
					t.Errorf("quota is held for %d pods, and none of them can come: %+v", held, initial.Status)
				}
			}
			w.admitAll()
			if got := w.standing()[1:]; got != "r" {
				t.Fatalf("the recreated pod is %q, message %q; want that it runs", got, w.last.Message.Text)
			}
			w.pods[1].Status.Phase = corev1.PodSucceeded
			w.settle()
			finished := quotaworkload.FindTrue(w.workloads[0], kueue.WorkloadFinished)
			want := map[corev1.PodPhase]string{corev1.PodSucceeded: kueue.WorkloadFinishedReasonSucceeded, corev1.PodFailed: kueue.WorkloadFinishedReasonFailed}[phase]
			if finished == nil || finished.Reason != want {
				t.Errorf("the gang has finished with %+v, want %s", finished, want)
			}
		})
	}
}

// TestSlotsThatAreGivenUp: no pod is ungated on quota that the same step releases. The pod fits, but the manager was interrupted before it was ungated, and
// did not run for longer than quota is kept without a pod.
func TestSlotsThatAreGivenUp(t *testing.T) {
	w := newStarted(t, 3)
	for _, pod := range w.pods[:2] {
		pod.Status.Phase = corev1.PodFailed
	}
	w.settle()
	w.vanish(w.pods[2])
	w.add(1)
	step := podgang.Next(w.seen(), w.now)
	if len(step.Ungate) != 1 || !step.Has(quotastep.Change) {
		t.Fatalf("want a step that ungates a pod, got %+v", step)
	}
	step.Ungate = nil
	w.apply(step)
	w.now = w.now.Add(3 * time.Minute)
	step = podgang.Next(w.seen(), w.now)
	if step.Has(quotastep.Reclaim) && len(step.Ungate) > 0 {
		t.Errorf("releases the quota of %d quota Workloads, and ungates pod %s on it", len(step.Of(quotastep.Reclaim)), step.Ungate[0].Before.Name)
	}
	w.settle()
	w.admitAll()
	if got := w.standing()[2:]; got != "r" {
		t.Errorf("the pod is %q, message %q; want that it runs", got, w.last.Message.Text)
	}
}
