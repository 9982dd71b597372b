// Package simulator runs scenarios: it runs the admission.Engine on virtual time, holds the API objects that the engine decides about, and
// simulates all other components: the API server, the users and administrators of the scenario, the JobSet controller and the pods. It
// writes decisions to the objects as the manager does. The same scenario always gives the same run.
package simulator

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

const (
	// maxRounds limits how often the engine may decide again while no time passes.
	maxRounds = 1000
	// maxInstants limits a run that never finishes.
	maxInstants = 100_000
)

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
	s.held("")
	s.out.lines = append(s.out.lines, "hash "+s.out.sum())
	return &Result{Lines: s.out.lines, Violations: s.out.violations}, nil
}

// A simulation is one run.
type simulation struct {
	config     config
	engine     *admission.Engine
	objects    *store
	eventQueue eventQueue
	// now is virtual time since the start.
	now time.Duration
	// hasRun is true if no event has been planned since the last run line.
	hasRun    bool
	jobs      map[string]*job
	workQueue workQueue
	// failing are the targets whose next write will fail.
	failing []scenario.Target
	// jobSetQueue has the JobSets, and the jobs of other kinds, that have to be reconciled. dirtyJobs are child Jobs, by UID.
	jobSetQueue workQueue
	dirtyJobs   map[types.UID]bool
	// byJobSet has the quota Workloads of the JobSets of each name.
	byJobSet map[types.NamespacedName]map[admission.StageKey]bool
	// writes counts what Steps have written. The manager dies once, after diesAfter of these writes, unless that is negative, and a new one
	// starts at once.
	writes, diesAfter int
	out               transcript
	// isStuck is true if the engine never stopped deciding, so that the run cannot continue.
	isStuck bool
	// problem is the first error that occurred while time passed.
	problem error
	// calls has, if it is recorded, every call that changed the engine since it was created, so that the engine can be copied.
	calls      []func(*admission.Engine)
	isRecorded bool
}

func newSimulation() *simulation {
	return &simulation{
		objects: newStore(), jobs: map[string]*job{}, workQueue: newWorkQueue(),
		jobSetQueue: newWorkQueue(), dirtyJobs: map[types.UID]bool{},
		byJobSet: map[types.NamespacedName]map[admission.StageKey]bool{}, diesAfter: -1,
	}
}

// start configures the engine and lets it observe the manifests.
func (s *simulation) start(script *scenario.Scenario, manifests *Manifests) error {
	for i := range script.Lines {
		if c, ok := script.Lines[i].Statement.(scenario.Configure); ok {
			if err := configure(&s.config, c.Settings); err != nil {
				return &scenario.Error{Line: script.Lines[i].Number, Err: err}
			}
		}
	}
	err := s.config.complete()
	if err != nil {
		return err
	}
	if s.engine, err = admission.New(s.config.Config); err != nil {
		return fmt.Errorf("configure the engine: %w", err)
	}
	manifests.addTo(s.objects, startTime())
	for _, event := range s.objects.events() {
		s.observe(event)
	}
	return nil
}

// startTime returns the time at which virtual time begins. Its date has no meaning.
func startTime() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func (s *simulation) time() time.Time { return startTime().Add(s.now) }

// observe applies an event to the engine, and compares its charges with the objects.
func (s *simulation) observe(event admission.Event) {
	s.call(func(e *admission.Engine) { e.Apply(event) })
	for _, violation := range s.engine.Violations() {
		s.violation("%s", violation)
	}
}

// call changes the engine.
func (s *simulation) call(change func(*admission.Engine)) {
	change(s.engine)
	if s.isRecorded {
		s.calls = append(s.calls, change)
	}
}

// decide runs scheduling cycles of the engine.
func (s *simulation) decide() (decisions []admission.Decision) {
	now := s.time()
	s.call(func(e *admission.Engine) { decisions = e.Decide(now) })
	return decisions
}

// crash creates a new engine. The last decisions of the old one are never written.
func (s *simulation) crash() {
	s.decide()
	s.say("crash")
	s.restart()
}

// crashAfter lets the manager die after some more writes, or at once.
func (s *simulation) crashAfter(writes *int32) {
	if writes == nil {
		s.crash()
		return
	}
	s.diesAfter = s.writes + int(*writes)
}

// restart starts a new manager, which reads all objects.
func (s *simulation) restart() {
	engine, err := admission.New(s.config.Config)
	if err != nil {
		s.fail(err)
		return
	}
	s.engine, s.calls = engine, nil
	s.workQueue.forget()
	s.workQueue.addAll(s.objects)
	s.jobSetQueue.forget()
	for _, j := range s.jobs {
		s.touch(j.Namespace, j.Name)
	}
	for _, event := range s.objects.events() {
		s.observe(event)
	}
}

func (s *simulation) fail(err error) {
	if s.problem == nil {
		s.problem = err
	}
}

// instant does all due work, until none is left before time passes.
func (s *simulation) instant() error {
	if s.isStuck {
		return nil
	}
	for range maxRounds {
		s.runControllers()
		if s.problem != nil {
			return s.problem
		}
		decisions := s.decide()
		for _, d := range decisions {
			s.write(d)
		}
		s.writeConsumption()
		if len(decisions) == 0 && !s.eventQueue.isDue(s.now) && !s.workQueue.isDue(s.now) && !s.jobSetQueue.isDue(s.now) && len(s.dirtyJobs) == 0 {
			s.audit()
			return nil
		}
	}
	s.violation("I3: the engine comes to no end: after %d rounds it still decides anew", maxRounds)
	s.isStuck = true
	return nil
}

// writeConsumption writes the consumed usage into the status of LocalQueues, where the engine reads it after a crash.
func (s *simulation) writeConsumption() {
	for key, queue := range s.objects.localQueues {
		if view, ok := s.engine.LocalQueue(key); ok {
			queue.Status.FairSharing = view.FairSharing.DeepCopy()
		}
	}
}

// runUntil advances the time.
func (s *simulation) runUntil(until time.Duration) error {
	for range maxInstants {
		if err := s.instant(); err != nil {
			return err
		}
		for f := s.eventQueue.report(s.now); f != nil; f = s.eventQueue.report(s.now) {
			f()
		}
		next, ok := s.next()
		if s.isStuck || !ok || next > until {
			if until < forever {
				s.now = until
			}
			return nil
		}
		s.now = next
	}
	return fmt.Errorf("the run comes to no end: at %s there is still something to come; write run until=TIME", clock(s.now))
}

// forever is the end of a run to the end.
const forever = time.Duration(1<<63 - 1)

// runToTheEnd finishes a scenario that does not end with a run line.
func (s *simulation) runToTheEnd() error {
	if s.hasRun {
		return s.runUntil(s.now)
	}
	return s.runUntil(forever)
}

// next returns the time of the next event.
func (s *simulation) next() (time.Duration, bool) {
	next, ok := s.eventQueue.next()
	if at, isAwaited := s.workQueue.next(); isAwaited && (!ok || at < next) {
		next, ok = at, true
	}
	if at, isAwaited := s.jobSetQueue.next(); isAwaited && (!ok || at < next) {
		next, ok = at, true
	}
	wanted, isWanted := s.engine.NextTime()
	if !isWanted {
		return next, ok
	}
	at := wanted.Sub(startTime())
	if at <= s.now {
		s.fail(errors.New("the engine asks to decide at " + clock(at) + ", which has passed"))
		return s.now, true
	}
	if !ok || at < next {
		return at, true
	}
	return next, true
}
