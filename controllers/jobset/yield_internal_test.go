package jobset

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

// A JobSet yields for a limited time, also if it is reconciled again and again, and may yield again once it had no reason to.
func TestYieldIsLimited(t *testing.T) {
	y := newYielder(nil)
	key, began := types.NamespacedName{Namespace: "ml", Name: "train"}, time.Now()
	for _, c := range []struct{ after, want time.Duration }{
		{0, longestYield},
		{longestYield / 4, longestYield * 3 / 4},
		{longestYield, 0},
		{2 * longestYield, 0},
	} {
		if got := y.left(key, began.Add(c.after)); got != c.want {
			t.Errorf("after %v: yields for %v, want %v", c.after, got, c.want)
		}
	}
	if err := y.yield(t.Context(), &jobsetstate.Snapshot{Key: key}, &stages.Step{}); err != nil {
		t.Errorf("yields without a reason: %v", err)
	}
	if got := y.left(key, began.Add(2*longestYield)); got != longestYield {
		t.Errorf("yields again for %v, want %v", got, longestYield)
	}
}

// What is about to happen is reconciled again soon, also if no watch reports it.
func TestYield(t *testing.T) {
	step := &stages.Step{AwaitsJobs: true}
	if err := newYielder(nil).yield(t.Context(), &jobsetstate.Snapshot{}, step); !errors.Is(err, stages.ErrYield) || step.RequeueAfter != longestYield {
		t.Errorf("error %v, reconciled after %v, want %v after %v", err, step.RequeueAfter, stages.ErrYield, longestYield)
	}
}

// The engine is asked about stages that it may admit, and about no others: to ask costs a scheduling cycle.
func TestInQueue(t *testing.T) {
	workload := func(name string, change func(*kueue.Workload)) *kueue.Workload {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(w)
		return w
	}
	condition := func(of string) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Status.Admission = &kueue.Admission{}
			w.Status.Conditions = []metav1.Condition{{Type: of, Status: metav1.ConditionTrue}}
		}
	}
	gated := workload("opened", func(w *kueue.Workload) {
		w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
	})
	s := &jobsetstate.Snapshot{Owned: jobsetstate.Objects{Workloads: []*kueue.Workload{
		workload("waits", func(*kueue.Workload) {}), workload("holds", condition(kueue.WorkloadQuotaReserved)), workload("finished", condition(kueue.WorkloadFinished)),
		gated, workload("closed", func(w *kueue.Workload) { w.Annotations = gated.Annotations }),
	}}}
	step := &stages.Step{}
	step.Change(gated, workload("opened", func(*kueue.Workload) {}))
	var names []string
	for _, w := range inQueue(s, step) {
		names = append(names, w.Name)
	}
	if want := []string{"waits", "opened"}; !slices.Equal(names, want) {
		t.Errorf("asks about %v, want %v", names, want)
	}
	s.OtherEngine = true
	if got := inQueue(s, step); len(got) > 0 {
		t.Errorf("asks about %d stages that Kueue admits", len(got))
	}
}
