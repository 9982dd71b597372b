package quotaworkload

import (
	"slices"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// anyWorkload returns a Workload with any status that other clients may leave behind, sensible or not.
func anyWorkload(t *rapid.T) *kueue.Workload {
	g := rapid.SampledFrom([]func() given{pending, reserved, unchecked, admitted}).Draw(t, "state")()
	for conditionType, reasons := range map[string][]string{
		kueue.WorkloadEvicted:            {"Preempted", "AdmissionCheck", "PodsReadyTimeout", "Deactivated", "DeactivatedDueToAdmissionCheck", "LocalQueueStopped"},
		kueue.WorkloadRequeued:           {"Preempted", "AdmissionCheck", "PodsReadyTimeout", "Deactivated", "LocalQueueStopped", "ClusterQueueStopped"},
		kueue.WorkloadDeactivationTarget: {"AdmissionCheck", "MaximumExecutionTimeExceeded"},
		kueue.WorkloadPodsReady:          {"Started", "WaitForStart", "WaitForRecovery"},
	} {
		if rapid.Bool().Draw(t, conditionType) {
			status := rapid.SampledFrom([]metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}).Draw(t, "status")
			g = g.with(conditionType, status, rapid.SampledFrom(reasons).Draw(t, "reason"), rapid.IntRange(-9, 9).Draw(t, "since"))
		}
	}
	for _, name := range []string{"budget", "never", "nodes"} {
		if rapid.Bool().Draw(t, name) {
			g = g.check(name, rapid.SampledFrom([]kueue.CheckState{"Pending", "Ready", "Retry", "Rejected"}).Draw(t, "check"))
			last := &g.Status.AdmissionChecks[len(g.Status.AdmissionChecks)-1]
			last.RequeueAfterSeconds = rapid.SampledFrom([]*int32{nil, new(int32(0)), new(int32(60))}).Draw(t, "after")
		}
	}
	if rapid.Bool().Draw(t, "requeued") {
		g = g.requeue(rapid.IntRange(0, 4).Draw(t, "count"), rapid.IntRange(0, 90).Draw(t, "requeueAt"))
	}
	if rapid.Bool().Draw(t, "inactive") {
		g = g.inactive()
	}
	if rapid.Bool().Draw(t, "limited") {
		g = g.limit(60, rapid.Int32Range(0, 60).Draw(t, "past"))
	}
	if rapid.Bool().Draw(t, "owned") {
		g = g.ownedBy("JobSet")
	}
	return g.Workload
}

// applied returns the Workload after the API server has applied the writes of a reconcile.
func applied(before *kueue.Workload, w *workloadstatus.Step) *kueue.Workload {
	after := before.DeepCopy()
	switch {
	case w.Deactivate:
		after.Spec.Active = new(false)
	case len(w.RemoveChecks) > 0:
		after.Status.AdmissionChecks = slices.DeleteFunc(after.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return slices.Contains(w.RemoveChecks, c.Name) })
	case w.Status != nil:
		return workloadstatus.Merge(before, w.Status)
	}
	return after
}

// From any state, a few reconciles at the same time lead to a state in which nothing is written, and on the way no reconcile writes without
// changing anything.
func TestPassesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &workloadstatus.Snapshot{
			Workload: anyWorkload(t), ReservedIn: research(), LocalQueue: &kueue.LocalQueue{}, ClusterQueue: &kueue.ClusterQueue{},
		}
		first := s.Workload
		config, now := podsReady(rapid.Bool().Draw(t, "podsReady"), new(int32(2))), at(rapid.IntRange(0, 120).Draw(t, "now"))
		for range 8 {
			w := workloadstatus.Next(s, &config, now)
			isWrite := w.Deactivate || len(w.RemoveChecks) > 0 || w.Status != nil && workloadstatus.Differs(s.Workload, w.Status)
			if r := (&Reconciler{config: Config{PodsReady: config}}); (isWrite || w.RequeueAfter > 0) && !r.hasStep(s.Workload, now) {
				t.Fatalf("no reconcile would take the step %+v of %+v", w, s.Workload)
			}
			if !isWrite {
				checkEnd(t, first, s.Workload)
				return
			}
			s.Workload = applied(s.Workload, w)
		}
		t.Fatalf("8 passes did not end: %+v", s.Workload)
	})
}

// checkEnd checks what must hold when nothing is left to write.
func checkEnd(t *rapid.T, first, w *kueue.Workload) {
	if quotaworkload.HoldsQuota(first) && !quotaworkload.HoldsQuota(w) {
		t.Errorf("released the quota, which only the controller that runs the pods may do: %+v", w.Status)
	}
	evicted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
	if !ptr.Deref(w.Spec.Active, true) && (evicted == nil || evicted.Status != metav1.ConditionTrue || !workloadstatus.IsDeactivated(evicted.Reason)) {
		t.Errorf("not active and not evicted for that: %+v", w.Status)
	}
	if (w.Status.Admission == nil || !quotaworkload.HoldsQuota(w)) && quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) {
		t.Errorf("admitted without quota: %+v", w.Status)
	}
	if !quotaworkload.HoldsQuota(w) || quotaworkload.IsTrue(first, kueue.WorkloadAdmitted) || !quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) {
		return
	}
	ready := workloadstatus.Checks(w, kueue.CheckStateReady)
	if len(ready) != 2 || ready[0].Name != "budget" || ready[1].Name != "nodes" {
		t.Errorf("admitted with these checks ready: %+v", ready)
	}
}
