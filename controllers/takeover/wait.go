package takeover

import (
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/apis"
)

// patience is how long the API server may take until a lock is in force, before that is reported. It is usually a fraction of a second.
const patience = 10 * time.Second

// A wait is that of a locked tree for its lock to be in force.
type wait struct {
	since time.Time
	// err is the last error of the probe, if it has no answer.
	err error
}

// still returns the wait if it goes on.
func (w wait) still(now time.Time, err error) wait {
	if w.since.IsZero() {
		w.since = now
	}
	w.err = err
	return w
}

// problem returns what keeps a lock from being in force, and the cure, after a while.
func (w wait) problem(now time.Time) string {
	switch {
	case w.since.IsZero() || now.Sub(w.since) < patience:
		return ""
	case w.err != nil:
		return w.err.Error()
	}
	return fmt.Sprintf("Its lock, ConfigMap %s/%s, is not in force in the API server: install the ValidatingAdmissionPolicies tranche-guard-takeover, "+
		"tranche-guard-taken-queues, tranche-guard-taken-cohorts and tranche-takeover-probe with their bindings from config/beside/policies, and keep its ClusterQueues held",
		apis.SystemNamespace, apis.TakeoverConfigMap)
}
