// Package plan answers what follows from a change of queues, for JobSets and other quota Workloads. A Change is what manifests, or a question such
// as the loss of nodes, change in a snapshot. New simulates what follows from the snapshot with and without the change, and compares the two: the
// Consequences are the differences. The same input gives the same Plan.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator"
)

// A Plan is a Change and what follows from it.
type Plan struct {
	// TakenAt is when the snapshot was taken. The change is made at that time. Until is how far the simulations looked.
	TakenAt time.Time `json:"takenAt"`
	Until   time.Time `json:"until"`
	Change
	// Queues are the ClusterQueues that begin or cease to admit quota Workloads.
	Queues []QueueChange `json:"queues,omitempty"`
	// Consequences are the differences for quota Workloads: the worst kinds first, and each kind by time and name.
	Consequences []Consequence `json:"consequences"`
	// Unknown wait at the end of the simulation with the change, for quota that its holders release at no known time.
	Unknown []Unknown `json:"unknown,omitempty"`
	// Endless hold quota and have no maximum execution time. The simulations never end them, so what waits for them may start earlier.
	Endless []string `json:"endless,omitempty"`
	// NotSimulated are JobSets that the manager does not manage or refuses, with the reason.
	NotSimulated []string `json:"notSimulated,omitempty"`
}

// A QueueChange is a ClusterQueue whose condition Active differs.
type QueueChange struct {
	Name string `json:"name"`
	// Before and After are the messages of the condition. They are empty if the ClusterQueue does not exist.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// IsActive is true if it admits quota Workloads after the change.
	IsActive bool `json:"isActive"`
}

// An Unknown is a quota Workload whose start is not known.
type Unknown struct {
	Stage
	// Message says why it waits, and Blockers what holds the quota that it needs.
	Message  string   `json:"message,omitempty"`
	Blockers []string `json:"blockers"`
}

// A Severity is how bad the consequences of a change are.
type Severity int

const (
	// Nothing follows.
	Nothing Severity = iota
	// Follows is at least one consequence, and none that Harms.
	Follows
	// Harms is a JobSet, or another owner of a quota Workload, that is evicted, can never fit or can no longer finish.
	Harms
)

// New returns what follows from a change until some time after the snapshot was taken. The durations are those of simulator.Forecast.
func New(c *Change, d *simulator.Durations, horizon time.Duration) (*Plan, error) {
	if horizon <= 0 {
		return nil, fmt.Errorf("the horizon is %s, must be positive", horizon)
	}
	until := c.before.TakenAt.Add(horizon)
	after, err := simulator.SimulateDisturbance(c.before, &simulator.Disturbance{After: c.after, FailedNodes: c.failures}, d, until)
	if err != nil {
		return nil, fmt.Errorf("simulate the change: %w", err)
	}
	if err := c.refused(after); err != nil {
		return nil, err
	}
	before, err := simulator.Simulate(c.before, d, until)
	if err != nil {
		return nil, fmt.Errorf("simulate the snapshot without the change: %w", err)
	}
	p := &Plan{TakenAt: c.before.TakenAt, Until: until, Change: *c, Queues: queueChanges(before, after), Consequences: compare(before, after)}
	for i := range after.Histories {
		if h := &after.Histories[i]; h.End == simulator.Waits && len(h.Blockers) > 0 {
			p.Unknown = append(p.Unknown, Unknown{Stage: stageOf(h), Message: h.Message, Blockers: namesOf(h.Blockers)})
		}
	}
	p.Endless = namesOf(after.Endless)
	for _, left := range after.LeftOut {
		p.NotSimulated = append(p.NotSimulated, fmt.Sprintf("%s %s: %s", left.Kind, left.Key, left.Why))
	}
	return p, nil
}

// Check returns an error that names a tree of Cohorts, of before or after the change, that is too large to be simulated.
func (c *Change) Check(bound simulator.Bound) error {
	return cmp.Or(bound.Check(c.before), bound.Check(c.after))
}

// PastRuns returns how long the stages took that the snapshot has the times of, for the JobSets before and after the change.
func (c *Change) PastRuns() *simulator.PastRuns { return simulator.PastRunsOf(c.after) }

// Severity returns how bad the consequences are.
func (p *Plan) Severity() Severity {
	worst := Nothing
	if len(p.Queues) > 0 {
		worst = Follows
	}
	for i := range p.Consequences {
		worst = max(worst, p.Consequences[i].Kind.severity())
	}
	return worst
}

// refused returns an error about objects of the change that the manager or the engine refuses.
func (c *Change) refused(after *simulator.Outcome) error {
	var problems []error
	for i := range c.Objects {
		o := &c.Objects[i]
		if o.Action != Create && o.Action != Update {
			continue
		}
		for _, left := range after.LeftOut {
			if left.Kind == o.Kind && left.Key.Namespace == o.Namespace && left.Key.Name == o.Name {
				problems = append(problems, fmt.Errorf("%s: %s", o, left.Why))
			}
		}
		if a := after.Queues[o.Name]; o.Kind == "ClusterQueue" && isMistake(a) {
			problems = append(problems, errors.New(a.Sentence(o.Name)))
		}
	}
	return errors.Join(problems...)
}

// isMistake reports whether the spec of a ClusterQueue itself is wrong, so that the API server would refuse it or the engine does not count it as
// written. A ClusterQueue that refers to objects that do not exist is none: they may be applied later.
func isMistake(a admission.Activity) bool {
	return a.Reason == kueue.ClusterQueueActiveReasonUnknown || strings.Contains(a.Message, "correct spec.resourceGroups")
}

// queueChanges compares the conditions Active of ClusterQueues.
func queueChanges(before, after *simulator.Outcome) []QueueChange {
	var all []QueueChange
	for name, now := range after.Queues {
		old, existed := before.Queues[name]
		isActive := now.Status == metav1.ConditionTrue
		switch {
		case !existed && !isActive, existed && (old.Status == metav1.ConditionTrue) != isActive, existed && !isActive && old.Message != now.Message:
			all = append(all, QueueChange{Name: name, Before: stateOf(old), After: stateOf(now), IsActive: isActive})
		}
	}
	for name, old := range before.Queues {
		if _, exists := after.Queues[name]; !exists {
			all = append(all, QueueChange{Name: name, Before: stateOf(old)})
		}
	}
	slices.SortFunc(all, func(a, b QueueChange) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// stateOf returns what the condition Active of a ClusterQueue says, in plain words.
func stateOf(a admission.Activity) string { return cmp.Or(a.Why, a.Message) }

func namesOf(blockers []simulator.Blocker) []string {
	var names []string
	for _, b := range blockers {
		names = append(names, b.String())
	}
	return names
}
