package jobset

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

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
	for name, step := range map[string]*stages.Step{"Jobs": {AwaitsJobs: true}, "engine": {AwaitsEngine: true}} {
		t.Run(name, func(t *testing.T) {
			if err := newYielder(nil).yield(t.Context(), &jobsetstate.Snapshot{}, step); !errors.Is(err, stages.ErrYield) || step.RequeueAfter != longestYield {
				t.Errorf("error %v, reconciled after %v, want %v after %v", err, step.RequeueAfter, stages.ErrYield, longestYield)
			}
		})
	}
}
