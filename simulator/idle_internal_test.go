package simulator

import (
	"time"

	"github.com/tranche-dev/tranche/simulator/internal/idle"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/snapshot"
)

// PredictEach predicts the starts of all pending quota Workloads, and reconciles every JobSet at first.
func PredictEach(s *snapshot.Snapshot, d *Durations) (*Prediction, error) {
	f := &forecast{durations: d, isAsked: isPending, onlyLimits: true}
	q := &question{durations: d, until: s.TakenAt.Add(1000 * time.Hour), isAsked: isPending}
	if err := f.load(s); err != nil {
		return nil, err
	}
	f.idle = nil
	for key := range f.UserJobs {
		f.JobSetQueue.Add(key)
	}
	for uid := range f.Jobs {
		f.JobQueue[uid] = true
	}
	f.await(q)
	f.watch()
	jobcontrollers.AnswerChecks(f.Cluster, f.durations.Checks)
	if err := f.resume(); err != nil {
		return nil, err
	}
	return q.complete(s, f, f.advance(q.until.Sub(s.TakenAt)))
}

// LeftAlone returns how many JobSets of a snapshot are not reconciled before something concerns them.
func LeftAlone(s *snapshot.Snapshot) (int, error) {
	sim, _, err := fromSnapshot(s, 0)
	if err != nil {
		return 0, err
	}
	before := len(sim.JobSetQueue.Changed)
	idle.SetAside(sim.Cluster)
	return before - len(sim.JobSetQueue.Changed), nil
}
