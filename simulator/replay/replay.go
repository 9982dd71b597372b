// Package replay runs the engine and the lifecycle on jobs that have arrived in a cluster: on the same arrivals, with the same durations, under the
// policy of Tranche or with each JobSet admitted as a whole. The difference of two runs shows what the policy changes: what the simulation gets wrong is
// in both.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/internal/load"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Policy is how JobSets are admitted.
type Policy string

const (
	// Staged admits one stage at a time, as Tranche does.
	Staged Policy = "Staged"
	// Whole admits a JobSet for the sum of all its stages, less the pods that have succeeded, as Kueue does.
	Whole Policy = "Whole"
)

// An Input is what is replayed.
type Input struct {
	// From and To are when the replay begins and ends.
	From, To time.Time
	// Queues are the versions of the queues and of the other objects that decide admission, the first one as of From. They have no jobs.
	Queues []Version
	// Arrivals have different names.
	Arrivals []*Arrival
}

// maxJobs is how many Jobs a JobSet may have: each of them becomes an object.
const maxJobs = 10_000

// A Version has the objects as they are from a time on.
type Version struct {
	At      time.Time
	Objects *snapshot.Snapshot
}

// Run replays the input under a policy. The same input gives the same outcome.
func Run(in *Input, policy Policy) (*Outcome, error) {
	r, err := newRun(in, policy)
	if err != nil {
		return nil, err
	}
	if err := r.Start(); err != nil {
		return nil, err
	}
	r.planChanges()
	for _, a := range inOrder(in.Arrivals) {
		r.at(a.At, func() { r.submit(a) })
		if !a.Deleted.IsZero() {
			r.at(a.Deleted, func() { r.Delete(a.Key()) })
		}
	}
	if err := r.Advance(in.To.Sub(r.Beginning())); err != nil {
		return nil, fmt.Errorf("replay, policy %s: %w", policy, err)
	}
	r.Now = max(r.Now, in.To.Sub(r.Beginning()))
	return r.outcome(), nil
}

// inOrder returns the arrivals in the order of time. JobSets that arrive together are submitted in the order of their creation.
func inOrder(arrivals []*Arrival) []*Arrival {
	return slices.SortedStableFunc(slices.Values(arrivals), func(a, b *Arrival) int {
		return cmp.Or(a.At.Compare(b.At), a.created().Compare(b.created()))
	})
}

func (a *Arrival) created() time.Time {
	if a.JobSet != nil {
		return a.JobSet.CreationTimestamp.Time
	}
	return a.Workload.CreationTimestamp.Time
}

// A run is one replay.
type run struct {
	*simulator.Stepper
	input     *Input
	config    *configapi.Configuration
	submitter *load.Submitter
	policy    Policy
	results   map[types.NamespacedName]*Result
	holdings  map[admission.StageKey]*openHolding
}

func newRun(in *Input, policy Policy) (*run, error) {
	if len(in.Queues) == 0 {
		return nil, errors.New("the replay has no version of the queues")
	}
	first := *in.Queues[0].Objects
	first.TakenAt = in.From.Truncate(time.Second)
	stepper, err := simulator.Begin(&first)
	if err != nil {
		return nil, err
	}
	config := first.Configuration.DeepCopy()
	if config == nil {
		config = &configapi.Configuration{}
	}
	config.SetDefaults()
	r := &run{
		Stepper: stepper, input: in, config: config, policy: policy, submitter: load.NewSubmitter(stepper.Cluster, &first, config),
		results: map[types.NamespacedName]*Result{}, holdings: map[admission.StageKey]*openHolding{},
	}
	c := &course{
		arrivals: map[types.NamespacedName]*Arrival{}, policy: policy, begin: stepper.Beginning(), lags: map[attempt]map[string]lag{},
		executed: func(key types.NamespacedName, e *Execution) { r.results[key].execute(e) },
	}
	for _, a := range in.Arrivals {
		c.arrivals[a.Key()] = a
	}
	r.Course = c
	r.watch()
	return r, nil
}

// at plans something.
func (r *run) at(at time.Time, do func()) { r.Events.Add(max(0, at.Sub(r.Beginning())), do) }

// planChanges plans the changes of queues.
func (r *run) planChanges() {
	for i := 1; i < len(r.input.Queues); i++ {
		before, after := r.input.Queues[i-1].Objects, r.input.Queues[i].Objects
		r.at(r.input.Queues[i].At, func() {
			if _, err := load.Change(r.Cluster, before, after, r.config, 0); err != nil {
				r.Fail(err)
			}
		})
	}
}

// submit submits a job.
func (r *run) submit(a *Arrival) {
	result := &Result{Arrival: a}
	r.results[a.Key()] = result
	if a.JobSet == nil {
		r.PlainJobController.Submit(r.submitter.Job(a.Workload))
		return
	}
	if jobs := a.jobs(); jobs > maxJobs {
		result.LeftOut = fmt.Sprintf("it has %d Jobs: JobSets with more than %d are not replayed", jobs, maxJobs)
		return
	}
	js := load.Held(a.JobSet)
	// A plan that is wrong is refused under both policies.
	if result.LeftOut = r.submitter.Refusal(js); result.LeftOut != "" {
		return
	}
	if r.policy == Whole {
		js = whole(js)
	}
	result.LeftOut = r.submitter.JobSet(js)
}
