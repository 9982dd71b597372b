package simulator

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// runControllers does all due work that the engine need not decide. What has happened comes before the times for which controllers wait: a stage
// that succeeds at its time limit has succeeded.
func (s *simulation) runControllers() {
	for range maxReconciles {
		if s.failIfInterrupted(); s.Problem != nil {
			return
		}
		for f := s.Events.Due(s.Now); f != nil; f = s.Events.Due(s.Now) {
			f()
		}
		switch {
		case len(s.WorkloadQueue.Changed) > 0:
			for _, key := range s.WorkloadQueue.TakeChanged() {
				if w := s.Workloads[key]; w != nil {
					s.ReconcileWorkload(key, w)
				}
			}
		case len(s.JobQueue) > 0:
			s.controlJobs()
		case s.JobSetQueue.IsDue(s.Now):
			s.reconcileJobSets()
		case s.WorkloadQueue.IsDue(s.Now):
			s.WorkloadQueue.Wake(s.Now)
		default:
			return
		}
	}
	s.Fail(errors.New("the controllers do not become idle"))
}

// maxReconciles limits how often controllers reconcile objects while no time passes.
const maxReconciles = 100_000

// controlJobs reconciles the Jobs that have changed, or whose pods have.
func (s *simulation) controlJobs() {
	changed := slices.Sorted(maps.Keys(s.JobQueue))
	s.JobQueue = map[types.UID]bool{}
	for _, uid := range changed {
		if job := s.Jobs[uid]; job != nil {
			s.jobController.Reconcile(job)
		}
	}
}

// reconcileJobSets reconciles the JobSets that have changed, and the jobs of other kinds.
func (s *simulation) reconcileJobSets() {
	for _, key := range s.JobSetQueue.Due(s.Now) {
		if s.failIfInterrupted(); s.Problem != nil {
			return
		}
		if j := s.PlainJobs[key]; j != nil {
			s.plainJobController.Reconcile(j)
		}
		if s.QueuedJobs[key] != nil {
			s.ReconcileQueuedJob(key)
		}
		if s.UserJobs[key] == nil && (s.PlainJobs[key] != nil || s.QueuedJobs[key] != nil) {
			continue
		}
		if js := s.JobSets[key]; js != nil {
			s.jobSetController.Reconcile(js)
		}
		s.ReconcileJobSet(key)
	}
}
