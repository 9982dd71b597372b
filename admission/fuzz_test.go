package admission_test

import (
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// FuzzEngine feeds objects that no API server has validated: two ClusterQueues, a Cohort and a quota Workload. The Engine must not panic, its
// totals must be right, and no stage may be refused without a reason.
func FuzzEngine(f *testing.F) {
	queue := `{"cohortName":"c","namespaceSelector":{},"resourceGroups":[{"coveredResources":["cpu","pods"],"flavors":[{"name":"f","resources":[` +
		`{"name":"cpu","nominalQuota":"3","borrowingLimit":"8E","lendingLimit":"-1"},{"name":"pods","nominalQuota":"9"}]}]}]}`
	cohort := `{"parentName":"c","resourceGroups":[{"coveredResources":["cpu"],"flavors":[{"name":"f","resources":[{"name":"cpu","nominalQuota":"1e30"}]}]}]}`
	workload := `{"spec":{"podSets":[{"name":"p","count":4,"minCount":-1,"template":{"spec":{"nodeSelector":{"a":"b"},"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}}]}}`
	f.Add([]byte(queue), []byte(queue), []byte(cohort), []byte(workload))
	f.Add([]byte(queue), []byte(`{"cohortName":"d","resourceGroups":[{"coveredResources":["cpu","cpu"]},{"flavors":[{"name":"f"}]}],"queueingStrategy":"StrictFIFO"}`),
		[]byte(`{"parentName":"d"}`), []byte(`{"spec":{"podSets":[{"count":-3}]},"status":{"reclaimablePods":[{"count":-9}]}}`))
	f.Add([]byte(queue), []byte(`{"stopPolicy":"HoldAndDrain","namespaceSelector":{"matchExpressions":[{"operator":"Beside"}]}}`), []byte(`{}`),
		[]byte(`{"spec":{"active":false},"status":{"conditions":[{"type":"QuotaReserved","status":"True"}],"admission":{"clusterQueue":"q1","podSetAssignments":`+
			`[{"name":"p","flavors":{"cpu":"f"},"resourceUsage":{"cpu":"-1","memory":"8E"}},{"name":"p","count":0,"flavors":{"cpu":"f"},"resourceUsage":{"cpu":"8E"}}]}}}`))
	for _, metadata := range []string{
		`{"labels":{"tranche.dev/admit-together":"x"},"annotations":{"tranche.dev/admit-together-count":"4"}}`,
		`{"labels":{"tranche.dev/admit-together":"x"},"annotations":{"tranche.dev/admit-together-count":"-9223372036854775809"}}`,
		`{"labels":{"tranche.dev/admit-together":"x","tranche.dev/plan-uid":"y","tranche.dev/stage-index":"-1"}}`,
	} {
		f.Add([]byte(queue), []byte(queue), []byte(`{}`), []byte(`{"metadata":`+metadata+`,`+workload[1:]))
	}
	f.Fuzz(func(t *testing.T, one, other, cohort, workload []byte) {
		var queues [2]kueue.ClusterQueue
		var c kueue.Cohort
		var wl kueue.Workload
		for i, data := range [][]byte{one, other, cohort, workload} {
			if into := []any{&queues[0].Spec, &queues[1].Spec, &c.Spec, &wl}[i]; json.Unmarshal(data, into) != nil {
				return
			}
		}
		w := newWorld(t, admission.Config{})
		w.engine.Apply(admission.FlavorObserved{Flavor: newFlavor("f")})
		c.Name = "c"
		w.engine.Apply(admission.CohortObserved{Cohort: &c})
		for i := range queues {
			queues[i].Name = fmt.Sprintf("q%d", i)
			w.engine.Apply(admission.ClusterQueueObserved{ClusterQueue: &queues[i]})
			w.engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: queues[i].Name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(queues[i].Name)},
			}})
		}
		w.live(t, &wl)
	})
}

// live lets copies of a quota Workload be admitted and finish.
func (w *world) live(t *testing.T, wl *kueue.Workload) {
	t.Helper()
	for i := range 4 {
		o := wl.DeepCopy()
		o.Namespace, o.Name, o.UID = "ns", fmt.Sprintf("w%d", i), types.UID(fmt.Sprintf("w%d", i))
		o.Spec.QueueName = kueue.LocalQueueName(fmt.Sprintf("q%d", i%2))
		w.put(o)
	}
	for range 6 {
		for _, name := range w.decide() {
			w.checkBooks(t)
			w.change(name, finish)
		}
		w.checkBooks(t)
	}
	for key, refusal := range w.refusals {
		if refusal.Check == "" || refusal.Reason == "" || refusal.Message == "" {
			t.Fatalf("%s is refused with %+v", key, refusal)
		}
	}
}

func (w *world) checkBooks(t *testing.T) {
	t.Helper()
	if v := w.engine.Violations(); len(v) > 0 {
		t.Fatalf("%v", v)
	}
	for _, name := range []string{"q0", "q1"} {
		view, _ := w.engine.ClusterQueue(name)
		for _, f := range append(view.FlavorsReservation, view.FlavorsUsage...) {
			for _, r := range f.Resources {
				if r.Total.Sign() < 0 || r.Borrowed.Sign() < 0 || r.Borrowed.Cmp(r.Total) > 0 {
					t.Fatalf("%s uses %s of %s, of which %s is borrowed", name, r.Total.String(), r.Name, r.Borrowed.String())
				}
			}
		}
	}
}
