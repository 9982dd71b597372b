package admission_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
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

// TestAdoptedWorkloadsAreNotPreempted: what ran before Tranche was installed is charged beyond quota, and no preemption evicts it, whatever the policy.
func TestAdoptedWorkloadsAreNotPreempted(t *testing.T) {
	for _, policy := range []kueue.PreemptionPolicy{
		kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority, kueue.PreemptionPolicyAny,
	} {
		for _, fair := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s fair=%t", policy, fair), func(t *testing.T) {
				w := newWorld(t, admission.Config{FairSharing: fair})
				preempts := func(q *kueue.ClusterQueue) {
					q.Spec.CohortName = "c"
					q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: policy}
				}
				w.queue("mine", "a100: gpu=4", preempts)
				w.queue("other", "a100: gpu=4", preempts)
				w.adopt("other", "first", 7)
				w.adopt("other", "second", 3) // beyond all quota
				w.important("mine", "high", "gpu=2", 5)
				w.important("other", "higher", "gpu=2", 9)
				w.wantAdmitted()
				w.wantEvicted()
				w.change("first", func(wl *kueue.Workload) { setCondition(wl, kueue.WorkloadFinished, metav1.ConditionTrue) })
				w.wantAdmitted("high", "higher")
			})
		}
	}
}

// adopt creates a quota Workload for what runs already.
func (w *world) adopt(queue, name string, gpus int64) {
	w.t.Helper()
	w.lone(queue, name, fmt.Sprintf("gpu=%d", gpus), func(wl *kueue.Workload) {
		metav1.SetMetaDataAnnotation(&wl.ObjectMeta, apis.AdoptedAnnotation, "true")
		wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: []kueue.PodSetAssignment{{
			Name: wl.Spec.PodSets[0].Name, Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "a100"},
			ResourceUsage: corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)},
		}}}
		setCondition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionTrue)
		setCondition(wl, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	})
}

// TestOthersArePreemptedInsteadOfAdopted: an adopted quota Workload that would be preempted first does not protect the others.
func TestOthersArePreemptedInsteadOfAdopted(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4", preempting(kueue.PreemptionPolicyLowerPriority))
	w.important("q", "victim", "gpu=2", 1)
	w.wantAdmitted("victim")
	w.adopt("q", "adopted", 2)
	w.important("q", "high", "gpu=2", 5)
	w.wantAdmitted()
	w.wantEvicted("evict ns/victim InClusterQueue for ns/high")
}
