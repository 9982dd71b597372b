package admission_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

func preempting(within kueue.PreemptionPolicy) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) {
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: within, ReclaimWithinCohort: kueue.PreemptionPolicyNever}
	}
}

func (w *world) important(queue, name, requests string, priority int32) {
	w.lone(queue, name, requests, func(wl *kueue.Workload) { wl.Spec.Priority = &priority })
}

// leave terminates the pods of a stage that was evicted.
func (w *world) leave(name string) {
	w.t.Helper()
	w.change(name, func(wl *kueue.Workload) {
		wl.Status.Admission = nil
		setCondition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
		setCondition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse)
	})
}

func (w *world) wantEvicted(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.evictions, want) {
		w.t.Fatalf("evicted %q, want %q", w.evictions, want)
	}
}

// TestQuotaOfVictimsIsReserved: while the victims of one stage still terminate, no other stage takes the quota that they release.
func TestQuotaOfVictimsIsReserved(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4", preempting(kueue.PreemptionPolicyLowerPriority))
	w.important("q", "low1", "gpu=2", 1)
	w.important("q", "low2", "gpu=2", 1)
	w.wantAdmitted("low1", "low2")
	w.important("q", "high", "gpu=4", 5)
	w.wantAdmitted()
	w.wantEvicted("evict ns/low1 InClusterQueue for ns/high", "evict ns/low2 InClusterQueue for ns/high")
	w.wantRefusal("high", "RoomIsMade", kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads, "")
	w.leave("low1")
	w.important("q", "small", "gpu=1", 1)
	w.wantAdmitted()
	w.leave("low2")
	w.wantAdmitted("high")
	w.wantEvicted("evict ns/low1 InClusterQueue for ns/high", "evict ns/low2 InClusterQueue for ns/high")
}

// TestWhoComesFirstTakesAPreemptReservation: a stage that precedes the preemptor may use the quota that is reserved for that.
func TestWhoComesFirstTakesAPreemptReservation(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4", preempting(kueue.PreemptionPolicyLowerPriority))
	w.important("q", "low", "gpu=4", 1)
	w.wantAdmitted("low")
	w.important("q", "high", "gpu=4", 5)
	w.wantAdmitted()
	w.important("q", "higher", "gpu=4", 9)
	w.wantAdmitted()
	w.leave("low")
	w.wantAdmitted("higher")
	w.wantEvicted("evict ns/low InClusterQueue for ns/high")
	w.change("higher", finish)
	w.wantAdmitted("high")
}

// TestAPreemptReservationEndsWithItsStage: quota that was reserved for a stage that is deleted is free for others.
func TestAPreemptReservationEndsWithItsStage(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4", preempting(kueue.PreemptionPolicyLowerPriority))
	w.important("q", "low", "gpu=4", 1)
	w.wantAdmitted("low")
	w.important("q", "high", "gpu=4", 5)
	w.wantAdmitted()
	w.leave("low")
	w.remove("high")
	w.wantAdmitted("low")
}

// TestOnlyAsManyAsNeeded: only as many victims as needed, and only those that hold the missing quota.
func TestOnlyAsManyAsNeeded(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4 cpu=8", preempting(kueue.PreemptionPolicyLowerPriority))
	w.important("q", "cpus", "cpu=8", 0)
	w.important("q", "low", "gpu=2", 2)
	w.important("q", "lower", "gpu=2", 1)
	w.wantAdmitted("low", "lower", "cpus")
	w.important("q", "high", "gpu=1", 5)
	w.wantAdmitted()
	w.wantEvicted("evict ns/lower InClusterQueue for ns/high")
}
