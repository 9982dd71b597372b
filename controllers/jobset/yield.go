package jobset

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

// longestYield limits for how long the rest of a Step is left to later reconciles: the quota of a finished stage is released by it.
const longestYield = 100 * time.Millisecond

// A yielder leaves the rest of a Step, which records what has happened, to the next reconcile while the Jobs of a stage are about to be released: the cache
// does not show the admission yet, or the JobSet controller is creating the Jobs. The reconcile that releases them can only begin when this
// one has ended. Its methods may be called from several goroutines.
type yielder struct {
	runner *engine.Runner

	mu sync.Mutex
	// since is when the reconciles of a JobSet have begun to yield.
	since map[types.NamespacedName]time.Time
}

func newYielder(runner *engine.Runner) *yielder {
	return &yielder{runner: runner, since: map[types.NamespacedName]time.Time{}}
}

// yield returns stages.ErrYield if the rest of a Step is left to the next reconcile, which it requests.
func (y *yielder) yield(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	isAdmitted, err := y.isAdmitted(ctx, inQueue(s, w))
	if err != nil {
		return err
	}
	if !isAdmitted && !w.AwaitsJobs {
		y.forget(s.Key)
		return nil
	}
	left := y.left(s.Key, time.Now())
	if left == 0 {
		return nil
	}
	w.RequeueWithin(left)
	return stages.ErrYield
}

// left returns for how much longer the reconciles of a JobSet may yield.
func (y *yielder) left(key types.NamespacedName, now time.Time) time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.since[key].IsZero() {
		y.since[key] = now
	}
	return max(longestYield-now.Sub(y.since[key]), 0)
}

func (y *yielder) forget(key types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.since, key)
}

// isAdmitted reports whether the engine has admitted one of these quota Workloads, which may not be written yet.
func (y *yielder) isAdmitted(ctx context.Context, inQueue []*kueue.Workload) (is bool, err error) {
	if len(inQueue) == 0 {
		return false, nil
	}
	err = y.runner.ViewDecided(ctx, func(e *admission.Engine) {
		is = slices.ContainsFunc(inQueue, func(w *kueue.Workload) bool { return e.Admitted(client.ObjectKeyFromObject(w), w.UID) })
	})
	return is, err
}

// inQueue returns the quota Workloads that the engine may admit at any moment: those of open stages without quota, according to the cache, and those that
// the Step has opened.
func inQueue(s *jobsetstate.Snapshot, w *stages.Step) []*kueue.Workload {
	if s.OtherEngine {
		return nil
	}
	var all []*kueue.Workload
	for _, workload := range s.Owned.Workloads {
		if quotaworkload.MayQueue(workload) {
			all = append(all, workload)
		}
	}
	for _, c := range w.Of(quotastep.Change) {
		if quotaworkload.MayQueue(c.After) {
			all = append(all, c.After)
		}
	}
	return all
}
