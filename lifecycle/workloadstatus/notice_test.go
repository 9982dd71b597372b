package workloadstatus_test

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// TestNotice: a notice is read back as it was written, and each way in which a quota Workload loses its quota ends it.
func TestNotice(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	ends := now.Add(2 * time.Minute)
	preemptor := workloadstatus.Preemptor{UID: "u1", JobUID: "job", Reason: kueue.InCohortReclamationReason, Name: `Job "urgent"`, Path: "/a", VictimPath: "/b"}
	for name, test := range map[string]struct {
		end          func(w *kueue.Workload) kueue.WorkloadStatus
		wantReason   string
		wantReserved bool
	}{
		"withdrawn": {func(w *kueue.Workload) kueue.WorkloadStatus { return workloadstatus.NoticeWithdrawn(w, now) }, "Withdrawn", true},
		"preempted": {func(w *kueue.Workload) kueue.WorkloadStatus {
			return workloadstatus.Evicted(w, workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPreemption, Preempted: kueue.InClusterQueueReason}, ends)
		}, kueue.WorkloadEvictedByPreemption, true},
		"stopped": {func(w *kueue.Workload) kueue.WorkloadStatus {
			return workloadstatus.Evicted(w, workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByClusterQueueStopped}, now)
		}, kueue.WorkloadEvictedByClusterQueueStopped, true},
		"suspended": {func(w *kueue.Workload) kueue.WorkloadStatus { return workloadstatus.Suspended(w, now) }, kueue.WorkloadOnHold, false},
	} {
		w := &kueue.Workload{}
		for _, write := range []func() kueue.WorkloadStatus{
			func() kueue.WorkloadStatus {
				return workloadstatus.Admitted(w, &kueue.Admission{ClusterQueue: "q"}, now.Add(-time.Hour))
			},
			func() kueue.WorkloadStatus { return workloadstatus.Noticed(w, ends, preemptor, now) },
		} {
			status := write()
			w = workloadstatus.Merge(w, &status)
		}
		want := &quotaworkload.Notice{Ends: ends, Preemptor: "u1", Reason: kueue.InCohortReclamationReason}
		if diff := gocmp.Diff(want, quotaworkload.NoticeOf(w)); diff != "" {
			t.Fatalf("notice: -want +got\n%s", diff)
		}
		const message = `The pods end at 2026-01-02T15:02:00Z, to accommodate a workload (UID: u1, JobUID: job) due to reclamation within the cohort; preemptor path: /a; preemptee path: /b; preemptor: Job "urgent"`
		if got := apimeta.FindStatusCondition(w.Status.Conditions, apis.PreemptionPendingCondition).Message; got != message {
			t.Errorf("message %q, want %q", got, message)
		}
		status := test.end(w)
		w = workloadstatus.Merge(w, &status)
		c := apimeta.FindStatusCondition(w.Status.Conditions, apis.PreemptionPendingCondition)
		if quotaworkload.NoticeOf(w) != nil || c == nil || c.Reason != test.wantReason || quotaworkload.HoldsQuota(w) != test.wantReserved {
			t.Errorf("%s: condition %+v, want False with reason %s, and quota held: %t", name, c, test.wantReason, test.wantReserved)
		}
	}
}
