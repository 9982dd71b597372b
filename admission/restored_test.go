package admission_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// evictedFor lets a quota Workload leave that was preempted for another one. The status of the condition that names that one is given.
func evictedFor(uid string, status metav1.ConditionStatus) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		for _, c := range []metav1.Condition{
			{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedByPreemption},
			{Type: kueue.WorkloadPreempted, Status: status, Reason: kueue.InClusterQueueReason, Message: quotaworkload.PreemptedFor + uid + ", JobUID: UNKNOWN)"},
		} {
			setCondition(wl, c.Type, c.Status)
			wl.Status.Conditions[len(wl.Status.Conditions)-1] = c
		}
	}
}

func withPriority(priority int32) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Spec.Priority = &priority }
}

func preemptingLower(q *kueue.ClusterQueue) {
	q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
}

// TestRestoredPreemptorOfKueue: what Kueue has preempted for a stage in its own queue is not reserved by a new Engine.
func TestRestoredPreemptorOfKueue(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("k", "x: gpu=4", preemptingLower)
	b.lone("k", "victim", "gpu=4")
	b.reserve("victim", assignedOf("k", "4"))
	b.lone("k", "preemptor", "gpu=4", withPriority(1))
	b.change("victim", evictedFor("wl-preemptor", metav1.ConditionTrue))
	b.restart()
	b.observeCheck()
	b.queue("t", "x: gpu=4", asking)
	b.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"t"}})
	for _, d := range b.engine.Decide(b.now()) {
		if r, isRefusal := d.(admission.Refuse); isRefusal && r.Stage == keyOf("preemptor") {
			t.Errorf("decided about a stage of Kueue: %v", r)
		}
	}
}

// TestRestoredPreemptorIsNotDueFirst: a preemptor that has waited for long does not take the place of the stage that is due before it.
func TestRestoredPreemptorIsNotDueFirst(t *testing.T) {
	w := newWorld(t, admission.Config{Reservation: admission.Reservation{IsEnabled: true, After: time.Minute}})
	w.queue("q", "a: gpu=10 cpu=2", preemptingLower)
	w.submit("q", "c", twoStages("gpu=1", "Complete", "gpu=3")...)
	w.lone("q", "runs", "gpu=3", withPriority(10))
	w.lone("q", "victim", "cpu=2", withPriority(-1))
	w.decide()
	w.lone("q", "due", "gpu=8")
	w.decide()
	w.untilDue()
	w.decide()
	w.lone("q", "preemptor", "cpu=2")
	w.decide()
	w.change("victim", evictedFor("wl-preemptor", metav1.ConditionTrue))
	w.untilDue()
	w.decide()
	w.jobSets["c"].submitted = w.now() // now the last of all
	w.putPlan(w.jobSets["c"])
	w.reach("c", "first", stageplan.Succeeded)
	w.restart()
	if admitted := w.decide(); len(admitted) > 0 {
		t.Errorf("admitted %v", admitted)
	}
	w.wantRefusal("c-second", "DelaysNone", waitingForQuota, `would delay quota Workload "due"`)
}

// TestPreemptorOfAnEarlierEviction: the condition of an earlier preemption says nothing about an eviction that is none.
func TestPreemptorOfAnEarlierEviction(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("idle", "x: gpu=4", inCohort("lab"))
	w.queue("a", "x: gpu=0", inCohort("lab"), preemptingLower)
	w.queue("b", "x: gpu=0", inCohort("lab"), preemptingLower)
	w.lone("a", "victim", "gpu=4", withPriority(0))
	w.decide()
	w.lone("b", "first", "gpu=4", withPriority(0))
	w.lone("a", "earlier", "gpu=4", withPriority(0))
	w.decide()
	w.change("victim", evictedFor("wl-earlier", metav1.ConditionFalse))
	w.restart()
	w.decide()
	w.remove("victim")
	if admitted := w.decide(); !slices.Equal(admitted, []string{"first"}) {
		t.Errorf("admitted %v, want first", admitted)
	}
}
