package leader

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// DecideFirst returns a manager that starts the controllers of a leader only after the first scheduling cycle, when the channel is closed. A new leader with a
// hundred thousand quota Workloads would otherwise reconcile all other objects while stages wait for its first decision. Runnables that do not say that they
// need leader election, such as caches, start as always.
func DecideFirst(mgr ctrl.Manager, decided <-chan struct{}) ctrl.Manager {
	return gatedManager{mgr, decided}
}

type gatedManager struct {
	ctrl.Manager
	decided <-chan struct{}
}

// Add implements ctrl.Manager.
func (m gatedManager) Add(r manager.Runnable) error {
	if e, says := r.(manager.LeaderElectionRunnable); !says || !e.NeedLeaderElection() {
		return m.Manager.Add(r)
	}
	return m.Manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-m.decided:
			return r.Start(ctx)
		case <-ctx.Done():
			return nil
		}
	}))
}
