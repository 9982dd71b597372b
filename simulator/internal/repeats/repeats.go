// Package repeats leaves out pending quota Workloads on which no decision depends, because equal ones before them wait, too.
package repeats

import (
	"cmp"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/manager"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Reduced is a snapshot without some of the pending quota Workloads that are equal for the engine, except for a longer time limit.
type Reduced struct {
	*snapshot.Snapshot
	// last has those that were kept and come before equal ones that were left out, the last of them, with its ClusterQueue.
	last map[admission.StageKey]string
	// leftOut has what was left out of each ClusterQueue.
	leftOut map[string]*objects
	// manager is that of the run that is watched, and wasNeeded is true if its engine has decided in favor of one of the last.
	manager   *manager.Manager
	wasNeeded bool
}

// objects are quota Workloads with their JobSets and queued Jobs.
type objects struct {
	workloads []*kueue.Workload
	jobSets   []*jobsetapi.JobSet
	jobs      []*batchv1.Job
}

// Reduce returns the snapshot without the equal ones of which an engine has more than so many pending, except in the ClusterQueue of a target: one snapshot
// for each number. The JobSet of the target stays. It returns only those that are at most two thirds as large as the next one. The engine must have
// observed the snapshot.
func Reduce(s *snapshot.Snapshot, engine *admission.Engine, target admission.StageKey, keeps []int) []*Reduced {
	isMuchSmaller := func(a, b *snapshot.Snapshot) bool { return 3*len(a.Workloads) <= 2*len(b.Workloads) }
	var all []*Reduced
	isAlone := alone(s, target)
	pending, _ := engine.PendingStage(target)
	for _, keep := range keeps {
		if r := reduce(s, engine, pending.ClusterQueue, keep, isAlone); r != nil && isMuchSmaller(r.Snapshot, s) {
			all = append(all, r)
		}
	}
	for i := len(all) - 2; i >= 0; i-- {
		if !isMuchSmaller(all[i].Snapshot, all[i+1].Snapshot) {
			all = append(all[:i], all[i+1:]...)
		}
	}
	return all
}

// reduce returns nil if nothing can be left out.
func reduce(s *snapshot.Snapshot, engine *admission.Engine, except string, keep int, isAlone map[admission.StageKey]bool) *Reduced {
	leftOut, last := map[admission.StageKey]string{}, map[admission.StageKey]string{}
	for _, q := range s.ClusterQueues {
		if q.Name == except {
			continue
		}
		for _, r := range engine.Repeated(q.Name, keep) {
			if isAlone[r.Stage] {
				leftOut[r.Stage], last[r.Behind] = q.Name, q.Name
			}
		}
	}
	if len(leftOut) == 0 {
		return nil
	}
	r := &Reduced{last: last, leftOut: map[string]*objects{}}
	r.Snapshot = r.without(s, leftOut)
	return r
}

// alone returns the quota Workloads that can be left out, with the other ones of their JobSets: those wait to be opened. They belong neither to a gang nor
// to a group, nor to the owner of the target, nor to a queued Job that has several.
func alone(s *snapshot.Snapshot, target admission.StageKey) map[admission.StageKey]bool {
	open := map[owner]int{}
	for _, w := range s.Workloads {
		if cluster.KeyOf(w) == target {
			open[ownerOf(w)]++
		}
		if of := ownerOf(w); of != (owner{}) && !isClosed(w) {
			open[of]++
		}
	}
	all := map[admission.StageKey]bool{}
	for _, w := range s.Workloads {
		if w.Labels[apis.PlanUIDLabel] == "" && w.Labels[apis.AdmitTogetherLabel] == "" && open[ownerOf(w)] <= 1 {
			all[cluster.KeyOf(w)] = true
		}
	}
	return all
}

// isClosed reports whether a quota Workload is that of a stage of a JobSet and waits to be opened, and nothing depends on it.
func isClosed(w *kueue.Workload) bool {
	return w.Labels[apis.JobSetLabel] != "" && slices.Contains(quotaworkload.Gates(w), apis.StageGate) &&
		w.Status.Admission == nil && w.DeletionTimestamp.IsZero() && !cluster.IsFinished(w)
}

// An owner is the JobSet of a name, or a queued Job. It is zero if a quota Workload has neither.
type owner struct {
	jobSet types.NamespacedName
	job    types.UID
}

func ownerOf(w *kueue.Workload) owner {
	switch {
	case w.Labels[apis.JobSetLabel] != "":
		return owner{jobSet: types.NamespacedName{Namespace: w.Namespace, Name: w.Labels[apis.JobSetLabel]}}
	case w.Labels[apis.JobLabel] != "":
		return owner{job: types.UID(w.Labels[apis.JobUIDLabel])}
	}
	return owner{}
}

// without returns a snapshot without some quota Workloads, their JobSets and their queued Jobs, and records what was left out of each ClusterQueue.
func (r *Reduced) without(s *snapshot.Snapshot, leftOut map[admission.StageKey]string) *snapshot.Snapshot {
	rest := *s
	rest.Workloads, rest.JobSets, rest.Jobs = nil, nil, nil
	owners := map[owner]string{}
	for _, w := range s.Workloads {
		if queue := leftOut[cluster.KeyOf(w)]; queue != "" && ownerOf(w) != (owner{}) {
			owners[ownerOf(w)] = queue
		}
	}
	for _, w := range s.Workloads {
		if queue := cmp.Or(leftOut[cluster.KeyOf(w)], owners[ownerOf(w)]); queue != "" {
			r.of(queue).workloads = append(r.of(queue).workloads, w)
		} else {
			rest.Workloads = append(rest.Workloads, w)
		}
	}
	for _, js := range s.JobSets {
		if queue := owners[owner{jobSet: types.NamespacedName{Namespace: js.Namespace, Name: js.Name}}]; queue != "" {
			r.of(queue).jobSets = append(r.of(queue).jobSets, js)
		} else {
			rest.JobSets = append(rest.JobSets, js)
		}
	}
	for _, job := range s.Jobs {
		if queue := owners[owner{job: job.UID}]; queue != "" {
			r.of(queue).jobs = append(r.of(queue).jobs, job)
		} else {
			rest.Jobs = append(rest.Jobs, job)
		}
	}
	return &rest
}

// of returns what was left out of a ClusterQueue.
func (r *Reduced) of(queue string) *objects {
	if r.leftOut[queue] == nil {
		r.leftOut[queue] = &objects{}
	}
	return r.leftOut[queue]
}

// Restore returns the snapshot with what was left out of some ClusterQueues.
func (r *Reduced) Restore(queues []string) *Reduced {
	more := &Reduced{Snapshot: new(*r.Snapshot), last: maps.Clone(r.last), leftOut: maps.Clone(r.leftOut)}
	for _, queue := range queues {
		if hidden := more.leftOut[queue]; hidden != nil {
			more.Workloads = slices.Concat(more.Workloads, hidden.workloads)
			more.JobSets, more.Jobs = slices.Concat(more.JobSets, hidden.jobSets), slices.Concat(more.Jobs, hidden.jobs)
			delete(more.leftOut, queue)
		}
	}
	maps.DeleteFunc(more.last, func(_ admission.StageKey, queue string) bool { return slices.Contains(queues, queue) })
	return more
}

// Watch observes the run of a manager on the snapshot, before it starts.
func (r *Reduced) Watch(m *manager.Manager) {
	r.manager, r.wasNeeded = m, false
	decided := m.Decided
	m.Decided = func(d admission.Decision) {
		switch d := d.(type) {
		case admission.Admit:
			r.wasNeeded = r.wasNeeded || r.last[d.Stage] != ""
		case admission.Evict:
			r.wasNeeded = r.wasNeeded || d.Preemption != nil && r.last[d.Preemption.Preemptor] != ""
		case admission.Notice:
			r.wasNeeded = r.wasNeeded || d.Preemption != nil && r.last[d.Preemption.Preemptor] != ""
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
		if !r.manager.Engine.IsPending(key) {
			return false
		}
	}
	return true
}
