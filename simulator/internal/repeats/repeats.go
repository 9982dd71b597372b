// Package repeats leaves out pending quota Workloads on which no decision depends, because equal ones before them wait, too.
package repeats

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/manager"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Reduced is a snapshot without some of the pending quota Workloads that are equal for the engine.
type Reduced struct {
	*snapshot.Snapshot
	// last has the last one that was kept of those that are equal to some that were left out.
	last map[admission.StageKey]bool
	// manager is that of the run that is watched, and wasNeeded is true if its engine has decided in favor of one of the last.
	manager   *manager.Manager
	wasNeeded bool
}

// Reduce returns the snapshot without the equal ones of which an engine has more than so many pending, except in one ClusterQueue: one snapshot for each
// number. It returns only those that are at most half as large as the next one. The engine must have observed the snapshot.
func Reduce(s *snapshot.Snapshot, engine *admission.Engine, except string, keeps []int) []*Reduced {
	var all []*Reduced
	for _, keep := range keeps {
		if r := reduce(s, engine, except, keep); 2*len(r.Workloads) <= len(s.Workloads) {
			all = append(all, r)
		}
	}
	for i := len(all) - 2; i >= 0; i-- {
		if 2*len(all[i].Workloads) > len(all[i+1].Workloads) {
			all = append(all[:i], all[i+1:]...)
		}
	}
	return all
}

func reduce(s *snapshot.Snapshot, engine *admission.Engine, except string, keep int) *Reduced {
	isAlone := alone(s)
	leftOut, last := map[admission.StageKey]bool{}, map[admission.StageKey]bool{}
	for _, q := range s.ClusterQueues {
		if q.Name == except {
			continue
		}
		for _, equal := range engine.Repeated(q.Name, keep) {
			for _, key := range equal[keep:] {
				if isAlone[key] {
					leftOut[key], last[equal[keep-1]] = true, true
				}
			}
		}
	}
	return &Reduced{Snapshot: without(s, leftOut), last: last}
}

// alone returns the quota Workloads that belong to no other one: neither to the same JobSet or Job, nor to a gang or a group.
func alone(s *snapshot.Snapshot) map[admission.StageKey]bool {
	ofOwner := map[types.UID]int{}
	for _, w := range s.Workloads {
		if uid := types.UID(w.Labels[apis.JobUIDLabel]); uid != "" {
			ofOwner[uid]++
		}
	}
	all := map[admission.StageKey]bool{}
	for _, w := range s.Workloads {
		if w.Labels[apis.PlanUIDLabel] == "" && w.Labels[apis.AdmitTogetherLabel] == "" && ofOwner[types.UID(w.Labels[apis.JobUIDLabel])] <= 1 {
			all[cluster.KeyOf(w)] = true
		}
	}
	return all
}

// without returns a snapshot without some quota Workloads, their JobSets and their queued Jobs.
func without(s *snapshot.Snapshot, leftOut map[admission.StageKey]bool) *snapshot.Snapshot {
	rest := *s
	rest.Workloads, rest.JobSets, rest.Jobs = nil, nil, nil
	jobSets, jobs := map[types.NamespacedName]bool{}, map[types.UID]bool{}
	for _, w := range s.Workloads {
		if !leftOut[cluster.KeyOf(w)] {
			rest.Workloads = append(rest.Workloads, w)
		} else if name := w.Labels[apis.JobSetLabel]; name != "" {
			jobSets[types.NamespacedName{Namespace: w.Namespace, Name: name}] = true
		} else if w.Labels[apis.JobLabel] != "" {
			jobs[types.UID(w.Labels[apis.JobUIDLabel])] = true
		}
	}
	for _, js := range s.JobSets {
		if !jobSets[types.NamespacedName{Namespace: js.Namespace, Name: js.Name}] {
			rest.JobSets = append(rest.JobSets, js)
		}
	}
	for _, job := range s.Jobs {
		if !jobs[job.UID] {
			rest.Jobs = append(rest.Jobs, job)
		}
	}
	return &rest
}

// Watch observes the run of a manager on the snapshot, before it starts.
func (r *Reduced) Watch(m *manager.Manager) {
	r.manager, r.wasNeeded = m, false
	decided := m.Decided
	m.Decided = func(d admission.Decision) {
		switch d := d.(type) {
		case admission.Admit:
			r.wasNeeded = r.wasNeeded || r.last[d.Stage]
		case admission.Evict:
			r.wasNeeded = r.wasNeeded || d.Preemption != nil && r.last[d.Preemption.Preemptor]
		}
		if decided != nil {
			decided(d)
		}
	}
}

// IsEnough reports whether the run would have had the same decisions with those that were left out: the last that was kept of each kind still waits.
func (r *Reduced) IsEnough() bool {
	if r.wasNeeded {
		return false
	}
	for key := range r.last {
		if _, isPending := r.manager.Engine.PendingStage(key); !isPending {
			return false
		}
	}
	return true
}
