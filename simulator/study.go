package simulator

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/internal/rest"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Study answers all questions about some quota Workloads of a snapshot: it has the answers of Inspect and of ForecastOf, and a Laboratory of each.
// Where nothing is due at the time of the snapshot, one simulation answers them, which reads the snapshot once.
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
	if f == nil || st.durations.Validate() != nil {
		return ForecastOf(st.part, st.durations, until, st.workloads...)
	}
	st.begun = nil
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
	return &question{durations: st.durations, isAsked: among(st.workloads), maxDecisions: maxDecisions, maxChecks: maxChecks}
}

// share begins the simulation of a Forecast, and takes the other answers from it before time passes. It reports whether it could. An Inspection lets no
// controller do anything, and in a trial nothing happens but what it ends at once: pods that terminate, and AdmissionChecks. So it cannot if anything
// happens at the time of the snapshot on which the engine or the pods depend, or if there is something to end.
func (st *Study) share() (isShared bool, err error) {
	q := st.question()
	f := &forecast{durations: st.durations, isAsked: q.isAsked, onlyLimits: true}
	if err := f.load(st.part); err != nil {
		return false, err
	}
	f.await(q)
	if rest.IsEnding(f.Cluster) {
		return false, nil
	}
	f.watch()
	jobcontrollers.AnswerChecks(f.Cluster, st.durations.Checks)
	if err := f.resume(); err != nil {
		return false, err
	}
	watched := rest.Begin(f.Cluster, &f.Config.WaitForPodsReady)
	if f.runControllers(); watched.End() || f.Problem != nil {
		return false, nil //nolint:nilerr // a simulation of its own meets and reports it
	}
	decisions := f.Decide()
	if slices.ContainsFunc(decisions, func(d admission.Decision) bool { _, isRefusal := d.(admission.Refuse); return !isRefusal }) || f.RemoveUnused() {
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
		if len(st.workloads) > 1 && len(influencing(st.part, []admission.StageKey{key}).Workloads) < len(st.part.Workloads) {
			continue // its Laboratory has only the trees around it
		}
		l := &Laboratory{part: st.part, durations: st.durations, target: key, keeps: keeps(), settled: settled, unchanged: TrialResult{Explanation: x}}
		l.adopt(settled, f)
		st.laboratories[key] = l
	}
}
