package simulator

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Study answers all questions about some quota Workloads of a snapshot: it has the answers of Inspect and of ForecastOf, and a Laboratory of each.
// Where nothing but time changes the snapshot, one simulation answers them, which reads the snapshot once.
type Study struct {
	part      *snapshot.Snapshot
	durations *Durations
	workloads []admission.StageKey

	// inspection is nil if one simulation answers. begun is that simulation, until it was used, and the others are its answers.
	inspection   *Inspection
	begun        *forecast
	reasons      map[admission.StageKey]Reason
	leftOut      []LeftOut
	laboratories map[admission.StageKey]*Laboratory
}

// NewStudy returns a Study of some quota Workloads of a snapshot.
func NewStudy(s *snapshot.Snapshot, d *Durations, workloads ...admission.StageKey) (*Study, error) {
	st := &Study{part: influencing(s, workloads), durations: d, workloads: workloads}
	isShared, err := st.share()
	if err == nil && !isShared {
		st.inspection, err = Inspect(st.part, workloads...)
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Why returns the answer of an Inspection about one of the quota Workloads.
func (st *Study) Why(workload admission.StageKey) (r Reason, ok bool) {
	if st.inspection != nil {
		return st.inspection.Why(workload)
	}
	r, ok = st.reasons[workload]
	return r, ok
}

// LeftOut returns that of an Inspection.
func (st *Study) LeftOut() []LeftOut {
	if st.inspection != nil {
		return st.inspection.LeftOut()
	}
	return st.leftOut
}

// Forecast returns the answer of ForecastOf.
func (st *Study) Forecast(until time.Time) (*Prediction, error) {
	f := st.begun
	if f == nil {
		return ForecastOf(st.part, st.durations, until, st.workloads...)
	}
	st.begun = nil
	f.watch()
	jobcontrollers.AnswerChecks(f.Cluster, st.durations.Checks)
	f.continuePods()
	q := st.question()
	q.until = until
	return q.complete(st.part, f, f.advance(until.Sub(st.part.TakenAt)))
}

// Laboratory returns a Laboratory of one of the quota Workloads.
func (st *Study) Laboratory(workload admission.StageKey) *Laboratory {
	if l := st.laboratories[workload]; l != nil {
		return l
	}
	return NewLaboratory(st.part, st.durations, workload)
}

func (st *Study) question() *question {
	return &question{durations: st.durations, isAsked: among(st.workloads), maxDecisions: maxDecisions}
}

// share begins the simulation of a Forecast, and takes the other answers from it before time passes. It reports whether it could: it cannot if the
// controllers or the engine change anything at once, which these answers have to be about.
func (st *Study) share() (isShared bool, err error) {
	if !st.durations.IsQuiet(st.part) {
		return false, nil
	}
	q := st.question()
	f := &forecast{durations: st.durations, isAsked: q.isAsked, onlyLimits: true}
	if err := f.load(st.part); err != nil {
		return false, err
	}
	if f.await(q); f.hasUnreadyPods() {
		return false, nil
	}
	if err := f.Start(); err != nil {
		return false, err
	}
	if !f.controllersChangeNothing() {
		return false, nil
	}
	decisions := f.Decide()
	if slices.ContainsFunc(decisions, func(d admission.Decision) bool { _, isRefusal := d.(admission.Refuse); return !isRefusal }) {
		return false, nil
	}
	f.decisions += len(decisions)
	st.begun = f
	st.answer(f)
	return true, nil
}

// answer takes what a simulation answers as of now.
func (st *Study) answer(f *forecast) {
	st.reasons, st.leftOut, st.laboratories = map[admission.StageKey]Reason{}, f.leftOut, map[admission.StageKey]*Laboratory{}
	settled := settledOf(st.part, f)
	for _, key := range st.workloads {
		pending, isPending := f.Engine.PendingStage(key)
		if !isPending {
			continue
		}
		x, _ := f.Engine.Explanation(key)
		st.reasons[key] = Reason{pending, x}
		l := &Laboratory{part: st.part, durations: st.durations, target: key, keeps: keeps(), settled: settled, unchanged: TrialResult{Explanation: x}}
		l.adopt(settled, f)
		st.laboratories[key] = l
	}
}

// hasUnreadyPods reports whether pods of JobSets are about to become ready or to terminate.
func (f *forecast) hasUnreadyPods() bool {
	for _, p := range f.Pods {
		if p.Terminating > 0 || slices.ContainsFunc(p.Batches, func(b *cluster.Batch) bool { return !b.IsReady }) {
			return true
		}
	}
	return false
}

// controllersChangeNothing lets the controllers do what is due, and reports whether they wrote and planned nothing.
func (f *forecast) controllersChangeNothing() bool {
	version, jobs, jobSets, hasObserved := f.Sequence, len(f.Jobs), len(f.JobSets), false
	observe := f.Observe
	f.Observe = func(event admission.Event) {
		hasObserved = true
		observe(event)
	}
	f.runControllers()
	f.Observe = observe
	_, isPlanned := f.Events.Next()
	return f.Problem == nil && !hasObserved && !isPlanned && f.Sequence == version && len(f.Jobs) == jobs && len(f.JobSets) == jobSets
}
