package admission_test

import (
	"slices"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// TestLaterBorrowerYieldsToOwner: two queues of one Cohort wait to borrow together, each for more than it has, from another Cohort. A stage that asks
// there for its own quota takes it from the later one. Then the other one waits for no more than its Cohort has.
func TestLaterBorrowerYieldsToOwner(t *testing.T) {
	for range 10 {
		w := newWorld(t, admission.Config{})
		w.cohort("root", "", 0)
		w.cohort("c", "root", 2)
		for _, name := range []string{"p", "q"} {
			w.queue(name, "a100: gpu=2", inCohort("c"), preempting(kueue.PreemptionPolicyLowerPriority))
		}
		w.queue("owner", "a100: gpu=4", inCohort("root"), func(q *kueue.ClusterQueue) {
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
		})
		for _, name := range []string{"p", "q"} {
			w.important(name, "runs-"+name, "gpu=2", 1)
			w.important(name, "small-"+name, "gpu=2", 0)
		}
		w.lone("owner", "little", "gpu=2")
		w.decide()
		w.important("p", "first", "gpu=2", 1)
		w.important("q", "last", "gpu=2", 1)
		w.wantAdmitted()
		w.wantEvicted("evict ns/small-p InClusterQueue for ns/first", "evict ns/small-q InClusterQueue for ns/last")
		w.lone("owner", "own", "gpu=4")
		w.wantAdmitted()
		w.change("little", finish)
		w.leave("small-p")
		w.leave("small-q")
		got := w.decide()
		slices.Sort(got)
		if want := []string{"first", "own"}; !slices.Equal(got, want) {
			t.Fatalf("admitted %v, want %v", got, want)
		}
	}
}

// TestWhatWasKeptIsFreeAtOnce: under Reserve, a victim has quota reserved for its later stages that no pod uses. A stage that needs no more than
// that does not wait for the pods of the victim to terminate.
func TestWhatWasKeptIsFreeAtOnce(t *testing.T) {
	w := newWorld(t, admission.Config{StageAdmission: admission.Reserve})
	w.queue("q", "a100: gpu=6", preempting(kueue.PreemptionPolicyLowerPriority))
	w.submit("q", "staged", twoStages("gpu=2", "Ready", "gpu=2")...)
	w.wantAdmitted("staged-first")
	w.important("q", "urgent", "gpu=4", 1)
	w.wantAdmitted("urgent")
	w.wantEvicted("evict ns/staged-first InClusterQueue for ns/urgent")
}

// TestNoStageOfAnEvictedJobSetIsAdmitted: it would have to be evicted with the others. It is checked again when they have left.
func TestNoStageOfAnEvictedJobSetIsAdmitted(t *testing.T) {
	w := newWorld(t, admission.Config{StageAdmission: admission.Greedy})
	w.queue("q", "a100: gpu=4 cpu=4", preempting(kueue.PreemptionPolicyLowerPriority))
	w.submit("q", "staged", twoStages("gpu=4", "Ready", "cpu=1")...)
	w.wantAdmitted("staged-first")
	w.reach("staged", "first", stageplan.Ready)
	w.important("q", "urgent", "gpu=4", 1)
	w.wantAdmitted()
	w.wantEvicted("evict ns/staged-first InClusterQueue for ns/urgent")
	w.wantRefusal("staged-second", "JobSetStays", kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads, "its own JobSet")
	w.leave("staged-first")
	w.wantAdmitted("urgent", "staged-second")
}
