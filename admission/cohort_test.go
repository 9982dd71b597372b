package admission_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

func inCohort(name kueue.CohortReference) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) { q.Spec.CohortName = name }
}

// withLimits sets limits of every flavor and resource; a negative one means no limit.
func withLimits(borrowing, lending int64) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) {
		r := &q.Spec.ResourceGroups[0].Flavors[0].Resources[0]
		if borrowing >= 0 {
			r.BorrowingLimit = resource.NewQuantity(borrowing, resource.DecimalSI)
		}
		if lending >= 0 {
			r.LendingLimit = resource.NewQuantity(lending, resource.DecimalSI)
		}
	}
}

func (w *world) cohort(name, parent string, gpus int64) {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("cohort-" + name)}}
	c.Spec.ParentName = kueue.CohortReference(parent)
	if gpus > 0 {
		c.Spec.ResourceGroups = []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{gpu},
			Flavors: []kueue.FlavorQuotas{{Name: "a100", Resources: []kueue.ResourceQuota{{
				Name: gpu, NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI),
			}}}},
		}}
	}
	w.cohorts[name] = c
	w.engine.Apply(admission.CohortObserved{Cohort: c})
}

func TestBorrowing(t *testing.T) {
	for name, tc := range map[string]struct {
		lend, borrow func(*kueue.ClusterQueue)
		requests     []string
		want         []string
		wantRefusal  string
	}{
		"all that is free":    {requests: []string{"gpu=8"}, want: []string{"w0"}},
		"not more":            {requests: []string{"gpu=6", "gpu=3"}, want: []string{"w0"}, wantRefusal: "3 nvidia.com/gpu of flavor a100: 2 of 8 free"},
		"never more":          {requests: []string{"gpu=9"}, want: []string{}, wantRefusal: "but the quota is 8"},
		"up to borrowing":     {borrow: withLimits(2, -1), requests: []string{"gpu=6"}, want: []string{"w0"}},
		"not above borrowing": {borrow: withLimits(2, -1), requests: []string{"gpu=7"}, want: []string{}, wantRefusal: "but the quota is 6"},
		"up to lending":       {lend: withLimits(-1, 1), requests: []string{"gpu=5"}, want: []string{"w0"}},
		"not above lending":   {lend: withLimits(-1, 1), requests: []string{"gpu=5", "gpu=1"}, want: []string{"w0"}, wantRefusal: "0 of 5 free"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			none := func(*kueue.ClusterQueue) {}
			if tc.lend == nil {
				tc.lend = none
			}
			if tc.borrow == nil {
				tc.borrow = none
			}
			w.queue("lends", "a100: gpu=4", inCohort("c"), tc.lend)
			w.queue("borrows", "a100: gpu=4", inCohort("c"), tc.borrow)
			last := ""
			for i, r := range tc.requests {
				last = "w" + string(rune('0'+i))
				w.lone("borrows", last, r)
			}
			w.wantAdmitted(tc.want...)
			if tc.wantRefusal != "" {
				r := w.refusals[keyOf(last)]
				w.wantRefusal(last, r.Check, r.Reason, tc.wantRefusal)
			}
		})
	}
}

// TestWhatOneGivesBackAnotherBorrows also shows that the status reports what is borrowed.
func TestWhatOneGivesBackAnotherBorrows(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("p", "a100: gpu=4", inCohort("c"))
	w.queue("q", "a100: gpu=4", inCohort("c"))
	w.lone("p", "own", "gpu=4")
	w.lone("q", "big", "gpu=7")
	w.wantAdmitted("own")
	w.change("own", finish)
	w.wantAdmitted("big")
	view, _ := w.engine.ClusterQueue("q")
	if got := view.FlavorsReservation[0].Resources[0]; got.Total.Value() != 7 || got.Borrowed.Value() != 3 {
		t.Errorf("%s reserved, %s borrowed", got.Total.String(), got.Borrowed.String())
	}
}

// TestWhoDoesNotBorrowComesFirst: the older stage would have to borrow nominal quota of the younger one's ClusterQueue.
func TestWhoDoesNotBorrowComesFirst(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("p", "a100: gpu=4", inCohort("c"))
	w.queue("q", "a100: gpu=4", inCohort("c"))
	w.lone("p", "older", "gpu=5")
	w.lone("q", "younger", "gpu=4")
	w.wantAdmitted("younger")
}

func TestCohortsOfCohorts(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.cohort("root", "", 2)
	w.cohort("left", "root", 0)
	w.cohort("right", "root", 0)
	w.queue("p", "a100: gpu=4", inCohort("left"))
	w.queue("q", "a100: gpu=4", inCohort("right"))
	w.lone("p", "all", "gpu=10")
	w.wantAdmitted("all")
	w.remove("all")
	w.cohort("left", "", 0)
	w.lone("p", "more", "gpu=5")
	w.wantAdmitted()
	w.lone("q", "six", "gpu=6")
	w.wantAdmitted("six")
}

func TestCohortsThatFormACycle(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.cohort("a", "b", 0)
	w.cohort("b", "a", 0)
	w.queue("q", "a100: gpu=4", inCohort("a"))
	w.queue("p", "a100: gpu=4", inCohort("fine"))
	w.lone("q", "one", "gpu=1")
	w.lone("p", "two", "gpu=1")
	w.wantAdmitted("two")
	w.wantRefusal("one", "ClusterQueueIsActive", "Misconfigured", "the parents of Cohorts form a cycle: a, b, a")
	w.cohort("b", "", 0)
	w.wantAdmitted("one")
}

// TestQuotaCutBelowUsage: no stage is evicted, and none is admitted until less is used.
func TestQuotaCutBelowUsage(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("p", "a100: gpu=4", inCohort("c"))
	w.queue("q", "a100: gpu=4", inCohort("c"))
	w.lone("p", "big", "gpu=6")
	w.wantAdmitted("big")
	w.queue("q", "a100: gpu=1", inCohort("c"))
	w.lone("q", "one", "gpu=1")
	w.wantAdmitted()
	if !w.engine.Charged(keyOf("big"), "wl-big") {
		t.Error("big is no longer charged")
	}
	w.change("big", finish)
	w.wantAdmitted("one")
}

// TestCohortsWithoutClusterQueuesChange: the status of a Cohort needs the engine's view also if no ClusterQueue is below it, and may have been
// asked for before the engine observed the Cohort.
func TestCohortsWithoutClusterQueuesChange(t *testing.T) {
	w := newWorld(t, admission.Config{FairSharing: true})
	want := func(step string, names ...string) {
		t.Helper()
		if diff := cmp.Diff(names, w.engine.ChangedCohorts()); diff != "" {
			t.Errorf("%s (-want +got): %s", step, diff)
		}
	}
	w.cohort("alone", "", 8)
	want("observed", "alone")
	if view, known := w.engine.Cohort("alone"); !known || view.FairSharing == nil || view.FairSharing.WeightedShare != 0 {
		t.Errorf("view = %v, %v, want a share of 0", view, known)
	}
	want("nothing has changed")
	w.cohort("alone", "above", 8)
	want("moved below another", "alone")
	w.engine.Apply(admission.CohortGone{Name: "alone"})
	want("gone")
	w.cohort("brief", "", 8)
	w.engine.Apply(admission.CohortGone{Name: "brief"})
	w.engine.Decide(w.now())
	want("forgotten before ChangedCohorts was called")
}
