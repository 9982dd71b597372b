package scope

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/snapshot"
)

// Parts splits a snapshot into parts that do not influence each other: each has the trees of Cohorts that are linked. The last one has the objects
// whose queues do not exist.
func Parts(s *snapshot.Snapshot) []*snapshot.Snapshot {
	p := &parts{scope: newScope(s), indexOf: map[string]int{}, ofJobSet: map[types.UID]int{}}
	p.addQueues()
	for _, w := range s.Workloads {
		roots := p.rootsOfWorkload(w)
		for _, link := range linksOf(w) {
			roots = append(roots, p.rootsOf[link]...)
		}
		i := p.of(roots)
		p.all[i].Workloads = append(p.all[i].Workloads, w)
		p.ofJobSet[types.UID(w.Labels[apis.JobUIDLabel])] = i
	}
	for _, js := range s.JobSets {
		i := p.of(p.rootsOf["JobSet "+string(js.UID)])
		p.all[i].JobSets = append(p.all[i].JobSets, js)
		p.ofJobSet[js.UID] = i
	}
	for _, job := range s.Jobs {
		if queuedjob.IsQueued(job) {
			i, hasWorkload := p.ofJobSet[job.UID]
			if !hasWorkload {
				i = p.of(p.rootsOfQueue(job.Namespace, job.Labels[apis.QueueLabel]))
			}
			p.all[i].Jobs = append(p.all[i].Jobs, job)
			continue
		}
		for _, owner := range job.OwnerReferences {
			if i, isOfJobSet := p.ofJobSet[owner.UID]; isOfJobSet {
				p.all[i].Jobs = append(p.all[i].Jobs, job)
				break
			}
		}
	}
	return p.all
}

// parts are those of one snapshot.
type parts struct {
	*scope
	all []*snapshot.Snapshot
	// indexOf has the part of each root, and ofJobSet that of each JobSet that exists or has quota Workloads, and of each queued Job that has one.
	indexOf  map[string]int
	ofJobSet map[types.UID]int
}

// addQueues adds a part for each group of linked trees, with its queues, and a last one with all queues.
func (p *parts) addQueues() {
	for _, q := range p.ClusterQueues {
		root := p.rootOf[q.Name]
		if _, exists := p.indexOf[root]; !exists {
			clear(p.within)
			p.include(root)
			for linked := range p.within {
				p.indexOf[linked] = len(p.all)
			}
			part := *p.Snapshot
			part.ClusterQueues, part.LocalQueues, part.JobSets, part.Workloads, part.Jobs = nil, nil, nil, nil, nil
			p.all = append(p.all, &part)
		}
		part := p.all[p.indexOf[root]]
		part.ClusterQueues = append(part.ClusterQueues, q)
	}
	for _, q := range p.LocalQueues {
		if root, exists := p.rootOf[string(q.Spec.ClusterQueue)]; exists {
			part := p.all[p.indexOf[root]]
			part.LocalQueues = append(part.LocalQueues, q)
		}
	}
	last := *p.Snapshot
	last.JobSets, last.Workloads, last.Jobs = nil, nil, nil
	p.all = append(p.all, &last)
}

// of returns the part in which some roots are. They are in the same one, because a link connects them.
func (p *parts) of(roots []string) int {
	if len(roots) == 0 {
		return len(p.all) - 1
	}
	return p.indexOf[slices.Min(roots)]
}
