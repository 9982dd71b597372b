package stages

import (
	"time"

	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// This file determines which pods use the quota of a JobSet, even if their labels or owners were changed, and deletes pods that no Job
// ends. Tenants cannot change labels or owners (tranche-guard-pods), but administrators can, and so could tenants before that policy was
// installed.

// unwatchedEvery is how often a JobSet is read past the cache while it has pods that the cache does not watch.
const unwatchedEvery = 5 * time.Second

// endAbandoned requests the deletion of the pods that no Job ends.
func (w *Step) endAbandoned(b jobsetstate.Objects) {
	for _, a := range b.Abandoned {
		if a.Pod.DeletionTimestamp.IsZero() {
			w.EndPods = append(w.EndPods, a)
		}
	}
}

// leave stops the Jobs of a JobSet that is being deleted and has finalizers: otherwise its quota could not be released until they are
// removed. In foreground deletion the garbage collector deletes the Jobs.
func (w *Step) leave(b jobsetstate.Objects) {
	for _, job := range b.Jobs {
		if childjob.IsNoticed(job) {
			w.HoldJobs = append(w.HoldJobs, job)
			w.Stopped++
		}
	}
}
