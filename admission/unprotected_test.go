package admission_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// A ClusterQueue without its finalizer can be deleted at any moment: nothing is admitted to it, and what it holds still counts.
func TestUnprotectedClusterQueue(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	protect := func(isProtected bool) {
		w.engine.Apply(admission.ClusterQueueObserved{ClusterQueue: w.queues["q"], IsUnprotected: !isProtected})
	}
	w.lone("q", "first", "gpu=3")
	w.wantAdmitted("first")

	protect(false)
	w.lone("q", "second", "gpu=1")
	w.wantAdmitted()
	w.wantRefusal("second", "ClusterQueueIsActive", "Suspended", "until it has the finalizer kueue.x-k8s.io/resource-in-use")
	explained := w.engine.Explain(types.NamespacedName{Namespace: "ns", Name: "second"})
	if len(explained) == 0 || !strings.Contains(explained[0].Message, "until it has the finalizer kueue.x-k8s.io/resource-in-use") {
		t.Errorf("explained by %v", explained)
	}
	if view, _ := w.engine.ClusterQueue("q"); view.Reserving != 1 || view.FlavorsReservation[0].Resources[0].Total.Value() != 3 {
		t.Errorf("without its finalizer the ClusterQueue has %d reserving, %v", view.Reserving, view.FlavorsReservation)
	}

	protect(true)
	w.wantAdmitted("second")
	w.lone("q", "third", "gpu=1")
	for _, d := range w.engine.Decide(w.now()) {
		if admit, ok := d.(admission.Admit); ok {
			t.Errorf("%v was admitted beyond the quota", admit.Stage)
		}
	}
}

// What is reserved for a preemptor is free for others while the ClusterQueue of the preemptor lacks its finalizer, which the API server may refuse
// for long.
func TestUnprotectedPreemptorGivesWay(t *testing.T) {
	w := newWorld(t, admission.Config{})
	inCohort := func(q *kueue.ClusterQueue) {
		q.Spec.CohortName = "team"
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	}
	w.queue("q", "a100: gpu=4", inCohort)
	w.queue("r", "a100: gpu=0", inCohort)
	w.lone("q", "low", "gpu=4")
	w.wantAdmitted("low")
	w.lone("q", "high", "gpu=4", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(10)) })
	w.lone("r", "other", "gpu=2")
	w.wantAdmitted()
	w.engine.Apply(admission.ClusterQueueObserved{ClusterQueue: w.queues["q"], IsUnprotected: true})
	w.wantAdmitted()
	w.remove("low")
	w.wantAdmitted("other")
}
