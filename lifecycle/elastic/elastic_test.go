package elastic_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/lifecycle/elastic"
)

func TestDivide(t *testing.T) {
	admitted := func(held int32) elastic.Growth {
		return elastic.Growth{HoldsQuota: true, Held: held, MayRun: true, MayBegin: true}
	}
	reserved := func(held int32) elastic.Growth { return elastic.Growth{HoldsQuota: true, Held: held} }
	waiting := elastic.Growth{}
	for name, c := range map[string]struct {
		want, base int32
		growths    []elastic.Growth
		wantSize   elastic.Size
	}{
		"nothing but the stage": {3, 3, nil, elastic.Size{Now: 3, First: 3, Base: 3}},
		"two without quota":     {5, 3, nil, elastic.Size{Now: 3, First: 3, Base: 3, Missing: 2}},
		"a growth waits":        {5, 3, []elastic.Growth{waiting}, elastic.Size{Now: 3, First: 3, Base: 3, Growths: []int32{2}}},
		"a growth is admitted":  {5, 3, []elastic.Growth{admitted(2)}, elastic.Size{Now: 5, First: 5, Base: 3, Growths: []int32{2}}},
		"one more is missing":   {6, 3, []elastic.Growth{admitted(2)}, elastic.Size{Now: 5, First: 5, Base: 3, Growths: []int32{2}, Missing: 1}},
		"the newest is given up first": {
			5, 3, []elastic.Growth{admitted(1), admitted(4)}, elastic.Size{Now: 5, First: 5, Base: 3, Growths: []int32{1, 1}},
		},
		"what the stage began with goes last": {2, 3, []elastic.Growth{admitted(2)}, elastic.Size{Now: 2, First: 2, Base: 2, Growths: []int32{0}}},
		"only the oldest that waits asks": {
			6, 3, []elastic.Growth{waiting, waiting}, elastic.Size{Now: 3, First: 3, Base: 3, Growths: []int32{3, 0}},
		},
		"one that waits stands before one that holds": {
			6, 3, []elastic.Growth{waiting, admitted(2)}, elastic.Size{Now: 3, First: 3, Base: 3, Growths: []int32{3, 0}},
		},
		"what waits for its checks does not run": {
			5, 3, []elastic.Growth{reserved(2)}, elastic.Size{Now: 3, First: 3, Base: 3, Growths: []int32{2}},
		},
		"what has other labels does not begin": {
			5, 3, []elastic.Growth{{HoldsQuota: true, Held: 2, MayRun: true}}, elastic.Size{Now: 5, First: 3, Base: 3, Growths: []int32{2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.wantSize.Want, c.wantSize.Live = c.want, 1
			if c.wantSize.Growths == nil {
				c.wantSize.Growths = []int32{}
			}
			if diff := cmp.Diff(c.wantSize, elastic.Divide(c.want, c.base, 1, c.growths)); diff != "" {
				t.Errorf("size (-want +got):\n%s", diff)
			}
		})
	}
}

// Every pod is paid for once: by the stage, by a growth, or not at all; and no more run than are paid for.
func TestDivideAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := rapid.Int32Range(0, 9)
		want, base := pods.Draw(t, "want"), pods.Draw(t, "base")
		var growths []elastic.Growth
		for range rapid.IntRange(0, 4).Draw(t, "growths") {
			g := elastic.Growth{HoldsQuota: rapid.Bool().Draw(t, "holds"), Held: pods.Draw(t, "held")}
			g.MayRun = g.HoldsQuota && rapid.Bool().Draw(t, "runs")
			g.MayBegin = rapid.Bool().Draw(t, "begins")
			growths = append(growths, g)
		}
		z := elastic.Divide(want, base, 1, growths)
		sum, paid := z.Base+z.Missing, base
		for k, g := range growths {
			sum += z.Growths[k]
			if g.HoldsQuota && z.Growths[k] > g.Held {
				t.Errorf("growth %d holds quota for %d pods and pays for %d", k, g.Held, z.Growths[k])
			}
			if g.MayRun {
				paid += g.Held
			}
		}
		if sum != want {
			t.Errorf("%d of %d pods are accounted for in %+v", sum, want, z)
		}
		if z.Now > paid || z.Now > want || z.First > z.Now || z.Base > z.First {
			t.Errorf("of %d pods %d are paid for: %+v", want, paid, z)
		}
	})
}

func TestHeld(t *testing.T) {
	for name, c := range map[string]struct {
		asked, assigned, reclaimable int32
		holds                        bool
		wantCharged, wantHeld        int32
	}{
		"one that waits":                     {asked: 3, wantCharged: 3, wantHeld: 3},
		"one that holds what it asks for":    {asked: 3, assigned: 3, holds: true, wantCharged: 3, wantHeld: 3},
		"some have finished":                 {asked: 3, assigned: 3, reclaimable: 1, holds: true, wantCharged: 3, wantHeld: 2},
		"they finished before its admission": {asked: 3, assigned: 2, reclaimable: 1, holds: true, wantCharged: 3, wantHeld: 2},
		"it asks for more since":             {asked: 5, assigned: 3, holds: true, wantCharged: 3, wantHeld: 3},
		"it asks for less since":             {asked: 2, assigned: 3, holds: true, wantCharged: 2, wantHeld: 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "train", Count: c.asked}}}}
			w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "train", Count: c.reclaimable}}
			if c.holds {
				w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
				w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "train", Count: &c.assigned}}}
			}
			if got := elastic.Charged(w, "train", 7); got != c.wantCharged {
				t.Errorf("charged for %d pods, want %d", got, c.wantCharged)
			}
			if got := elastic.Held(w, "train"); got != c.wantHeld {
				t.Errorf("holds quota for %d pods, want %d", got, c.wantHeld)
			}
			if got := elastic.Charged(w, "eval", 7); got != 7 {
				t.Errorf("charged for %d pods of a pod set that it does not have, want the default", got)
			}
		})
	}
}

func TestFlavors(t *testing.T) {
	type flavors = map[corev1.ResourceName]kueue.ResourceFlavorReference
	w := &kueue.Workload{Status: kueue.WorkloadStatus{Admission: &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{
		{Name: "ps", Flavors: flavors{"cpu": "spot"}}, {Name: "train", Flavors: flavors{"gpu": "a100", "cpu": "spot"}},
	}}}}
	if got, want := elastic.Flavors(w), "ps/cpu=spot,train/cpu=spot,train/gpu=a100"; got != want {
		t.Errorf("flavors are %q, want %q", got, want)
	}
}
