package simulator

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/history"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/internal/load"
	"github.com/tranche-dev/tranche/simulator/internal/pastruns"
	"github.com/tranche-dev/tranche/simulator/internal/scope"
	"github.com/tranche-dev/tranche/snapshot"
)

// An Outcome is what follows from a snapshot until a time. As that of a Prediction, it follows from the snapshot alone.
type Outcome struct {
	// TakenAt is when the snapshot was taken, and Until how far the simulation looked.
	TakenAt, Until time.Time
	// Histories has each quota Workload of the snapshot and each that the simulation created, in the order of namespace and name.
	Histories []History
	// Endless hold quota at the end and have neither a limit nor an estimate, so that the simulation never ends them.
	Endless []Blocker
	// Queues has the condition Active of each ClusterQueue, by its name.
	Queues map[string]admission.Activity
	// LeftOut has the JobSets that are not simulated.
	LeftOut []LeftOut

	estimates estimatedEnds
}

// A History is what happens to one quota Workload after a snapshot.
type History struct {
	Record
	// Check, Reason and Message say why it Waits at the end: the first check that it does not pass. Blockers are as those of a Start.
	Check, Reason, Message string
	Blockers               []Blocker
}

type (
	// A Record is the part of a History that shows in the objects.
	Record = history.Record
	// An Eviction takes the quota of a quota Workload back.
	Eviction = history.Eviction
	// An End is the state of a quota Workload at the end of a simulation.
	End = history.End
)

const (
	// Waits is pending, or gated.
	Waits = history.Waits
	// Holds has quota.
	Holds = history.Holds
	// Finished has ended.
	Finished = history.Finished
	// Gone no longer exists.
	Gone = history.Gone
)

// A Disturbance is what happens at the time of a snapshot, while the manager runs.
type Disturbance struct {
	// After has the objects as users and administrators leave them. A change of the configuration restarts the manager.
	After *snapshot.Snapshot
	// FailedNodes are quota Workloads whose pods run on nodes that fail: they are evicted.
	FailedNodes []admission.StageKey
}

// Simulate simulates what follows from a snapshot until a time. The simulation is that of Forecast: limits and estimates end stages.
func Simulate(s *snapshot.Snapshot, d *Durations, until time.Time) (*Outcome, error) {
	return SimulateDisturbance(s, &Disturbance{After: s}, d, until)
}

// SimulateDisturbance simulates what follows from a snapshot and a Disturbance at its time.
func SimulateDisturbance(s *snapshot.Snapshot, disturbance *Disturbance, d *Durations, until time.Time) (*Outcome, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("durations: %w", err)
	}
	t := newTracker(&forecast{durations: d})
	start := s
	if !equality.Semantic.DeepEqual(s.Configuration, disturbance.After.Configuration) {
		start = disturbance.After // the new manager finds all objects changed
	}
	if err := t.load(start); err != nil {
		return nil, err
	}
	t.watch(scope.Trees(disturbance.After))
	jobcontrollers.AnswerChecks(t.Cluster, d.Checks)
	if err := t.resume(); err != nil {
		return nil, err
	}
	if err := t.disturb(start, disturbance); err != nil {
		return nil, err
	}
	if err := t.advance(until.Sub(s.TakenAt)); err != nil {
		return nil, err
	}
	return t.outcome(s.TakenAt, until), nil
}

func newTracker(f *forecast) *tracker {
	f.toTheEnd, f.blockers = true, map[admission.StageKey]explained{}
	return &tracker{forecast: f}
}

// disturb lets the manager become idle, then the disturbance happen, and then the manager become idle again. Until then nothing else happens, however
// short its time is: pods that are not ready in the snapshot are not ready before the disturbance, or before the manager has answered it, checks do not
// pass, and pods that terminate are not gone.
func (t *tracker) disturb(start *snapshot.Snapshot, disturbance *Disturbance) error {
	t.Events.IsHeld = true
	defer func() { t.Events.IsHeld = false }()
	if err := t.instant(); err != nil {
		return err
	}
	if err := t.happen(start, disturbance); err != nil {
		return err
	}
	return t.instant()
}

// happen lets a disturbance happen.
func (t *tracker) happen(start *snapshot.Snapshot, disturbance *Disturbance) error {
	for _, key := range disturbance.FailedNodes {
		t.failNodes(key)
	}
	if start == disturbance.After {
		return nil
	}
	config, err := configurationOf(start)
	if err != nil {
		return err
	}
	t.leftOut, err = load.Change(t.Cluster, start, disturbance.After, config, t.durations.Termination)
	return err
}

// failNodes evicts a quota Workload whose pods run on nodes that fail.
func (t *tracker) failNodes(key admission.StageKey) {
	w := t.Workloads[key]
	if w == nil || !cluster.IsEvictable(w) {
		return
	}
	e := workloadstatus.Eviction{Reason: kueue.WorkloadEvictedDueToNodeFailures, Message: "some of its pods run on nodes that fail"}
	status := workloadstatus.Evicted(w, e, t.Time())
	t.Evict(w, &status, e.Reason+": "+e.Message)
}

// A tracker records what happens to quota Workloads.
type tracker struct {
	*forecast
	recorder  *history.Recorder
	estimates estimatedEnds
}

// watch records the changes of quota Workloads from now on.
func (t *tracker) watch(treesOf func(*kueue.Workload) string) {
	t.recorder = history.New(t.Cluster)
	t.Decided = t.recorder.Decided
	t.estimates = estimatedEnds{treesOf: map[admission.StageKey]string{}, ends: map[string][]estimatedEnd{}}
	for key, w := range t.Workloads {
		t.estimates.treesOf[key] = treesOf(w)
	}
	observe := t.Observe
	t.Observe = func(event admission.Event) {
		if observed, is := event.(admission.WorkloadObserved); is {
			trees := treesOf(observed.Workload)
			t.estimates.treesOf[cluster.KeyOf(observed.Workload)] = trees
			if basis := t.estimatedEnd(observed.Workload); basis.Runs > 0 {
				t.estimates.ends[trees] = append(t.estimates.ends[trees], estimatedEnd{t.Time(), basis})
			}
		}
		observe(event)
	}
}

// estimatedEnds are the ends of stages that come from their history, in the order of time.
type estimatedEnds struct {
	// treesOf has the trees of Cohorts of each quota Workload, and ends the ends in them.
	treesOf map[admission.StageKey]string
	ends    map[string][]estimatedEnd
}

type estimatedEnd struct {
	at    time.Time
	basis Basis
}

// BasisOf returns from which runs the time of an event of a quota Workload comes: those of the stage whose estimated end is the last one until then, of
// the stages that can influence it. It is zero if there are none: then the time follows from limits alone.
func (o *Outcome) BasisOf(workload admission.StageKey, at time.Time) Basis {
	ends := o.estimates.ends[o.estimates.treesOf[workload]]
	until := sort.Search(len(ends), func(i int) bool { return ends[i].at.After(at) })
	if until == 0 {
		return Basis{}
	}
	last := ends[until-1 : until]
	for i := until - 2; i >= 0 && ends[i].at.Equal(last[0].at); i-- {
		last = ends[i:until]
	}
	return slices.MinFunc(last, func(a, b estimatedEnd) int { return pastruns.CompareBases(a.basis, b.basis) }).basis
}

// outcome returns what was recorded, and explains what waits at the end.
func (t *tracker) outcome(takenAt, until time.Time) *Outcome {
	o := &Outcome{TakenAt: takenAt, Until: until, LeftOut: t.leftOut, Queues: map[string]admission.Activity{}, estimates: t.estimates}
	for _, record := range t.recorder.Records() {
		h := History{Record: record}
		if h.End == Waits {
			why := t.explanationOf(h.Workload)
			h.Check, h.Reason, h.Message, h.Blockers = why.check, why.reason, why.waits, why.blockers
		}
		o.Histories = append(o.Histories, h)
	}
	for name := range t.ClusterQueues {
		if view, exists := t.Engine.ClusterQueue(name); exists {
			o.Queues[name] = view.Active
		}
	}
	o.Endless = t.endless()
	return o
}

// endless returns what the simulation never ends.
func (t *tracker) endless() []Blocker {
	var all []Blocker
	for _, key := range t.WorkloadKeys() {
		if w := t.Workloads[key]; t.course.IsEndless(w) {
			all = append(all, t.holderOf(w))
		}
	}
	slices.SortFunc(all, compareBlockers)
	return slices.Compact(all)
}

// holderOf returns the JobSet, the gang or the quota Workload that holds the quota.
func (t *tracker) holderOf(w *kueue.Workload) Blocker {
	if plan, isPart := t.Plans[types.UID(w.Labels[apis.PlanUIDLabel])]; isPart && w.Labels[apis.JobSetLabel] == "" {
		return Blocker{Kind: visibility.Gang, Namespace: plan.Owner.Key.Namespace, Name: plan.Owner.Key.Name}
	}
	if js := w.Labels[apis.JobSetLabel]; js != "" {
		return Blocker{Kind: visibility.JobSet, Namespace: w.Namespace, Name: js}
	}
	return Blocker{Kind: visibility.Workload, Namespace: w.Namespace, Name: w.Name}
}
