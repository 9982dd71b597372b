package invariants

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// limits of the one flavor that these tests know: nominal, borrowingLimit, lendingLimit. Empty means that there is none.
type limits [3]string

func (q limits) groups() []kueue.ResourceGroup {
	limit := func(s string) *resource.Quantity {
		if s == "" {
			return nil
		}
		return new(resource.MustParse(s))
	}
	return []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{Name: "spot", Resources: []kueue.ResourceQuota{{
		Name: corev1.ResourceCPU, NominalQuota: resource.MustParse(q[0]), BorrowingLimit: limit(q[1]), LendingLimit: limit(q[2]),
	}}}}}}
}

func clusterQueue(name, cohort string, q limits) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1},
		Spec:       kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(cohort), ResourceGroups: q.groups()},
	}
}

func newAuditorOf(queues ...*kueue.ClusterQueue) *Auditor {
	a := newAuditor()
	for _, q := range queues {
		a.seeClusterQueue(q, moment{1, 1})
	}
	return a
}

// workload holds so much in a ClusterQueue.
func workload(name, queue, cpus string) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 2}}},
		Status: kueue.WorkloadStatus{
			Conditions: []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}},
			Admission: &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: []kueue.PodSetAssignment{{
				Name: "main", Count: new(int32(2)),
				Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "spot"},
				ResourceUsage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)},
			}}},
		},
	}
}

func TestReservationsWithinLimits(t *testing.T) {
	tests := map[string]struct {
		a, b       limits
		held, asks string // in b, then in a
		cohort     string
		want       bool
	}{
		"own quota":                          {a: limits{"4"}, b: limits{"4"}, held: "4", asks: "4", cohort: "all", want: true},
		"more than there is":                 {a: limits{"4"}, b: limits{"4"}, held: "4", asks: "5", cohort: "all"},
		"borrows what is idle":               {a: limits{"4"}, b: limits{"4"}, held: "1", asks: "7", cohort: "all", want: true},
		"borrows from the Cohort above":      {a: limits{"4"}, b: limits{"4"}, held: "1", asks: "9", cohort: "rich", want: true},
		"more than the Cohort above has":     {a: limits{"4"}, b: limits{"4"}, held: "1", asks: "10", cohort: "rich"},
		"borrows up to its limit":            {a: limits{"4", "2"}, b: limits{"4"}, held: "1", asks: "6", cohort: "all", want: true},
		"borrows more than its limit":        {a: limits{"4", "2"}, b: limits{"4"}, held: "1", asks: "7", cohort: "all"},
		"borrows what another lends":         {a: limits{"4"}, b: limits{"4", "", "1"}, held: "1", asks: "5", cohort: "all", want: true},
		"borrows what another keeps":         {a: limits{"4"}, b: limits{"4", "", "1"}, held: "1", asks: "6", cohort: "all"},
		"without a Cohort nothing is lent":   {a: limits{"4"}, b: limits{"4"}, held: "1", asks: "5", cohort: ""},
		"without a Cohort its own is enough": {a: limits{"4"}, b: limits{"4"}, held: "1", asks: "4", cohort: "", want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAuditorOf(clusterQueue("a", test.cohort, test.a), clusterQueue("b", test.cohort, test.b))
			a.seeCohort(&kueue.Cohort{
				ObjectMeta: metav1.ObjectMeta{Name: "rich", Generation: 1}, Spec: kueue.CohortSpec{ResourceGroups: limits{"2"}.groups()},
			}, moment{1, 1})
			a.seeWorkload(workload("old", "b", test.held), moment{2, 2}, watch.Added)
			a.seeWorkload(workload("new", "a", test.asks), moment{3, 3}, watch.Added)
			if found := a.breaches(); (len(found) == 0) != test.want {
				t.Errorf("breaches() = %q, want that it is allowed: %t", found, test.want)
			}
		})
	}
}

// lower makes the auditor observe that quota is lowered from 4 to 2 at version 5, and a reservation of 3 after that.
func lower(a *Auditor, acknowledged int64) *Auditor {
	lowered := clusterQueue("a", "", limits{"2"})
	lowered.Generation = 2
	lowered.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, ObservedGeneration: acknowledged}}
	a.seeClusterQueue(lowered, moment{5, 5})
	a.seeClusterQueue(lowered, moment{5, 5}) // as its status is written
	return a
}

func TestQuotaThatIsLowered(t *testing.T) {
	tests := map[string]struct {
		acknowledged int64
		ago          time.Duration
		want         bool
	}{
		"the manager does not know":             {acknowledged: 1, ago: time.Hour, want: true},
		"the manager has known for a moment":    {acknowledged: 2, want: true},
		"the manager has known for a long time": {acknowledged: 2, ago: time.Hour},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := lower(newAuditorOf(clusterQueue("a", "", limits{"4"})), test.acknowledged)
			for _, w := range a.worlds {
				if !w.ended.IsZero() {
					w.ended = w.ended.Add(-test.ago)
				}
			}
			a.seeWorkload(workload("new", "a", "3"), moment{6, 6}, watch.Added)
			if found := a.breaches(); (len(found) == 0) != test.want {
				t.Errorf("breaches() = %q, want that it is allowed: %t", found, test.want)
			}
		})
	}
}

func TestQuotaChangesHandsForAReason(t *testing.T) {
	condition := func(conditionType string, status metav1.ConditionStatus, reason string) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: conditionType, Status: status, Reason: reason})
		}
	}
	waits := func(w *kueue.Workload) { w.Status.Admission, w.Status.Conditions = nil, nil }
	tests := map[string]struct {
		changes []func(*kueue.Workload)
		want    int
	}{
		"held for long":          {changes: []func(*kueue.Workload){func(*kueue.Workload) {}}},
		"given back for nothing": {changes: []func(*kueue.Workload){waits}, want: 1},
		"evicted":                {changes: []func(*kueue.Workload){condition(kueue.WorkloadEvicted, metav1.ConditionTrue, ""), waits}},
		"suspended": {changes: []func(*kueue.Workload){func(w *kueue.Workload) {
			waits(w)
			condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, kueue.WorkloadOnHold)(w)
		}}},
		"finished":                {changes: []func(*kueue.Workload){condition(kueue.WorkloadFinished, metav1.ConditionTrue, "")}},
		"not finished after all":  {changes: []func(*kueue.Workload){condition(kueue.WorkloadFinished, metav1.ConditionTrue, ""), func(w *kueue.Workload) { w.Status.Conditions = w.Status.Conditions[:1] }}, want: 1},
		"admitted somewhere else": {changes: []func(*kueue.Workload){func(w *kueue.Workload) { w.Status.Admission.ClusterQueue = "b" }}, want: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAuditorOf(clusterQueue("a", "", limits{"4"}), clusterQueue("b", "", limits{"4"}))
			w := workload("w", "a", "4")
			a.seeWorkload(w, moment{2, 2}, watch.Added)
			for i, change := range test.changes {
				w = w.DeepCopy()
				change(w)
				at := uint64(3 + i)
				a.seeWorkload(w, moment{at, at}, watch.Modified)
			}
			if len(a.found) != test.want {
				t.Errorf("found %q, want %d", a.found, test.want)
			}
		})
	}
}

func TestReclaimedPodsAreNotCharged(t *testing.T) {
	a := newAuditorOf(clusterQueue("a", "", limits{"4"}))
	w := workload("old", "a", "4")
	a.seeWorkload(w, moment{2, 2}, watch.Added)
	w = w.DeepCopy()
	w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
	a.seeWorkload(w, moment{3, 3}, watch.Modified)
	a.seeWorkload(workload("new", "a", "2"), moment{4, 4}, watch.Added)
	if found := a.breaches(); len(found) > 0 {
		t.Errorf("breaches() = %q, want none: one of two pods has been reclaimed", found)
	}
	a.seeWorkload(workload("newer", "a", "1"), moment{5, 5}, watch.Added)
	if len(a.breaches()) == 0 {
		t.Error("no breach, want one: all is held")
	}
}

// applied makes the admission of a quota Workload one that was applied, as by Kueue's manager.
func applied(w *kueue.Workload) *kueue.Workload {
	w.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: apis.AdmissionFieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:admission":{}}}`),
	}}
	return w
}

func TestKueueDoesNotChargeInactiveWorkloads(t *testing.T) {
	for name, isOfKueue := range map[string]bool{"reserved by Kueue": true, "reserved by Tranche": false} {
		t.Run(name, func(t *testing.T) {
			a := newAuditorOf(clusterQueue("a", "", limits{"4"}))
			w := workload("old", "a", "4")
			if isOfKueue {
				w = applied(w)
			}
			a.seeWorkload(w, moment{2, 2}, watch.Added)
			w = w.DeepCopy()
			w.Spec.Active = new(false)
			a.seeWorkload(w, moment{3, 3}, watch.Modified)
			a.seeWorkload(workload("new", "a", "4"), moment{4, 4}, watch.Added)
			if found := a.breaches(); (len(found) == 0) != isOfKueue {
				t.Errorf("breaches() = %q, want that it is allowed: %t", found, isOfKueue)
			}
		})
	}
}

// newAuditorOfCohort knows two ClusterQueues of a Cohort with 4 CPUs each, as the manager has for a long time.
func newAuditorOfCohort() *Auditor {
	a := newAuditorOf(clusterQueue("a", "all", limits{"4"}), clusterQueue("b", "all", limits{"4"}))
	for _, w := range a.worlds[:len(a.worlds)-1] {
		w.ended = time.Now().Add(-time.Hour)
	}
	return a
}

func TestKueueMayNotKnowAllQueuesAsItStarts(t *testing.T) {
	const never = -time.Hour
	tests := map[string]struct {
		started    time.Duration // before the reservation
		held, asks string        // in b, of 4, then in a, of 4
		ours, want bool
	}{
		"a borrower may be unknown":        {held: "6", asks: "4", want: true},
		"a borrower is known later":        {started: kueueStartup, held: "6", asks: "4"},
		"a borrower is known without one":  {started: never, held: "6", asks: "4"},
		"no quota is unknown":              {held: "6", asks: "5"},
		"one that does not borrow changes": {held: "4", asks: "5"},
		"Tranche knows all":                {held: "6", asks: "4", ours: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAuditorOfCohort()
			a.KueueStarts()
			a.seeWorkload(workload("old", "b", test.held), moment{2, 2}, watch.Added)
			w := workload("new", "a", test.asks)
			if !test.ours {
				w = applied(w)
			}
			a.seeWorkload(w, moment{3, 3}, watch.Added)
			a.kueueStarts[0] = a.kueueStarts[0].Add(-test.started)
			if found := a.breaches(); (len(found) == 0) != test.want {
				t.Errorf("breaches() = %q, want that it is allowed: %t", found, test.want)
			}
		})
	}
}

func TestWhatIsChargedLaterIsNotOfKueue(t *testing.T) {
	a := newAuditorOfCohort()
	a.KueueStarts()
	w := applied(workload("new", "a", "4"))
	w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
	a.seeWorkload(w, moment{2, 2}, watch.Added)
	a.seeWorkload(workload("old", "b", "6"), moment{3, 3}, watch.Added)
	w = w.DeepCopy()
	w.Status.ReclaimablePods = nil
	a.seeWorkload(w, moment{4, 4}, watch.Modified)
	found := a.breaches()
	if len(found) != 1 {
		t.Fatalf("breaches() = %q, want one", found)
	}
	for _, want := range []string{"/new holds 4000 in a since 2", "/old holds 6000 in b since 3", "QuotaReserved=True"} {
		if !strings.Contains(found[0], want) {
			t.Errorf("breaches() = %q, want that it has %q", found, want)
		}
	}
}
