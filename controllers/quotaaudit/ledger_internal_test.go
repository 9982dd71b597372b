package quotaaudit

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
)

// Only a difference that is the same at two consecutive checks is confirmed.
func TestConfirmed(t *testing.T) {
	difference := func(object string, books uint64, booked quota.Amount) []Difference {
		return []Difference{{
			Key: types.NamespacedName{Name: "w"}, Object: Holding{UID: "w", ResourceVersion: object},
			Booked: admission.StageCharge{
				UID: "w", ResourceVersion: books, ClusterQueue: "q",
				Amounts: []admission.FlavorAmount{{FlavorResource: quota.FlavorResource{Flavor: "a100", Resource: "gpu"}, Amount: booked}},
			},
		}}
	}
	for name, c := range map[string]struct {
		looks [][]Difference
		want  int
	}{
		"seen once":                     {[][]Difference{difference("1", 1, 8)}, 0},
		"seen twice":                    {[][]Difference{difference("1", 1, 8), difference("1", 1, 8)}, 1},
		"the object has changed":        {[][]Difference{difference("1", 1, 8), difference("2", 1, 8)}, 0},
		"the engine has seen something": {[][]Difference{difference("1", 1, 8), difference("1", 2, 8)}, 0},
		"something else differs":        {[][]Difference{difference("1", 1, 8), difference("1", 1, 4)}, 0},
		"gone in between":               {[][]Difference{difference("1", 1, 8), nil, difference("1", 1, 8)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Auditor{}
			var got []Difference
			for _, look := range c.looks {
				got = a.confirmed(look)
			}
			if len(got) != c.want {
				t.Errorf("confirmed %d, want %d", len(got), c.want)
			}
		})
	}
}

// A listener is an engine that observes everything at once.
type listener struct{ *admission.Engine }

func (l listener) View(_ context.Context, f func(*admission.Engine)) error {
	f(l.Engine)
	return nil
}

func (l listener) Observe(event admission.Event) { l.Apply(event) }

// A shelf holds one quota Workload, or none.
type shelf struct {
	cache.Cache
	workload *kueue.Workload
}

func (s shelf) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	into, ok := object.(*kueue.Workload)
	if !ok || s.workload == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	s.workload.DeepCopyInto(into)
	return nil
}

// The engine has observed that a quota Workload was deleted, which the cache still shows. While the API server is asked, a late response to
// a write about the Workload may be in transit: it counts only if the Workload exists.
func TestSettleAsksTheAPIServer(t *testing.T) {
	newWorkload := func(uid types.UID) *kueue.Workload {
		return &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: uid, ResourceVersion: "1"},
			Status: kueue.WorkloadStatus{
				Conditions: []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}},
				Admission:  &kueue.Admission{ClusterQueue: "q"},
			},
		}
	}
	for name, c := range map[string]struct {
		live *kueue.Workload
		want int
	}{
		"it lives":                          {newWorkload("old"), 1},
		"it has gone":                       {nil, 0},
		"it has gone, another has its name": {newWorkload("new"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := admission.New(admission.Config{})
			if err != nil {
				t.Fatal(err)
			}
			old := newWorkload("old")
			d := Difference{Key: client.ObjectKeyFromObject(old), Object: HoldingOf(old)}
			engine.Apply(admission.WorkloadObserved{Workload: old})
			engine.Apply(admission.WorkloadGone{Key: d.Key, UID: old.UID})
			a := &Auditor{config: Config{Engine: listener{engine}, Cache: shelf{}, Live: shelf{workload: c.live}}}
			if err := a.settle(t.Context(), &d); err != nil {
				t.Fatal(err)
			}
			engine.Apply(admission.WorkloadObserved{Workload: old})
			if chargeSnapshot := engine.ChargeSnapshot(); len(chargeSnapshot.Stages) != c.want {
				t.Errorf("the engine charges %d quota Workloads, want %d: %+v", len(chargeSnapshot.Stages), c.want, chargeSnapshot.Stages)
			}
		})
	}
}
