package admission_test

import (
	"maps"
	"slices"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// TestHandOver lets a stage finish whose JobSet has another one, while another JobSet waits for the same quota. The next stage opens first, and
// the engine decides before it observes that the stage has finished.
func TestHandOver(t *testing.T) {
	important := func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(1)) }
	for name, tc := range map[string]struct {
		stranger func(*world)
		quota    string
		want     string
	}{
		"the stranger has waited for longer": {
			stranger: func(w *world) { w.lone("q", "stranger", "gpu=4") }, quota: "4", want: "a-second",
		},
		"the stranger is a JobSet that has not begun": {
			stranger: func(w *world) { w.submit("q", "b", twoStages("gpu=4", "Ready", "cpu=1")...) }, quota: "4", want: "a-second",
		},
		"the stranger is in another queue of the cohort, and neither borrows less": {
			stranger: func(w *world) { w.lone("p", "stranger", "gpu=4") }, quota: "0", want: "a-second",
		},
		"the stranger is more important": {
			stranger: func(w *world) { w.lone("q", "stranger", "gpu=4", important) }, quota: "4", want: "stranger",
		},
		"the stranger does not have to borrow": {
			stranger: func(w *world) { w.lone("p", "stranger", "gpu=4") }, quota: "-", want: "stranger",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			quotas := map[string][3]string{"4": {"4", "0", "0"}, "0": {"0", "0", "4"}, "-": {"0", "4", "0"}}[tc.quota]
			w.queue("q", "a100: gpu="+quotas[0]+" cpu=9", inCohort("c"))
			w.queue("p", "a100: gpu="+quotas[1]+" cpu=9", inCohort("c"))
			w.queue("r", "a100: gpu="+quotas[2]+" cpu=9", inCohort("c"))
			tc.stranger(w)
			stranger := slices.SortedFunc(maps.Keys(w.workloads), compareNames)[0].Name
			w.change(stranger, func(wl *kueue.Workload) { wl.Spec.Active = new(false) })
			w.submit("q", "a", twoStages("gpu=4", "Complete", "gpu=4")...)
			w.wantAdmitted("a-first")
			w.change(stranger, func(wl *kueue.Workload) { wl.Spec.Active = nil })
			w.wantAdmitted()
			js := w.jobSets["a"]
			js.states["first"] = stageplan.Succeeded
			w.open(js)
			w.wantAdmitted()
			w.change("a-first", finish)
			w.wantAdmitted(tc.want)
		})
	}
}

// TestWhoHoldsQuotaComesFirst: a later stage of a JobSet that holds quota precedes a JobSet that came earlier and has not begun, under each
// strategy, and comes after one of higher priority.
func TestWhoHoldsQuotaComesFirst(t *testing.T) {
	for _, strategy := range []kueue.QueueingStrategy{kueue.BestEffortFIFO, kueue.StrictFIFO} {
		t.Run(string(strategy), func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("q", "a100: gpu=6", func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = strategy })
			w.lone("q", "running", "gpu=4")
			w.wantAdmitted("running")
			w.submit("q", "earlier", twoStages("gpu=4", "Complete", "gpu=1")...)
			if strategy == kueue.StrictFIFO {
				// It would block the other one, which has not begun yet.
				w.change("earlier-first", func(wl *kueue.Workload) { wl.Spec.Active = new(false) })
			}
			w.submit("q", "begun", twoStages("gpu=1", "Ready", "gpu=4")...)
			w.wantAdmitted("begun-first")
			w.change("earlier-first", func(wl *kueue.Workload) { wl.Spec.Active = nil })
			w.wantAdmitted()
			w.reach("begun", "first", stageplan.Ready)
			w.wantAdmitted()
			w.change("running", finish)
			w.wantAdmitted("begun-second")
		})
	}
}
