package leader

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// A fakeManager starts what is added.
type fakeManager struct{ ctrl.Manager }

// Add implements ctrl.Manager.
func (fakeManager) Add(r manager.Runnable) error {
	go func() { _ = r.Start(context.Background()) }()
	return nil
}

// A runnable says whether only a leader runs it.
type runnable struct {
	manager.RunnableFunc
	isOfLeader bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r runnable) NeedLeaderElection() bool { return r.isOfLeader }

// TestDecideFirst: the controllers of a leader start after the first scheduling cycle, and the rest at once.
func TestDecideFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decided := make(chan struct{})
		var started []string
		run := func(name string) manager.RunnableFunc {
			return func(context.Context) error {
				started = append(started, name)
				return nil
			}
		}
		mgr := DecideFirst(fakeManager{}, decided)
		for _, r := range []manager.Runnable{runnable{run("controller"), true}, runnable{run("server"), false}, run("cache")} {
			if err := mgr.Add(r); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if !slices.Equal(started, []string{"server", "cache"}) {
			t.Errorf("%v started before the first decision, want the server and the cache", started)
		}
		close(decided)
		synctest.Wait()
		if len(started) != 3 || started[2] != "controller" {
			t.Errorf("%v started, want the controller last", started)
		}
	})
}
