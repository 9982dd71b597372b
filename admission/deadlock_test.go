package admission_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

// TestNoDeadlockInAnotherQueue has two JobSets that hold quota of one ClusterQueue and whose LocalQueue is moved to another one. There they do
// not wait for each other, and the refusals match what Explain returns.
func TestNoDeadlockInAnotherQueue(t *testing.T) {
	w := newWorld(t, admission.Config{StageAdmission: admission.Greedy})
	w.queue("q", "a100: gpu=4")
	w.queue("other", "a100: gpu=3")
	w.lone("other", "busy", "gpu=2")
	for _, name := range []string{"a", "b"} {
		w.submit("q", name, job{name: "ps", requests: "gpu=2"}, job{name: "train", requests: "gpu=2", after: []string{"ps Ready"}})
	}
	w.decide()
	w.engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q", UID: "lq-q"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "other"},
	}})
	for _, name := range []string{"a", "b"} {
		w.reach(name, "ps", stageplan.Ready)
		w.decide()
	}
	for _, name := range []string{"a-train", "b-train"} {
		key := keyOf(name)
		w.wantRefusal(name, "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "ClusterQueue other")
		if explained := w.engine.Explain(key); len(explained) != 1 || explained[0].Reason != w.refusals[key].Reason {
			t.Errorf("%s was told %v, and is refused by %v", name, w.refusals[key], explained)
		}
	}
}

// TestExplainDeadlockAfterDeletion explains a stage that waited in a deadlock with a JobSet that was deleted since the last scheduling cycle.
func TestExplainDeadlockAfterDeletion(t *testing.T) {
	w := newWorld(t, admission.Config{StageAdmission: admission.Greedy})
	w.queue("q", "a100: gpu=6")
	for _, name := range []string{"a", "b", "c"} {
		w.submit("q", name, job{name: "ps", requests: "gpu=2"}, job{name: "train", requests: "gpu=4", after: []string{"ps Ready"}})
	}
	w.decide()
	for _, name := range []string{"a", "b", "c"} {
		w.reach(name, "ps", stageplan.Ready)
	}
	w.decide()
	w.wantRefusal("a-train", "QuotaFits", apis.DeadlockedReason, `JobSet "b" holds 2`)
	w.engine.Apply(admission.PlanGone{UID: "js-b"})
	w.remove("b-ps")
	w.remove("b-train")
	explained := w.engine.Explain(keyOf("a-train"))
	if len(explained) > 0 && strings.Contains(explained[0].Message, `"b"`) {
		t.Errorf("the explanation names a deleted JobSet: %v", explained)
	}
}

// TestDeadlockAfterAnotherStageIsGone has a JobSet of which one waiting stage fits when another JobSet ends, and one never fits beside what the JobSet holds.
// When the quota Workload of the first is deleted, the other one is told in the next call of Decide that it waits in a deadlock.
func TestDeadlockAfterAnotherStageIsGone(t *testing.T) {
	w := newWorld(t, admission.Config{StageAdmission: admission.Greedy})
	w.queue("q", "a100: gpu=6")
	w.lone("q", "busy", "gpu=5")
	w.decide()
	w.submit("q", "a", job{name: "ps", requests: "gpu=1"}, job{name: "store"}, job{name: "small", requests: "gpu=2", after: []string{"ps Ready"}},
		job{name: "large", requests: "gpu=6", after: []string{"store Ready"}})
	w.decide()
	w.reach("a", "ps", stageplan.Ready)
	w.reach("a", "store", stageplan.Ready)
	w.decide()
	w.wantRefusal("a-large", "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "needs 6")
	w.remove("a-small")
	w.decide()
	w.wantRefusal("a-large", "QuotaFits", apis.DeadlockedReason, "needs 6")
}
