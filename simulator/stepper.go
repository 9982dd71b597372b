package simulator

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/internal/manager"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Stepper is a simulation that begins with a snapshot, for packages that plan what happens in it: Begin reads the snapshot, Start starts the
// manager, and Advance lets time pass.
type Stepper struct {
	*manager.Manager
	// PlainJobController submits jobs that are no JobSets.
	PlainJobController *jobcontrollers.PlainJobController
	forecast           *forecast
}

// Begin returns a simulation with the objects of a snapshot, without a transcript. Its AdmissionChecks are Ready at once.
func Begin(s *snapshot.Snapshot) (*Stepper, error) {
	sim, _, err := fromSnapshot(s, 0)
	if err != nil {
		return nil, err
	}
	sim.IsQuiet, sim.IsSilent = true, true
	jobcontrollers.AnswerChecks(sim.Cluster, 0)
	return &Stepper{Manager: sim.Manager, PlainJobController: &sim.plainJobController, forecast: &forecast{simulation: sim, toTheEnd: true}}, nil
}

// Advance lets time pass until nothing is left to happen, or a time has come.
func (s *Stepper) Advance(until time.Duration) error { return s.forecast.advance(until) }

// Delete deletes a job as a user does.
func (s *Stepper) Delete(key types.NamespacedName) {
	if j := s.UserJobs[key]; j != nil && !j.IsDeleted && s.JobSets[key] != nil {
		s.forecast.delete(j)
	} else if j := s.PlainJobs[key]; j != nil && !j.IsDeleted {
		s.forecast.delete(j)
	}
}
