package admission_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// TestShorterLimitWherePeaksYield has equal stages of which the one with the shorter limit passes only if the reserved peak of another JobSet yields to it.
func TestShorterLimitWherePeaksYield(t *testing.T) {
	w := newWorld(t, admission.Config{Reservation: admission.Reservation{IsEnabled: true, After: time.Second}})
	w.queue("p", "a: gpu=2", inCohort("c"))
	w.queue("q", "a: gpu=6", inCohort("c"))
	w.submit("p", "js", job{name: "launch", requests: "gpu=1"}, job{name: "work", requests: "gpu=3", after: []string{"launch Ready"}})
	w.jobSets["js"].policy = admission.Reserve
	w.putPlan(w.jobSets["js"])
	w.wantAdmitted("js-launch")
	w.lone("q", "runs", "gpu=3", limitedTo(100))
	w.wantAdmitted("runs")
	w.lone("q", "due", "gpu=6")
	w.clock += 5
	w.wantAdmitted()
	w.lone("q", "long", "gpu=2", limitedTo(1000))
	w.lone("q", "short", "gpu=2", limitedTo(10))
	w.wantAdmitted("short")
}

// TestChecksOfOverdueStages has a due stage that waits for one which runs longer than its limit, so that its start moves with the time, and then for one in a
// ClusterQueue that does not lend all quota: no admission elsewhere causes a check of those that would delay it.
func TestChecksOfOverdueStages(t *testing.T) {
	const shapes = 50
	for name, lending := range map[string]bool{"lends all": false, "lends a part": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{Reservation: admission.Reservation{IsEnabled: true, After: time.Second}})
			w.queue("p", "a: gpu=0 cpu=100", inCohort("c"))
			w.queue("q", "a: gpu=150 cpu=100", inCohort("c"), func(q *kueue.ClusterQueue) {
				for i := range q.Spec.ResourceGroups[0].Flavors[0].Resources {
					if r := &q.Spec.ResourceGroups[0].Flavors[0].Resources[i]; lending && r.Name == gpu {
						r.LendingLimit = resource.NewQuantity(1, resource.DecimalSI)
					}
				}
			})
			w.lone("q", "runs", "gpu=100", limitedTo(10))
			w.wantAdmitted("runs")
			w.lone("q", "due", "gpu=150")
			w.clock += 5
			w.wantAdmitted()
			for i := range shapes {
				w.lone("q", fmt.Sprint("waits-", i), fmt.Sprintf("gpu=%d", 1+i), limitedTo(int32(100+i)))
			}
			w.wantAdmitted()
			w.clock += 60
			w.wantAdmitted()
			before := w.engine.Checked()
			for i := range 5 {
				w.clock++
				name := fmt.Sprint("small-", i)
				w.lone("p", name, "cpu=1")
				w.wantAdmitted(name)
				name = fmt.Sprint("first-", i)
				w.important("q", name, "cpu=1", 1)
				w.wantAdmitted(name)
			}
			if checks := w.engine.Checked() - before; checks > shapes {
				t.Errorf("%d checks for 10 stages", checks)
			}
		})
	}
}

func limitedTo(seconds int32) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = &seconds }
}
