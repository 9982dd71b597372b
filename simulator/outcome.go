package simulator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
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
}

// A History is what happens to one quota Workload after a snapshot.
type History struct {
	// Workload is the quota Workload.
	Workload admission.StageKey
	// JobSet, Stage and Growth say what it stands for. They are empty if it belongs to no JobSet.
	JobSet, Stage string
	Growth        int
	// IsAdmitted is true if it was admitted before the snapshot and is not being evicted.
	IsAdmitted bool
	// Starts are the times at which it is admitted. An earlier admission is not among them.
	Starts []time.Time
	// Evictions are in the order of time. One that began before the snapshot is not among them.
	Evictions []Eviction
	// End is its state at the end, and since when it has finished, if it has.
	End      End
	Finished time.Time
	// Check, Reason and Message say why it Waits at the end: the first check that it does not pass. Blockers are as those of a Start.
	Check, Reason, Message string
	Blockers               []Blocker
}

// An End is the state of a quota Workload at the end of a simulation.
type End string

const (
	// Waits is pending, or gated.
	Waits End = "Waits"
	// Holds has quota.
	Holds End = "Holds"
	// Finished has ended.
	Finished End = "Finished"
	// Gone no longer exists.
	Gone End = "Gone"
)

// An Eviction takes the quota of a quota Workload back.
type Eviction struct {
	At time.Time
	// Reason and Message are those of the condition Evicted.
	Reason, Message string
	// Preemptor is the quota Workload that gets the quota, or empty.
	Preemptor admission.StageKey
	// IsUnsafe is true if the JobSet could no longer have finished with the quota that it held, or others could not because of it.
	IsUnsafe bool
	// Ran is how long the quota Workload was admitted before: the work since then is lost. Finished stages are not repeated, so this is the work since
	// the last stage boundary.
	Ran time.Duration
	// Held is the quota that it held during that time.
	Held corev1.ResourceList
}

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
	if err := d.validate(); err != nil {
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
	t.watch()
	t.answerChecks(d.Checks)
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
	return &tracker{
		forecast: f, histories: map[admission.StageKey]*History{}, phases: map[admission.StageKey]phase{}, evicted: map[admission.StageKey]admission.Evict{},
	}
}

// disturb lets the manager become idle, and then the disturbance happen.
func (t *tracker) disturb(start *snapshot.Snapshot, disturbance *Disturbance) error {
	if start == disturbance.After && len(disturbance.FailedNodes) == 0 {
		return nil
	}
	if err := t.instant(); err != nil {
		return err
	}
	for _, key := range disturbance.FailedNodes {
		t.failNodes(key)
	}
	if start == disturbance.After {
		return nil
	}
	_, leftOut, err := fromSnapshot(disturbance.After, t.durations.Termination)
	if err != nil {
		return err
	}
	t.leftOut = leftOut
	return t.applyChange(start, disturbance.After, t.durations.Termination)
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
	histories map[admission.StageKey]*History
	phases    map[admission.StageKey]phase
	// evicted has the last eviction of each quota Workload that the engine decided.
	evicted map[admission.StageKey]admission.Evict
}

// A phase is what matters of the state of a quota Workload.
type phase struct {
	isAdmitted, isEvicting, isFinished bool
	// since is when it was admitted.
	since time.Time
}

func phaseOf(w *kueue.Workload) phase {
	return phase{
		isAdmitted: isAdmitted(w) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted) && !cluster.IsFinished(w),
		isEvicting: quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadEvicted),
		isFinished: cluster.IsFinished(w),
	}
}

// watch records the changes of quota Workloads from now on.
func (t *tracker) watch() {
	for key, w := range t.Workloads {
		p := phaseOf(w)
		if c := quotaworkload.FindTrue(w, kueue.WorkloadAdmitted); p.isAdmitted {
			p.since = c.LastTransitionTime.Time
		}
		t.phases[key] = p
		t.historyOf(w).IsAdmitted = p.isAdmitted
	}
	t.Decided = func(decision admission.Decision) {
		if d, is := decision.(admission.Evict); is {
			t.evicted[d.Stage] = d
		}
	}
	observe := t.Observe
	t.Observe = func(event admission.Event) {
		switch event := event.(type) {
		case admission.WorkloadObserved:
			t.record(event.Workload)
		case admission.WorkloadGone:
			delete(t.phases, event.Key)
		}
		observe(event)
	}
}

func (t *tracker) historyOf(w *kueue.Workload) *History {
	key := cluster.KeyOf(w)
	if t.histories[key] == nil {
		s := startOf(w)
		t.histories[key] = &History{Workload: key, JobSet: s.JobSet, Stage: s.Stage, Growth: s.Growth}
	}
	return t.histories[key]
}

// record compares a quota Workload with its previous version.
func (t *tracker) record(w *kueue.Workload) {
	key := cluster.KeyOf(w)
	before, now, h := t.phases[key], phaseOf(w), t.historyOf(w)
	now.since = before.since
	if now.isAdmitted && !before.isAdmitted {
		now.since = t.Time()
		h.Starts = append(h.Starts, t.Time())
	}
	if now.isEvicting && !before.isEvicting {
		h.Evictions = append(h.Evictions, t.evictionOf(w, before))
	}
	switch {
	case !now.isFinished:
		h.Finished = time.Time{}
	case !before.isFinished:
		h.Finished = t.Time()
	}
	t.phases[key] = now
}

// evictionOf describes an eviction that has begun.
func (t *tracker) evictionOf(w *kueue.Workload, before phase) Eviction {
	c := quotaworkload.FindTrue(w, kueue.WorkloadEvicted)
	e := Eviction{At: t.Time(), Reason: c.Reason, Message: c.Message, Held: heldBy(w)}
	if before.isAdmitted {
		e.Ran = max(0, t.Time().Sub(before.since))
	}
	d, isDecided := t.evicted[cluster.KeyOf(w)]
	if isDecided && d.Message == c.Message {
		e.IsUnsafe = d.ResolvesDeadlock
		if d.Preemption != nil {
			e.Preemptor = d.Preemption.Preemptor
		}
	}
	return e
}

// heldBy returns the quota that a quota Workload holds, added up over its flavors.
func heldBy(w *kueue.Workload) corev1.ResourceList {
	held := corev1.ResourceList{}
	for fr, amount := range cluster.Usage(w, string(w.Status.Admission.ClusterQueue)) {
		sum := held[fr.Resource]
		sum.Add(amount)
		held[fr.Resource] = sum
	}
	return held
}

// outcome returns what was recorded, and explains what waits at the end.
func (t *tracker) outcome(takenAt, until time.Time) *Outcome {
	o := &Outcome{TakenAt: takenAt, Until: until, LeftOut: t.leftOut, Queues: map[string]admission.Activity{}}
	for _, key := range slices.SortedFunc(maps.Keys(t.histories), cluster.CompareKeys) {
		h := t.histories[key]
		t.conclude(h)
		o.Histories = append(o.Histories, *h)
	}
	for name := range t.ClusterQueues {
		if view, exists := t.Engine.ClusterQueue(name); exists {
			o.Queues[name] = view.Active
		}
	}
	o.Endless = t.endless()
	return o
}

func (t *tracker) conclude(h *History) {
	w := t.Workloads[h.Workload]
	switch {
	case w == nil:
		h.End = Gone
	case cluster.IsFinished(w):
		h.End = Finished
	case quotaworkload.HoldsQuota(w):
		h.End = Holds
	default:
		why := t.explanationOf(h.Workload)
		h.End, h.Check, h.Reason, h.Message, h.Blockers = Waits, why.check, why.reason, why.waits, why.blockers
	}
}

// endless returns what the simulation never ends.
func (t *tracker) endless() []Blocker {
	var all []Blocker
	for _, key := range t.WorkloadKeys() {
		if w := t.Workloads[key]; t.course.isEndless(w) {
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
