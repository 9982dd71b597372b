package quotaworkload

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// TestRelease covers the write by which the controller that runs the pods of an evicted quota Workload reports that they have terminated.
func TestRelease(t *testing.T) {
	for name, c := range map[string]struct {
		workload given
		now      int
		want     string
	}{
		"preempted": {
			workload: admitted().evicted("Preempted"), now: 7,
			want: "QuotaReserved=False Pending; Admitted=False NoReservation; Requeued=True Preempted; no admission; past 7",
		},
		"evicted": {
			workload: admitted().limit(60, 20).evicted("ClusterQueueStopped").check("budget", kueue.CheckStateReady), now: 7,
			want: "QuotaReserved=False Pending; Admitted=False NoReservationUnsatisfiedChecks; Requeued=False ClusterQueueStopped; no admission; budget=Pending; past 27",
		},
		"evicted before it was admitted": {
			workload: unchecked().evicted("AdmissionCheck"), now: 7,
			want: "QuotaReserved=False Pending; Admitted=False NoReservation; Requeued=False AdmissionCheck; no admission",
		},
		"preempted while a check asks for a later try": {
			workload: unchecked().evicted("Preempted").retry("nodes", 60, 0), now: 7,
			want: "QuotaReserved=False Pending; Admitted=False NoReservationUnsatisfiedChecks; Requeued=False AdmissionCheck; no admission; nodes=Pending/1; requeue 0 at 1m3s",
		},
		"deactivated, still holding": {
			workload: admitted().inactive().evicted("Deactivated"), now: 7,
			want: "QuotaReserved=False Pending; Admitted=False NoReservation; tranche.dev/Waiting=True Deactivated; Requeued=False Deactivated; no admission; past 7",
		},
		"deactivated while a check asks for a later try": {
			workload: unchecked().inactive().evicted("Deactivated").retry("nodes", 60, 0), now: 7,
			want: "QuotaReserved=False Pending; Admitted=False NoReservationUnsatisfiedChecks; tranche.dev/Waiting=True Deactivated; Requeued=False Deactivated; no admission; nodes=Pending/1",
		},
		"ran for too long, gets its whole time again": {
			workload: admitted().inactive().limit(60, 20).evicted("DeactivatedDueToMaximumExecutionTimeExceeded"), now: 40,
			want: "QuotaReserved=False Pending; Admitted=False NoReservation; tranche.dev/Waiting=True Deactivated; Requeued=False DeactivatedDueToMaximumExecutionTimeExceeded; no admission; past 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := workloadstatus.QuotaReleased(c.workload.Workload, at(c.now))
			if got := told(c.workload.DeepCopy(), &workloadstatus.Step{Status: &status}); got != c.want {
				t.Errorf("released:\n got %s\nwant %s", got, c.want)
			}
		})
	}
}
