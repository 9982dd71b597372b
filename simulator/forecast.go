package simulator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/durations"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/internal/pastruns"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Prediction says when the pending quota Workloads of a snapshot are expected to be admitted. It follows from the snapshot alone: later
// submissions, changes and failures are not known.
type Prediction struct {
	// TakenAt is when the snapshot was taken, and Until how far the simulation looked.
	TakenAt, Until time.Time
	// Starts has each quota Workload that is pending or being evicted, in the order of namespace and name.
	Starts []Start
	// LeftOut has the JobSets that are not simulated.
	LeftOut []LeftOut
	// Interrupted is the error that ended the simulation, or the explanation of Unknown starts, before its time, or nil. Then an Unknown start was not
	// determined, or is not explained.
	Interrupted error
}

// A Certainty is how sure an expected start is.
type Certainty string

const (
	// By is a start that follows from maximum execution times: stages may end earlier.
	By Certainty = "By"
	// About is a start that also follows from estimates.
	About Certainty = "About"
	// Unknown is no start: not before the end of the simulation.
	Unknown Certainty = "Unknown"
)

// A Start is when a quota Workload is expected to be admitted for the first time after the snapshot.
type Start struct {
	// Workload is the quota Workload.
	Workload admission.StageKey
	// JobSet, Stage and Growth say what it stands for. They are empty if it belongs to no JobSet.
	JobSet, Stage string
	Growth        int
	// By is when it is admitted if only limits end stages: spec.maximumExecutionTimeSeconds. It is zero if it is not admitted then. Estimates of
	// readiness count.
	By time.Time
	// About is when it is admitted if limits and estimates end stages. It is zero if it is not admitted then, or if there are no estimates.
	About time.Time
	// Basis is from which runs About comes: those of the stage whose estimated end is the last one before it. It is zero if there are none.
	Basis Basis
	// ClusterQueue is the queue in which it is pending, and Position counts the quota Workloads before it there. Only ForecastFirst returns them.
	ClusterQueue string
	Position     int
	// IsBeyond is true if ForecastFirst does not predict the start, because there are too many before it.
	IsBeyond bool
	// Waits says why an Unknown one still waits at the end: the first check that it does not pass, as `tranche explain` prints it.
	Waits string
	// Blockers hold the quota that an Unknown one needs and have neither a limit nor an estimate, in order.
	Blockers []Blocker
}

// Certainty returns how sure the start is. A start that limits bound is By, even if estimates expect an earlier one.
func (s *Start) Certainty() Certainty {
	switch {
	case !s.By.IsZero():
		return By
	case !s.About.IsZero():
		return About
	}
	return Unknown
}

// Forecast simulates what follows from a snapshot until a time, and returns when the pending quota Workloads are admitted. The same input gives
// the same prediction. AdmissionChecks pass, and no pod fails. With admissionFairSharing, the manager notices at the next sample that another stage has come
// to precede the first of a StrictFIFO queue, a due stage, or an equal one that holds quota, and the simulation at once: unless the snapshot is from the time
// of a sample, starts may differ by a sampling interval, and by what follows from that.
func Forecast(s *snapshot.Snapshot, d *Durations, until time.Time) (*Prediction, error) {
	return (&question{durations: d, until: until, isAsked: isPending, maxDecisions: maxDecisionsForAll}).predict(s)
}

// ForecastOf does the same for some of the quota Workloads, and simulates only the queues that can influence when they start: those in the same
// trees of Cohorts. So it takes less time.
func ForecastOf(s *snapshot.Snapshot, d *Durations, until time.Time, workloads ...admission.StageKey) (*Prediction, error) {
	return (&question{durations: d, until: until, isAsked: among(workloads), maxDecisions: maxDecisions, maxChecks: maxChecks}).predict(Around(s, workloads...))
}

// ForecastFirst does the same for those of the quota Workloads that are among the first in their ClusterQueues, and for those that are in none. Of
// the others it returns the position. The snapshot is one of those that Parts returns. If the context ends, the prediction has the starts that are
// known until then.
func ForecastFirst(ctx context.Context, s *snapshot.Snapshot, d *Durations, first First) (*Prediction, error) {
	return (&question{durations: d, until: first.Until, isAsked: among(first.Of), first: first.Count, interrupt: ctx.Err}).predict(s)
}

// First selects pending quota Workloads.
type First struct {
	// Of are all quota Workloads that count, and Count is how many of each ClusterQueue are predicted, at least 1.
	Of    []admission.StageKey
	Count int
	// Until is when the simulation ends.
	Until time.Time
}

// among returns a predicate of those quota Workloads that are pending.
func among(workloads []admission.StageKey) func(*kueue.Workload) bool {
	asked := map[admission.StageKey]bool{}
	for _, key := range workloads {
		asked[key] = true
	}
	return func(w *kueue.Workload) bool { return isPending(w) && asked[cluster.KeyOf(w)] }
}

// A question is what to predict.
type question struct {
	durations *Durations
	until     time.Time
	// isAsked reports whether to predict the start of a quota Workload.
	isAsked func(*kueue.Workload) bool
	// first is how many quota Workloads of each ClusterQueue count, or 0 for all of them, without their positions.
	first int
	// interrupt returns an error when it is time to end. It may be nil.
	interrupt func() error
	// maxDecisions is after how many decisions of the engine the simulation is interrupted, or 0, and maxChecks after how many checks of stages.
	maxDecisions int
	maxChecks    uint64
}

// predict returns when those pending quota Workloads start that are asked for.
func (q *question) predict(s *snapshot.Snapshot) (*Prediction, error) {
	d := q.durations
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("durations: %w", err)
	}
	limited := &forecast{durations: d, isAsked: q.isAsked, first: q.first, onlyLimits: true}
	return q.complete(s, limited, limited.run(s, q))
}

// complete makes a prediction from the simulation with limits alone, and the error that ended it.
func (q *question) complete(s *snapshot.Snapshot, limited *forecast, err error) (*Prediction, error) {
	d := q.durations
	if err != nil && !errors.Is(err, errInterrupted) {
		return nil, err
	}
	p := &Prediction{TakenAt: s.TakenAt, Until: q.until, Starts: limited.starts, LeftOut: limited.leftOut, Interrupted: err}
	for i := range p.Starts {
		p.Starts[i].By = limited.at(p.Starts[i].Workload)
	}
	last := limited
	if err == nil && (!d.PastRuns.IsEmpty() || slices.ContainsFunc(d.Estimates, func(e Estimate) bool { return e.Run > 0 })) {
		last = &forecast{durations: d, isAsked: limited.isAwaited}
		if err := last.run(s, q); err != nil {
			if !errors.Is(err, errInterrupted) {
				return nil, err
			}
			p.Interrupted = err
		}
		for i := range p.Starts {
			p.Starts[i].About, p.Starts[i].Basis = last.at(p.Starts[i].Workload), last.bases[p.Starts[i].Workload]
		}
	}
	if p.Interrupted == nil {
		p.Interrupted = last.explainUnknown(p.Starts)
	}
	return p, nil
}

// A forecast is one simulation of what follows from a snapshot.
type forecast struct {
	*simulation
	durations *Durations
	// isAsked reports whether to predict the start of a quota Workload.
	isAsked func(*kueue.Workload) bool
	// first is how many quota Workloads of each ClusterQueue are awaited, or 0 for all.
	first int
	// onlyLimits is true if the run times of the estimates do not count.
	onlyLimits bool
	course     *durations.Course
	leftOut    []LeftOut
	// starts are those of the quota Workloads that are asked for, and admitted when they were admitted, or -1. awaited counts these.
	starts   []Start
	admitted map[admission.StageKey]time.Duration
	awaited  int
	// ends has the bases of the estimated ends at the time of the last one, and bases those of the admissions that followed.
	ends   []Basis
	endsAt time.Duration
	bases  map[admission.StageKey]Basis
	// maxDecisions and maxChecks are those of the question.
	maxDecisions int
	maxChecks    uint64
	// toTheEnd is true if the simulation goes on when all of them were admitted.
	toTheEnd bool
	// gangs has the quota Workloads of the gangs that gather their quota in parts, and blockers those of quota Workloads that are known.
	gangs    map[admission.StageKey][]admission.StageKey
	blockers map[admission.StageKey]explained
}

// load creates the simulation.
func (f *forecast) load(s *snapshot.Snapshot) (err error) {
	f.simulation, f.leftOut, err = fromSnapshot(s, f.durations.Termination)
	if err != nil {
		return err
	}
	f.IsQuiet, f.IsSilent = true, true
	f.course = &durations.Course{Cluster: f.Cluster, Estimates: f.durations.Estimates, History: f.durations.PastRuns, OnlyLimits: f.onlyLimits}
	f.Course = f.course
	return nil
}

// run simulates until every pending quota Workload was admitted, nothing is left to happen, or the time has come.
func (f *forecast) run(s *snapshot.Snapshot, q *question) error {
	if err := f.load(s); err != nil {
		return err
	}
	f.await(q)
	f.watch()
	jobcontrollers.AnswerChecks(f.Cluster, f.durations.Checks)
	if err := f.resume(); err != nil {
		return err
	}
	if f.first > 0 {
		f.awaitFirst()
	}
	return f.advance(q.until.Sub(s.TakenAt))
}

// await awaits the quota Workloads that a question asks for.
func (f *forecast) await(q *question) {
	f.interrupt, f.maxDecisions, f.maxChecks = q.interrupt, q.maxDecisions, q.maxChecks
	f.admitted, f.bases = map[admission.StageKey]time.Duration{}, map[admission.StageKey]Basis{}
	for key, w := range f.Workloads {
		if f.isAsked(w) {
			f.starts = append(f.starts, startOf(w))
			f.admitted[key] = -1
		}
	}
	slices.SortFunc(f.starts, func(a, b Start) int { return cluster.CompareKeys(a.Workload, b.Workload) })
	f.awaited = len(f.starts)
}

// awaitFirst sets the positions, and no longer awaits quota Workloads that are not among the first in their ClusterQueues.
func (f *forecast) awaitFirst() {
	f.Engine.Advance(f.Time())
	positions := map[admission.StageKey]admission.Pending{}
	for name := range f.ClusterQueues {
		pending, _ := f.Engine.PendingInClusterQueue(name, admission.Page{Limit: math.MaxInt})
		for _, p := range pending {
			positions[p.Stage] = p
		}
	}
	for i := range f.starts {
		start := &f.starts[i]
		p, isQueued := positions[start.Workload]
		if !isQueued {
			continue
		}
		start.ClusterQueue, start.Position = p.ClusterQueue, p.InClusterQueue
		if start.IsBeyond = p.InClusterQueue >= f.first; start.IsBeyond {
			delete(f.admitted, start.Workload)
			f.awaited--
		}
	}
}

// isAwaited reports whether the start of a quota Workload is awaited.
func (f *forecast) isAwaited(w *kueue.Workload) bool {
	_, is := f.admitted[cluster.KeyOf(w)]
	return is
}

// isPending reports whether a quota Workload waits for its admission, or for its pods to terminate so that it can wait again.
func isPending(w *kueue.Workload) bool {
	return !cluster.IsFinished(w) && w.DeletionTimestamp.IsZero() && (!isAdmitted(w) || quotaworkload.IsTrue(w, kueue.WorkloadEvicted))
}

func isAdmitted(w *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadAdmitted)
}

// watch records when pending quota Workloads are admitted.
func (f *forecast) watch() {
	observe := f.Observe
	f.Observe = func(event admission.Event) {
		if observed, is := event.(admission.WorkloadObserved); is {
			w := observed.Workload
			f.noteEnd(w)
			if at, isPending := f.admitted[cluster.KeyOf(w)]; isPending && at < 0 && isAdmitted(w) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted) {
				f.admitted[cluster.KeyOf(w)] = f.Now
				f.awaited--
				f.noteBasis(cluster.KeyOf(w))
			}
		}
		observe(event)
	}
}

// estimatedEnd returns the history from which the end of a stage comes, or zero for a stage that does not end now, or ends by its limit.
func (f *forecast) estimatedEnd(w *kueue.Workload) Basis {
	finished := quotaworkload.FindTrue(w, kueue.WorkloadFinished)
	if f.durations == nil || f.onlyLimits || f.durations.PastRuns.IsEmpty() || finished == nil || finished.LastTransitionTime.Time.Before(f.Timestamp().Time) {
		return Basis{}
	}
	if f.durations.HasReachedLimit(w, f.Time()) {
		return Basis{}
	}
	return f.durations.PastRuns.BasisOf(w)
}

// noteEnd records the end of a stage that comes from its history.
func (f *forecast) noteEnd(w *kueue.Workload) {
	if b := f.estimatedEnd(w); b.Runs > 0 {
		if f.Now > f.endsAt {
			f.ends = nil
		}
		f.ends, f.endsAt = append(f.ends, b), f.Now
	}
}

// noteBasis records on which history an admission is based.
func (f *forecast) noteBasis(key admission.StageKey) {
	if len(f.ends) > 0 {
		f.bases[key] = slices.MinFunc(f.ends, pastruns.CompareBases)
	}
}

// advance lets time pass.
func (f *forecast) advance(until time.Duration) error {
	for {
		if err := f.instant(); err != nil {
			return err
		}
		if f.RemoveUnused() {
			continue
		}
		next, ok := f.nextTime()
		switch {
		case f.Problem != nil:
			return f.Problem
		case f.isStuck:
			return fmt.Errorf("the simulation stops at %s: %s", f.Time().UTC().Format(time.RFC3339), f.Violations[len(f.Violations)-1])
		case f.awaited == 0 && !f.toTheEnd || !ok || next > until:
			return nil
		case f.maxDecisions > 0 && f.decisions > f.maxDecisions, f.maxChecks > 0 && f.Engine.Checked() > f.maxChecks:
			return fmt.Errorf("%w after %d decisions and %d checks of stages, at %s", errInterrupted, f.decisions, f.Engine.Checked(), f.Time().UTC().Format(time.RFC3339))
		}
		f.Now = next
	}
}

// startOf returns the start of a quota Workload, at no known time yet.
func startOf(w *kueue.Workload) Start {
	start := Start{Workload: cluster.KeyOf(w)}
	if w.Labels[apis.JobSetLabel] != "" {
		start.JobSet, start.Stage, start.Growth = w.Labels[apis.JobSetLabel], w.Labels[apis.StageLabel], growthOf(w)
	}
	return start
}

// at returns when a quota Workload was admitted, or zero.
func (f *forecast) at(key admission.StageKey) time.Time {
	at, isPending := f.admitted[key]
	if !isPending || at < 0 {
		return time.Time{}
	}
	return f.Beginning().Add(at)
}
