package simulator

import (
	"maps"

	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/scope"
	"github.com/tranche-dev/tranche/snapshot"
)

// An Inspection is the engine of a manager that has just read a snapshot and has made its decisions, which are not written. Where
// the queues of a cohort compete, it may reserve quota for other stages than a manager that has run for long: reservations are not part of the objects.
type Inspection struct {
	engine *admission.Engine
	// positions are those of all pending quota Workloads in the same trees. Those that are admitted have the one of before the decisions.
	positions, before map[admission.StageKey]admission.Pending
	// admitted are the quota Workloads that the engine has just decided to admit.
	admitted map[admission.StageKey]bool
	leftOut  []LeftOut
}

// A Reason says why a quota Workload waits, as the visibility API does.
type Reason struct {
	admission.Pending
	visibility.Explanation
}

// Inspect returns the engine for some quota Workloads of a snapshot. It reads only the queues that can influence when they start.
func Inspect(s *snapshot.Snapshot, workloads ...admission.StageKey) (*Inspection, error) {
	part := Around(s, workloads...)
	sim, leftOut, err := fromSnapshot(part, 0)
	if err != nil {
		return nil, err
	}
	sim.IsQuiet, sim.IsSilent = true, true
	if err := sim.Start(); err != nil {
		return nil, err
	}
	i := &Inspection{engine: sim.Engine, positions: map[admission.StageKey]admission.Pending{}, admitted: map[admission.StageKey]bool{}, leftOut: leftOut}
	i.engine.Advance(sim.Time())
	i.notePositions(part)
	i.before = maps.Clone(i.positions)
	for _, decision := range sim.Decide() {
		if admit, is := decision.(admission.Admit); is {
			i.admitted[admit.Stage] = true
		}
	}
	maps.DeleteFunc(i.positions, func(key admission.StageKey, _ admission.Pending) bool { return !i.admitted[key] })
	i.notePositions(part)
	return i, nil
}

// LeftOut returns the JobSets that the manager would not manage, or would refuse.
func (i *Inspection) LeftOut() []LeftOut { return i.leftOut }

// notePositions reads each queue once: the position of one quota Workload takes time for those before it.
func (i *Inspection) notePositions(part *snapshot.Snapshot) {
	for _, q := range part.ClusterQueues {
		pending, _ := i.engine.PendingInClusterQueue(q.Name, admission.Page{Limit: len(part.Workloads)})
		for _, p := range pending {
			i.positions[p.Stage] = p
		}
	}
}

// Why returns why a quota Workload waits. ok is false for one that is not in a queue.
func (i *Inspection) Why(workload admission.StageKey) (r Reason, ok bool) {
	if r.Pending, ok = i.positions[workload]; ok && !i.admitted[workload] {
		r.Explanation, _ = i.engine.Explanation(workload)
	}
	return r, ok
}

// Summary returns the same without the check and its details, in much less time. One that is not in a queue may have a reason, too.
func (i *Inspection) Summary(workload admission.StageKey) (r Reason, ok bool) {
	refusals := i.engine.Explain(workload)
	if len(refusals) == 0 {
		return i.Why(workload)
	}
	p, ok := i.positions[workload]
	return Reason{p, visibility.Explanation{Reason: refusals[0].Reason, Message: refusals[0].Message}}, ok
}

// Unshown returns in what the running manager may report something else about some quota Workloads than an Inspection of a snapshot does, or "".
func Unshown(s *snapshot.Snapshot, workloads ...admission.StageKey) string {
	return scope.Unshown(Around(s, workloads...))
}

// Around returns the part of a snapshot that can influence when some quota Workloads start. Under waitForPodsReady.blockAdmission it is all of it.
func Around(s *snapshot.Snapshot, workloads ...admission.StageKey) *snapshot.Snapshot {
	if s.Configuration != nil && ptr.Deref(s.Configuration.WaitForPodsReady.BlockAdmission, false) {
		return s
	}
	return scope.Around(s, workloads)
}

// Parts splits a snapshot into parts that do not influence each other. Under waitForPodsReady.blockAdmission it is one part.
func Parts(s *snapshot.Snapshot) []*snapshot.Snapshot {
	if s.Configuration != nil && ptr.Deref(s.Configuration.WaitForPodsReady.BlockAdmission, false) {
		return []*snapshot.Snapshot{s}
	}
	return scope.Parts(s)
}

// PendingStages returns the quota Workloads of a snapshot that wait for their admission, or are being evicted, among those of these keys.
func PendingStages(s *snapshot.Snapshot, isAsked func(admission.StageKey) bool) []admission.StageKey {
	var all []admission.StageKey
	for _, w := range s.Workloads {
		if key := cluster.KeyOf(w); isPending(w) && isAsked(key) {
			all = append(all, key)
		}
	}
	return all
}
