// Package simulator runs scenarios: it runs the admission.Engine on virtual time, holds the API objects that the engine decides about, and
// simulates all other components: the API server, the users and administrators of the scenario, the JobSet controller and the pods. It
// writes decisions to the objects as the manager does. The same scenario always gives the same run. A simulation can also begin with the objects
// of a snapshot: Forecast predicts when its pending stages start.
package simulator

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/initial"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/internal/manager"
	"github.com/tranche-dev/tranche/simulator/internal/timeline"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

const (
	// maxRounds limits how often the engine may decide again while no time passes.
	maxRounds = 1000
	// maxInstants limits a run that never finishes.
	maxInstants = 100_000
	// maxDecisions limits the decisions of the engine, refusals included, that are simulated to predict the starts of some quota Workloads, and
	// maxDecisionsForAll those of all. maxChecks limits the checks of stages for some: in a large cohort the engine checks many again whose refusals do not
	// change.
	maxDecisions, maxDecisionsForAll, maxChecks = 200_000, 1_000_000, 400_000
)

// Manifests are objects that exist before a scenario begins.
type Manifests = initial.Manifests

// A Result is the result of a run.
type Result struct {
	// Lines are the timeline, the quota held at the end, and the hash.
	Lines []string
	// Violations are the lines that report broken invariants. There are none unless the engine has a bug.
	Violations []string
}

// String is the result in the form of a golden.
func (r *Result) String() string {
	return strings.Join(r.Lines, "\n") + "\n"
}

// Run runs a scenario, starting with the objects of the manifests. The error describes a mistake in the input, or that the run does not
// finish; it names the line of the scenario if there is one.
func Run(s *scenario.Scenario, manifests *Manifests) (*Result, error) {
	return newSimulation().run(s, manifests)
}

func (s *simulation) run(script *scenario.Scenario, manifests *Manifests) (*Result, error) {
	if err := s.start(script, manifests); err != nil {
		return nil, err
	}
	for i := range script.Lines {
		if err := s.schedule(&script.Lines[i]); err != nil {
			return nil, err
		}
	}
	if err := s.runToTheEnd(); err != nil {
		return nil, err
	}
	s.Held("")
	s.Lines = append(s.Lines, "hash "+s.Sum())
	return &Result{Lines: s.Lines, Violations: s.Violations}, nil
}

// A simulation is one run.
type simulation struct {
	*manager.Manager
	jobController      jobcontrollers.JobController
	jobSetController   jobcontrollers.JobSetController
	plainJobController jobcontrollers.PlainJobController
	// hasRun is true if no event has been planned since the last run line.
	hasRun bool
	// isStuck is true if the engine never stopped deciding, so that the run cannot continue.
	isStuck bool
	// interrupt returns an error when the run has to end early. It may be nil.
	interrupt func() error
	// decisions counts the decisions of the engine.
	decisions int
}

// errInterrupted means that a run was ended early.
var errInterrupted = errors.New("the simulation was interrupted")

// failIfInterrupted ends a run that has to end early.
func (s *simulation) failIfInterrupted() {
	if s.interrupt == nil || s.Problem != nil {
		return
	}
	if err := s.interrupt(); err != nil {
		s.Fail(fmt.Errorf("%w at %s: %w", errInterrupted, s.Time().UTC().Format(time.RFC3339), err))
	}
}

func newSimulation() *simulation { return simulate(manager.New(cluster.New(&timeline.Timeline{}))) }

// simulate returns a simulation of the cluster of a manager.
func simulate(m *manager.Manager) *simulation {
	return &simulation{
		Manager:            m,
		jobController:      jobcontrollers.JobController{Cluster: m.Cluster},
		jobSetController:   jobcontrollers.JobSetController{Cluster: m.Cluster},
		plainJobController: jobcontrollers.PlainJobController{Cluster: m.Cluster},
	}
}

// start configures the engine and lets it observe the manifests.
func (s *simulation) start(script *scenario.Scenario, manifests *Manifests) error {
	s.Config = script.Config
	if err := s.Config.Complete(); err != nil {
		return err
	}
	manifests.AddTo(s.Cluster)
	return s.Start()
}

// instant does all due work, until none is left before time passes.
func (s *simulation) instant() error {
	if s.isStuck {
		return nil
	}
	for range maxRounds {
		s.runControllers()
		if s.Problem != nil {
			return s.Problem
		}
		decisions := s.Decide()
		s.decisions += len(decisions)
		for _, d := range decisions {
			s.Write(d)
		}
		s.WriteConsumption()
		if len(decisions) == 0 && !s.Events.IsDue(s.Now) && !s.WorkloadQueue.IsDue(s.Now) && !s.JobSetQueue.IsDue(s.Now) && len(s.JobQueue) == 0 {
			s.Audit()
			return nil
		}
	}
	s.ReportViolation("I3: the engine does not become idle: after %d rounds it still makes decisions", maxRounds)
	s.isStuck = true
	return nil
}

// runUntil advances the time.
func (s *simulation) runUntil(until time.Duration) error {
	for range maxInstants {
		if err := s.instant(); err != nil {
			return err
		}
		for f := s.Events.Report(s.Now); f != nil; f = s.Events.Report(s.Now) {
			f()
		}
		next, ok := s.nextTime()
		if s.isStuck || !ok || next > until {
			if until < forever {
				s.Now = until
			}
			return nil
		}
		s.Now = next
	}
	return fmt.Errorf("the run does not end: at %s more events are planned; write run until=TIME", timeline.Clock(s.Now))
}

// forever is the end of a run to the end.
const forever = time.Duration(1<<63 - 1)

// runToTheEnd finishes a scenario that does not end with a run line.
func (s *simulation) runToTheEnd() error {
	if s.hasRun {
		return s.runUntil(s.Now)
	}
	return s.runUntil(forever)
}

// nextTime returns the time of the next event.
func (s *simulation) nextTime() (time.Duration, bool) {
	next, ok := s.Events.Next()
	if at, isAwaited := s.WorkloadQueue.Next(); isAwaited && (!ok || at < next) {
		next, ok = at, true
	}
	if at, isAwaited := s.JobSetQueue.Next(); isAwaited && (!ok || at < next) {
		next, ok = at, true
	}
	wanted, isWanted := s.Engine.NextTime()
	if !isWanted {
		return next, ok
	}
	at := wanted.Sub(s.Beginning())
	if at <= s.Now {
		s.Fail(errors.New("the engine asks to decide at " + timeline.Clock(at) + ", which has passed"))
		return s.Now, true
	}
	if !ok || at < next {
		return at, true
	}
	return next, true
}
