package preempt

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// maxTaken is how often one Workload may preempt another one.
	maxTaken = 3
	// maxReclaimed is the limit for reclaiming quota of the own ClusterQueue or a Cohort above it.
	maxReclaimed = 4
)

// A History counts which Workloads were preempted by which. It ends circles of preemptions.
type History struct {
	taken map[types.UID]map[types.UID]int
	// takers are the inverse of taken, for Forget.
	takers map[types.UID][]types.UID
}

// NewHistory returns an empty History.
func NewHistory() *History {
	return &History{taken: map[types.UID]map[types.UID]int{}, takers: map[types.UID][]types.UID{}}
}

// Record adds the victims of a request.
func (x *History) Record(preemptor types.UID, victims []Victim) {
	for _, v := range victims {
		of := x.taken[preemptor]
		if of == nil {
			of = map[types.UID]int{}
			x.taken[preemptor] = of
		}
		if of[v.Holder.UID]++; of[v.Holder.UID] == 1 {
			x.takers[v.Holder.UID] = append(x.takers[v.Holder.UID], preemptor)
		}
	}
}

// Restore adds what a victim reports about the past: a circle of preemptions that had ended does not begin again.
func (x *History) Restore(preemptor, victim types.UID, times int) {
	of := x.taken[preemptor]
	if of == nil {
		of = map[types.UID]int{}
		x.taken[preemptor] = of
	}
	if of[victim] == 0 {
		x.takers[victim] = append(x.takers[victim], preemptor)
	}
	of[victim] = max(of[victim], times)
}

// IsPreemptor reports whether a Workload has preempted another one that still exists.
func (x *History) IsPreemptor(uid types.UID) bool { return len(x.taken[uid]) > 0 }

// Forget removes a Workload that is deleted, or that was evicted for another reason than a preemption.
func (x *History) Forget(uid types.UID) {
	for victim := range x.taken[uid] {
		x.takers[victim] = slices.DeleteFunc(x.takers[victim], func(t types.UID) bool { return t == uid })
		if len(x.takers[victim]) == 0 {
			delete(x.takers, victim)
		}
	}
	delete(x.taken, uid)
	for _, taker := range x.takers[uid] {
		delete(x.taken[taker], uid)
		if len(x.taken[taker]) == 0 {
			delete(x.taken, taker)
		}
	}
	delete(x.takers, uid)
}

// spent reports whether a preemptor, with its past victims, may not preempt a victim again.
func spent(taken map[types.UID]int, h *Holder, reason string) bool {
	if len(taken) == 0 {
		return false
	}
	limit := maxTaken
	if reason == kueue.InCohortReclamationReason {
		limit = maxReclaimed
	}
	return taken[h.UID] >= limit
}
