package quotaaudit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/quotaaudit"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

// newWorkload returns a quota Workload that holds the given number of GPUs of flavor a100 for each of 4 pods, in the ClusterQueue of its
// LocalQueue.
func newWorkload(name, queue string, version int, each int64, changes ...func(*kueue.Workload)) *kueue.Workload {
	requests := corev1.ResourceList{gpu: *resource.NewQuantity(each, resource.DecimalSI)}
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(version), Generation: 1},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName("lq-" + queue), PodSets: []kueue.PodSet{{
			Name: "main", Count: 4,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}}},
		}}},
		Status: kueue.WorkloadStatus{
			Conditions: []metav1.Condition{isTrue(kueue.WorkloadQuotaReserved)},
			Admission: &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: []kueue.PodSetAssignment{{
				Name: "main", Count: new(int32(4)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "a100"},
				ResourceUsage: corev1.ResourceList{gpu: *resource.NewQuantity(4*each, resource.DecimalSI)},
			}}},
		},
	}
	for _, change := range changes {
		change(w)
	}
	return w
}

func isTrue(conditionType string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue}
}

func finished(w *kueue.Workload) {
	w.Status.Conditions = append(w.Status.Conditions, isTrue(kueue.WorkloadFinished))
}

func waiting(w *kueue.Workload) { w.Status = kueue.WorkloadStatus{} }

func reclaimed(pods int32) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: pods}}
	}
}

func asks(name corev1.ResourceName, quantity string) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		a := &w.Status.Admission.PodSetAssignments[0]
		a.Flavors[name], a.ResourceUsage[name] = "a100", resource.MustParse(quantity)
	}
}

// newEngine returns an engine with ClusterQueues "q" and "r" of 1000 GPUs each.
func newEngine(t interface{ Fatal(...any) }, workloads ...*kueue.Workload) *admission.Engine {
	e, err := admission.New(admission.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e.Apply(admission.NamespaceObserved{Name: "ns"})
	e.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "a100"}}})
	for _, name := range []string{"q", "r"} {
		e.Apply(admission.ClusterQueueObserved{ClusterQueue: &kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{gpu},
				Flavors: []kueue.FlavorQuotas{{Name: "a100", Resources: []kueue.ResourceQuota{{
					Name: gpu, NominalQuota: resource.MustParse("1000"),
				}}}},
			}}},
		}})
		e.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lq-" + name},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
		}})
	}
	for _, w := range workloads {
		e.Apply(admission.WorkloadObserved{Workload: w})
	}
	return e
}

func holdings(workloads []*kueue.Workload) []quotaaudit.Holding {
	var all []quotaaudit.Holding
	for _, w := range workloads {
		all = append(all, quotaaudit.HoldingOf(w))
	}
	return all
}

// audit returns the differences, a line each.
func audit(e *admission.Engine, objects []*kueue.Workload) []string {
	chargeSnapshot := e.ChargeSnapshot()
	var lines []string
	for _, d := range quotaaudit.Differences(holdings(objects), &chargeSnapshot) {
		for _, l := range d.Lines() {
			lines = append(lines, fmt.Sprintf("%s in %s/%s: booked %d, counted %d", d.Key.Name, l.ClusterQueue, l.LocalQueue.Name, l.Booked, l.Counted))
		}
	}
	return lines
}

// repair sends the differences to the engine as the Auditor does: the same object in the same version, or its deletion.
func repair(e *admission.Engine, objects []*kueue.Workload) {
	chargeSnapshot := e.ChargeSnapshot()
	for _, d := range quotaaudit.Differences(holdings(objects), &chargeSnapshot) {
		i := slices.IndexFunc(objects, func(w *kueue.Workload) bool { return w.Namespace == d.Key.Namespace && w.Name == d.Key.Name })
		if i < 0 {
			e.Apply(admission.WorkloadGone{Key: d.Key, UID: d.Booked.UID})
		} else {
			e.Apply(admission.TombstoneCleared{UID: d.Object.UID})
			e.Apply(admission.WorkloadObserved{Workload: objects[i]})
		}
	}
}

func TestDifferences(t *testing.T) {
	list := func(all ...*kueue.Workload) []*kueue.Workload { return all }
	for name, c := range map[string]struct {
		engine, objects []*kueue.Workload
		want            []string
	}{
		"nothing differs": {
			engine:  list(newWorkload("a", "q", 1, 2), newWorkload("b", "q", 1, 2, waiting), newWorkload("c", "q", 1, 2, finished)),
			objects: list(newWorkload("a", "q", 1, 2), newWorkload("b", "q", 1, 2, waiting), newWorkload("c", "q", 1, 2, finished)),
		},
		"an object that the engine has never observed": {
			objects: list(newWorkload("a", "q", 1, 2)), want: []string{"a in q/lq-q: booked 0, counted 8"},
		},
		"a reservation that it has missed": {
			engine: list(newWorkload("a", "q", 1, 2, waiting)), objects: list(newWorkload("a", "q", 2, 2)), want: []string{"a in q/lq-q: booked 0, counted 8"},
		},
		"an object that is gone": {
			engine: list(newWorkload("a", "q", 1, 2)), want: []string{"a in q/lq-q: booked 8, counted 0"},
		},
		"an end that it has missed": {
			engine: list(newWorkload("a", "q", 1, 2)), objects: list(newWorkload("a", "q", 2, 2, finished)), want: []string{"a in q/lq-q: booked 8, counted 0"},
		},
		"pods that were reclaimed unnoticed": {
			engine: list(newWorkload("a", "q", 1, 2)), objects: list(newWorkload("a", "q", 2, 2, reclaimed(3))), want: []string{"a in q/lq-q: booked 8, counted 2"},
		},
		"a reservation that it has misread": {
			engine: list(newWorkload("a", "q", 1, 2, waiting)), objects: list(newWorkload("a", "q", 1, 2)), want: []string{"a in q/lq-q: booked 0, counted 8"},
		},
		"an amount that it has misread": {
			engine: list(newWorkload("a", "q", 1, 2)), objects: list(newWorkload("a", "q", 1, 3)), want: []string{"a in q/lq-q: booked 8, counted 12"},
		},
		"a charge on another queue": {
			engine: list(newWorkload("a", "q", 1, 2)), objects: list(newWorkload("a", "r", 2, 2)),
			want: []string{"a in q/lq-q: booked 8, counted 0", "a in r/lq-r: booked 0, counted 8"},
		},
		"a charge on another LocalQueue only": {
			engine:  list(newWorkload("a", "q", 1, 2)),
			objects: list(newWorkload("a", "q", 2, 2, func(w *kueue.Workload) { w.Spec.QueueName = "lq-r" })),
			want:    []string{"a in q/lq-q: booked 8, counted 0", "a in q/lq-r: booked 0, counted 8"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, c.engine...)
			if diff := cmp.Diff(c.want, audit(e, c.objects), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
			repair(e, c.objects)
			if lines := audit(e, c.objects); len(lines) > 0 {
				t.Errorf("after the repair: %s", strings.Join(lines, "\n"))
			}
		})
	}
}

// A Workload that the engine believes deleted by mistake counts again once the API server has confirmed that it exists.
func TestRepairOfAWorkloadTakenForDeleted(t *testing.T) {
	object := newWorkload("a", "q", 1, 2)
	e := newEngine(t, object)
	e.Apply(admission.WorkloadGone{Key: types.NamespacedName{Namespace: "ns", Name: "a"}, UID: object.UID})
	e.Apply(admission.WorkloadObserved{Workload: object})
	if got, want := audit(e, []*kueue.Workload{object}), []string{"a in q/lq-q: booked 0, counted 8"}; !slices.Equal(got, want) {
		t.Fatalf("differences %q, want %q", got, want)
	}
	repair(e, []*kueue.Workload{object})
	if lines := audit(e, []*kueue.Workload{object}); len(lines) > 0 {
		t.Errorf("after the repair: %s", strings.Join(lines, "\n"))
	}
}

// While an admission is being written the engine is ahead of the object, and after a failed write it is not.
func TestDecisionsInFlightAreNoDifferences(t *testing.T) {
	object := newWorkload("a", "q", 1, 2, waiting)
	e := newEngine(t, object)
	decisions := e.Decide(time.Now())
	if len(decisions) != 1 {
		t.Fatalf("decided %v", decisions)
	}
	admit, ok := decisions[0].(admission.Admit)
	if !ok {
		t.Fatalf("decided %v", decisions)
	}
	if chargeSnapshot := e.ChargeSnapshot(); len(chargeSnapshot.Stages) != 1 || !chargeSnapshot.Stages[0].IsUnderWay || len(chargeSnapshot.Stages[0].Amounts) == 0 {
		t.Fatalf("books = %+v, want one stage that is charged and under way", chargeSnapshot)
	}
	if lines := audit(e, []*kueue.Workload{object}); len(lines) > 0 {
		t.Errorf("while it is written: %s", strings.Join(lines, "\n"))
	}
	e.Settle(admit.ID)
	if lines := audit(e, []*kueue.Workload{object}); len(lines) > 0 {
		t.Errorf("taken back: %s", strings.Join(lines, "\n"))
	}
}

func TestImbalances(t *testing.T) {
	chargeSnapshot := newEngine(t, newWorkload("a", "q", 1, 2), newWorkload("b", "q", 1, 1), newWorkload("c", "r", 1, 5)).ChargeSnapshot()
	if lines := quotaaudit.Imbalances(&chargeSnapshot); len(lines) > 0 {
		t.Fatalf("imbalances %+v, want none", lines)
	}
	for name, c := range map[string]struct {
		spoil func(*admission.ChargeSnapshot)
		want  string
	}{
		"the tree":       {func(c *admission.ChargeSnapshot) { find(c, "q").Charged[0].Amount++ }, "q /: booked 13, counted 12"},
		"the status":     {func(c *admission.ChargeSnapshot) { find(c, "r").Reserved = nil }, "r /: booked 0, counted 20"},
		"no stage":       {func(c *admission.ChargeSnapshot) { c.Stages = c.Stages[:2] }, "r /: booked 20, counted 0"},
		"the LocalQueue": {func(c *admission.ChargeSnapshot) { c.LocalQueues[0].Reserved[0].Amount = 3 }, " ns/lq-q: booked 3, counted 12"},
	} {
		t.Run(name, func(t *testing.T) {
			chargeSnapshot := newEngine(t, newWorkload("a", "q", 1, 2), newWorkload("b", "q", 1, 1), newWorkload("c", "r", 1, 5)).ChargeSnapshot()
			c.spoil(&chargeSnapshot)
			var got []string
			for _, l := range quotaaudit.Imbalances(&chargeSnapshot) {
				got = append(got, fmt.Sprintf("%s %s: booked %d, counted %d", l.ClusterQueue, l.LocalQueue, l.Booked, l.Counted))
			}
			if len(got) == 0 || got[0] != c.want {
				t.Errorf("imbalances %q, want %q first", got, c.want)
			}
		})
	}
}

func find(c *admission.ChargeSnapshot, name string) *admission.ClusterQueueCharge {
	for i := range c.ClusterQueues {
		if c.ClusterQueues[i].Name == name {
			return &c.ClusterQueues[i]
		}
	}
	return nil
}

// TestHoldingsAgreeWithTheEngine makes both count the same random objects.
func TestHoldingsAgreeWithTheEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var objects []*kueue.Workload
		quantities := []string{"0", "1", "7", "250m", "1500m", "-3", "3Gi", "1e30", "72057594037927936"}
		for i := range rapid.IntRange(0, 6).Draw(t, "objects") {
			w := newWorkload(fmt.Sprint(i), rapid.SampledFrom([]string{"q", "r"}).Draw(t, "queue"), 1, rapid.Int64Range(0, 9).Draw(t, "each"))
			for _, name := range []corev1.ResourceName{gpu, corev1.ResourceCPU, corev1.ResourceMemory} {
				if rapid.Bool().Draw(t, "asks") {
					asks(name, rapid.SampledFrom(quantities).Draw(t, "quantity"))(w)
				}
			}
			if rapid.Bool().Draw(t, "partial") {
				w.Status.Admission.PodSetAssignments[0].Count = new(rapid.Int32Range(0, 4).Draw(t, "count"))
			}
			if rapid.Bool().Draw(t, "reclaims") {
				reclaimed(rapid.Int32Range(-1, 6).Draw(t, "reclaimed"))(w)
			}
			rapid.SampledFrom([]func(*kueue.Workload){func(*kueue.Workload) {}, func(*kueue.Workload) {}, finished, waiting}).Draw(t, "state")(w)
			objects = append(objects, w)
		}
		e := newEngine(t, objects...)
		if lines := audit(e, objects); len(lines) > 0 {
			t.Fatal(strings.Join(lines, "\n"))
		}
		chargeSnapshot := e.ChargeSnapshot()
		if lines := quotaaudit.Imbalances(&chargeSnapshot); len(lines) > 0 {
			t.Fatalf("imbalances %+v", lines)
		}
	})
}
