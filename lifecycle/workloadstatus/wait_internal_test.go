package workloadstatus

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// By default QuotaReserved has the reason and the message of Kueue, and the feature gate brings the most specific reason. WaitOf returns that
// either way.
func TestWait(t *testing.T) {
	for name, tc := range map[string]struct {
		wait                               quotaworkload.Wait
		reason, message, waiting, granular string
	}{
		"for quota":   {quotaworkload.Wait{Reason: "WaitingForQuota", Message: "needs 3", KueueMessage: "couldn't"}, "Pending", "couldn't", "WaitingForQuota needs 3", "WaitingForQuota"},
		"for a queue": {quotaworkload.Wait{Reason: "Suspended", Message: "stopped", KueueReason: "Inadmissible"}, "Inadmissible", "stopped", "Suspended stopped", "Suspended"},
		"in line":     {pendingEvaluation("new"), "Pending", "new", "", "PendingEvaluation"},
		"gated":       {bothReasons("AdmissionGated", "by"), "AdmissionGated", "by", "", "AdmissionGated"},
	} {
		status := Pending(&kueue.Workload{}, tc.wait, time.Unix(0, 0))
		reserved := apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadQuotaReserved)
		if reserved.Reason != tc.reason || reserved.Message != tc.message {
			t.Errorf("%s: QuotaReserved says %s %s", name, reserved.Reason, reserved.Message)
		}
		waiting := ""
		if c := apimeta.FindStatusCondition(status.Conditions, apis.WaitingCondition); c != nil {
			waiting = c.Reason + " " + c.Message
		}
		if waiting != tc.waiting {
			t.Errorf("%s: Waiting says %q, want %q", name, waiting, tc.waiting)
		}
		shown := Observable(status)
		if got := apimeta.FindStatusCondition(shown.Conditions, kueue.WorkloadQuotaReserved).Reason; got != tc.granular {
			t.Errorf("%s: with the gate QuotaReserved has reason %s, want %s", name, got, tc.granular)
		}
		if !apimeta.IsStatusConditionFalse(shown.Conditions, kueue.WorkloadAdmitted) || apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadAdmitted) != nil {
			t.Errorf("%s: Admitted=False is there with the gate only", name)
		}
		for _, s := range []kueue.WorkloadStatus{status, shown} {
			if w := WaitOf(&kueue.Workload{Status: s}); w.Reason != tc.wait.Reason || w.Message != tc.wait.Message {
				t.Errorf("%s: waits for %s %s", name, w.Reason, w.Message)
			}
		}
	}
}

// An admitted Workload waits for nothing.
func TestAdmittedDoesNotWait(t *testing.T) {
	w := &kueue.Workload{}
	w.Status = Pending(w, quotaworkload.Wait{Reason: "WaitingForQuota", Message: "needs 3"}, time.Unix(0, 0))
	status := Admitted(w, &kueue.Admission{ClusterQueue: "q"}, time.Unix(1, 0))
	if apimeta.FindStatusCondition(status.Conditions, apis.WaitingCondition) != nil {
		t.Error("the condition Waiting is still there")
	}
}

func TestGatedByOthers(t *testing.T) {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.AdmissionGatedByAnnotation: "example.com/gate"}}}
	pass := func(want string) {
		t.Helper()
		step := Next(&Snapshot{Workload: w}, nil, time.Unix(0, 0))
		if step.Status != nil {
			w = Merge(w, step.Status)
		}
		if got := WaitOf(w); got.Reason+" "+got.Message != want {
			t.Errorf("says %+v, want %s", got, want)
		}
	}
	pass("AdmissionGated Admission is gated by: example.com/gate")
	if step := Next(&Snapshot{Workload: w}, nil, time.Unix(0, 0)); step.Transition != nil {
		t.Errorf("tells %v again", step.Transition)
	}
	w.Annotations = nil
	pass("PendingEvaluation AdmissionGatedBy cleared, waiting for quota reservation")
}

// With the gate a new Workload has its conditions before the engine has decided anything.
func TestExplicitStatus(t *testing.T) {
	gates := configapi.FeatureGates{configapi.UnadmittedWorkloadsObservability: true, configapi.UnadmittedWorkloadsExplicitStatus: true}
	step := Next(&Snapshot{Workload: &kueue.Workload{}, Gates: gates}, nil, time.Unix(0, 0))
	if step.Status == nil || apimeta.FindStatusCondition(step.Status.Conditions, kueue.WorkloadQuotaReserved).Reason != "PendingEvaluation" ||
		!apimeta.IsStatusConditionFalse(step.Status.Conditions, kueue.WorkloadAdmitted) {
		t.Errorf("writes %+v", step.Status)
	}
	if step := Next(&Snapshot{Workload: &kueue.Workload{}}, nil, time.Unix(0, 0)); step.Status != nil && len(step.Status.Conditions) > 0 {
		t.Errorf("without the gate it writes %+v", step.Status)
	}
}

// Admitted=False has Kueue's reason and message, with a reservation and without.
func TestUnsatisfiedChecks(t *testing.T) {
	w := &kueue.Workload{}
	says := func(reason, message, granular, granularMessage string) {
		t.Helper()
		c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted)
		if c.Reason != reason || c.Message != message {
			t.Errorf("Admitted=False has %s: %s, want %s: %s", c.Reason, c.Message, reason, message)
		}
		c = apimeta.FindStatusCondition(Observable(w.Status).Conditions, kueue.WorkloadAdmitted)
		if c.Reason != granular || c.Message != granularMessage {
			t.Errorf("with the gate Admitted=False has %s: %s, want %s: %s", c.Reason, c.Message, granular, granularMessage)
		}
	}
	w.Status = Reserved(w, &kueue.Admission{ClusterQueue: "q"}, []kueue.AdmissionCheckReference{"budget"}, time.Unix(1, 0))
	says("UnsatisfiedChecks", "The workload has not all checks ready", "UnsatisfiedAdmissionChecks", "The workload has not all checks ready")
	w.Status = Pending(w, quotaworkload.Wait{Reason: "WaitingForQuota", Message: "needs 3"}, time.Unix(2, 0))
	says("NoReservationUnsatisfiedChecks", "The workload has no reservation and not all checks ready", "NoReservation", "The workload has no reservation")
	w.Status.AdmissionChecks = nil
	w.Status = Pending(w, quotaworkload.Wait{Reason: "WaitingForQuota", Message: "needs 4"}, time.Unix(3, 0))
	says("NoReservation", "The workload has no reservation", "NoReservation", "The workload has no reservation")
}
