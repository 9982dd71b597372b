package simulator

import (
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
	// before has the positions of the quota Workloads that are asked for, before the decisions.
	before map[admission.StageKey]admission.Pending
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
	sim, leftOut, err := fromSnapshot(influencing(s, workloads), 0)
	if err != nil {
		return nil, err
	}
	sim.IsQuiet, sim.IsSilent = true, true
	if err := sim.Start(); err != nil {
		return nil, err
	}
	i := &Inspection{engine: sim.Engine, before: map[admission.StageKey]admission.Pending{}, admitted: map[admission.StageKey]bool{}, leftOut: leftOut}
	i.engine.Advance(sim.Time())
	for _, key := range workloads {
		if p, isPending := i.engine.PendingStage(key); isPending {
			i.before[key] = p
		}
	}
	for _, decision := range sim.Decide() {
		if admit, is := decision.(admission.Admit); is {
			i.admitted[admit.Stage] = true
		}
	}
	return i, nil
}

// LeftOut returns the JobSets that the manager would not manage, or would refuse.
func (i *Inspection) LeftOut() []LeftOut { return i.leftOut }

// Why returns why a quota Workload waits. ok is false for one that is not in a queue.
func (i *Inspection) Why(workload admission.StageKey) (r Reason, ok bool) {
	if i.admitted[workload] {
		return Reason{Pending: i.before[workload]}, true
	}
	if r.Pending, ok = i.engine.PendingStage(workload); !ok {
		return r, false
	}
	r.Explanation, _ = i.engine.Explanation(workload)
	return r, true
}

// Unshown returns in what the running manager may report something else about some quota Workloads than an Inspection of a snapshot does, or "".
func Unshown(s *snapshot.Snapshot, workloads ...admission.StageKey) string {
	return scope.Unshown(influencing(s, workloads))
}

// influencing returns the part of a snapshot that can influence when some quota Workloads start. Under waitForPodsReady.blockAdmission it is all of it.
func influencing(s *snapshot.Snapshot, workloads []admission.StageKey) *snapshot.Snapshot {
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
