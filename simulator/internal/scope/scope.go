// Package scope finds the part of a snapshot that can influence when some quota Workloads start.
package scope

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/snapshot"
)

// A scope finds the objects of a snapshot that can influence when some quota Workloads start: those in the same trees of Cohorts.
type scope struct {
	*snapshot.Snapshot
	// rootOf has the root of the tree of each ClusterQueue, and queueOf the ClusterQueue of each LocalQueue.
	rootOf  map[string]string
	queueOf map[types.NamespacedName]string
	// A link connects trees: a JobSet, a gang, or a group of gangs that are admitted together, has quota Workloads in all of them.
	rootsOf map[string][]string
	linksOf map[string][]string
	// within has the roots that count, and asked the quota Workloads.
	within map[string]bool
	asked  map[admission.StageKey]bool
}

// Around returns the part of a snapshot that can influence when some quota Workloads start.
func Around(s *snapshot.Snapshot, keys []admission.StageKey) *snapshot.Snapshot {
	c := newScope(s)
	for _, key := range keys {
		c.asked[key] = true
	}
	var asked []*kueue.Workload
	for _, w := range s.Workloads {
		if c.asked[cluster.KeyOf(w)] {
			asked = append(asked, w)
		}
	}
	for _, w := range asked {
		for _, link := range linksOf(w) {
			c.include(c.rootsOf[link]...)
		}
		c.include(c.rootsOfWorkload(w)...)
	}
	return c.part()
}

// Trees returns a function that names the trees of Cohorts to which a quota Workload belongs, by their roots. Trees that can influence each other have the
// name of the first one.
func Trees(s *snapshot.Snapshot) func(*kueue.Workload) string {
	c := newScope(s)
	names := map[string]string{}
	for _, root := range slices.Sorted(maps.Values(c.rootOf)) {
		if names[root] == "" {
			c.within = map[string]bool{}
			c.include(root)
			for linked := range c.within {
				names[linked] = root
			}
		}
	}
	return func(w *kueue.Workload) string {
		for _, root := range c.rootsOfWorkload(w) {
			return names[root]
		}
		return ""
	}
}

func newScope(s *snapshot.Snapshot) *scope {
	c := &scope{
		Snapshot: s, rootOf: map[string]string{}, queueOf: map[types.NamespacedName]string{}, rootsOf: map[string][]string{}, linksOf: map[string][]string{},
		within: map[string]bool{}, asked: map[admission.StageKey]bool{},
	}
	c.findRoots()
	c.findLinks()
	return c
}

// findRoots follows the parents of each ClusterQueue. In a cycle it stops after as many steps as there are Cohorts.
func (c *scope) findRoots() {
	parents := map[kueue.CohortReference]kueue.CohortReference{}
	for _, cohort := range c.Cohorts {
		parents[kueue.CohortReference(cohort.Name)] = cohort.Spec.ParentName
	}
	for _, q := range c.ClusterQueues {
		root := q.Spec.CohortName
		for range c.Cohorts {
			if parents[root] == "" {
				break
			}
			root = parents[root]
		}
		c.rootOf[q.Name] = "Cohort " + string(root)
		if root == "" {
			c.rootOf[q.Name] = "ClusterQueue " + q.Name
		}
	}
	for _, q := range c.LocalQueues {
		c.queueOf[types.NamespacedName{Namespace: q.Namespace, Name: q.Name}] = string(q.Spec.ClusterQueue)
	}
}

// findLinks finds the trees in which the quota Workloads are that belong together.
func (c *scope) findLinks() {
	link := func(name string, roots ...string) {
		for _, root := range roots {
			if !slices.Contains(c.rootsOf[name], root) {
				c.rootsOf[name], c.linksOf[root] = append(c.rootsOf[name], root), append(c.linksOf[root], name)
			}
		}
	}
	for _, w := range c.Workloads {
		roots := c.rootsOfWorkload(w)
		for _, name := range linksOf(w) {
			link(name, roots...)
		}
		if len(roots) > 1 {
			link("Workload "+w.Namespace+"/"+w.Name, roots...) // it holds quota in another tree than that of its queue
		}
	}
	for _, js := range c.JobSets {
		link("JobSet "+string(js.UID), c.rootsOfQueue(js.Namespace, apis.QueueNameOf(js.Labels))...)
	}
}

// linksOf returns what a quota Workload belongs to.
func linksOf(w *kueue.Workload) []string {
	var links []string
	for kind, label := range map[string]string{"JobSet": apis.JobUIDLabel, "plan": apis.PlanUIDLabel, "group": apis.AdmitTogetherLabel} {
		if value := w.Labels[label]; value != "" {
			links = append(links, kind+" "+value)
		}
	}
	return links
}

// rootsOfWorkload returns the trees in which a quota Workload waits or holds quota.
func (c *scope) rootsOfWorkload(w *kueue.Workload) []string {
	roots := c.rootsOfQueue(w.Namespace, string(w.Spec.QueueName))
	if w.Status.Admission != nil {
		if root, exists := c.rootOf[string(w.Status.Admission.ClusterQueue)]; exists {
			roots = append(roots, root)
		}
	}
	return roots
}

func (c *scope) rootsOfQueue(namespace, localQueue string) []string {
	if root, exists := c.rootOf[c.queueOf[types.NamespacedName{Namespace: namespace, Name: localQueue}]]; exists {
		return []string{root}
	}
	return nil
}

// include adds trees, and those that are linked with them.
func (c *scope) include(roots ...string) {
	for _, root := range roots {
		if c.within[root] {
			continue
		}
		c.within[root] = true
		for _, link := range c.linksOf[root] {
			c.include(c.rootsOf[link]...)
		}
	}
}

// part returns the objects in the trees that count, with the quota Workloads that are asked for wherever they are.
func (c *scope) part() *snapshot.Snapshot {
	part := *c.Snapshot
	part.ClusterQueues, part.JobSets, part.Workloads, part.Jobs = nil, nil, nil, nil
	counts := func(roots []string) bool {
		return slices.ContainsFunc(roots, func(root string) bool { return c.within[root] })
	}
	jobSets := map[types.UID]bool{}
	for _, q := range c.ClusterQueues {
		if c.within[c.rootOf[q.Name]] {
			part.ClusterQueues = append(part.ClusterQueues, q)
		}
	}
	for _, w := range c.Workloads {
		if counts(c.rootsOfWorkload(w)) || c.asked[cluster.KeyOf(w)] {
			part.Workloads = append(part.Workloads, w)
			jobSets[types.UID(w.Labels[apis.JobUIDLabel])] = true
		}
	}
	for _, js := range c.JobSets {
		if jobSets[js.UID] || counts(c.rootsOfQueue(js.Namespace, apis.QueueNameOf(js.Labels))) {
			part.JobSets = append(part.JobSets, js)
			jobSets[js.UID] = true
		}
	}
	for _, job := range c.Jobs {
		isInside := queuedjob.IsQueued(job) && (jobSets[job.UID] || counts(c.rootsOfQueue(job.Namespace, job.Labels[apis.QueueLabel])))
		if isInside || slices.ContainsFunc(job.OwnerReferences, func(o metav1.OwnerReference) bool { return jobSets[o.UID] }) {
			part.Jobs = append(part.Jobs, job)
		}
	}
	return &part
}
