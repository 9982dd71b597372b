package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// onTheWay is how long a decision may take to be written that was made before the manager observed a change of quota.
const onTheWay = 5 * time.Second

// A world is the set of specifications of all queues between two changes of them.
type world struct {
	queues  map[string]*kueue.ClusterQueue
	cohorts map[string]*kueue.Cohort
	// from is when it began. It has ended for the manager when the manager has reported that it knows the next state.
	from    uint64
	changed *kueue.ClusterQueue // that ends it, or nil
	ended   time.Time
}

func newWorld() *world {
	return &world{queues: map[string]*kueue.ClusterQueue{}, cohorts: map[string]*kueue.Cohort{}}
}

// next begins a new world.
func (a *Auditor) next(now moment) (old, begun *world) {
	old = a.worlds[len(a.worlds)-1]
	begun = &world{queues: maps.Clone(old.queues), cohorts: maps.Clone(old.cohorts), from: now.earliest}
	a.worlds = append(a.worlds, begun)
	return old, begun
}

// seeCohort records a Cohort. No status reports when the manager has observed it, so it counts as observed at once.
func (a *Auditor) seeCohort(c *kueue.Cohort, now moment) {
	known := a.worlds[len(a.worlds)-1].cohorts[c.Name]
	if known != nil && known.UID == c.UID && known.Generation == c.Generation {
		return
	}
	old, begun := a.next(now)
	old.ended, begun.cohorts[c.Name] = time.Now(), c
}

func (a *Auditor) seeClusterQueue(q *kueue.ClusterQueue, now moment) {
	if active := apimeta.FindStatusCondition(q.Status.Conditions, kueue.ClusterQueueActive); active != nil {
		a.acknowledge(q, active.ObservedGeneration)
	}
	known := a.worlds[len(a.worlds)-1].queues[q.Name]
	if known != nil && known.UID == q.UID && known.Generation == q.Generation {
		return
	}
	old, begun := a.next(now)
	old.changed, begun.queues[q.Name] = q, q
}

// acknowledge ends the worlds before a generation of a ClusterQueue that the manager has observed.
func (a *Auditor) acknowledge(q *kueue.ClusterQueue, generation int64) {
	for _, w := range a.worlds {
		if w.ended.IsZero() && w.changed != nil && w.changed.UID == q.UID && w.changed.Generation <= generation {
			w.ended = time.Now()
		}
	}
}

// checkQuota checks I1 for the queue of a quota Workload that has just reserved, and for the Cohorts above it.
func (a *Auditor) checkQuota(newcomer *holder, now moment) {
	for key := range newcomer.usage {
		usage := map[string]int64{}
		for _, h := range a.holders {
			if amount := h.usage[key]; amount != 0 {
				usage[h.queue] += amount
			}
		}
		if a.worlds[len(a.worlds)-1].excess(newcomer.queue, key, usage) != "" {
			a.suspects = append(a.suspects, suspect{
				newcomer: newcomer.name, queue: newcomer.queue, key: key, usage: usage, at: now, seen: time.Now(), isOfKueue: newcomer.isOfKueue, held: a.describe(key),
			})
		}
	}
}

// breaches returns the suspects that exceed every world that the manager could have observed. These worlds are certain only now: each kind
// has a watch of its own.
func (a *Auditor) breaches() []string {
	var found []string
	for i := range a.suspects {
		s := &a.suspects[i]
		why, knowsAll := "", a.knowsAllQueues(s)
		isAllowed := slices.ContainsFunc(a.worlds, func(w *world) bool {
			if w.from > s.at.latest || !w.ended.IsZero() && s.seen.Sub(w.ended) > onTheWay {
				return false
			}
			why = w.excess(s.queue, s.key, s.usage)
			return why == "" || !knowsAll && w.withoutBorrowers(s).excess(s.queue, s.key, s.usage) == ""
		})
		if !isAllowed {
			found = append(found, fmt.Sprintf("I1: at %d (%s), with %s, %s: %s", s.at.latest, s.seen.Format(time.RFC3339Nano), s.newcomer, why, strings.Join(s.held, "; ")))
		}
	}
	return found
}

// excess returns the node that has reserved more than it may, on the path up from a ClusterQueue. It is empty if there is none.
func (w *world) excess(queue string, key flavorResource, usage map[string]int64) string {
	nodes := w.tree(key)
	for name, amount := range usage {
		if n := nodes[queueNode(name)]; n != nil {
			n.used = amount
		}
	}
	n := nodes[queueNode(queue)]
	if n == nil {
		return fmt.Sprintf("there is no ClusterQueue %s", queue)
	}
	for ; n != nil; n = n.parent {
		reserved, limit := n.reserved(), n.subtree()
		if n.parent != nil {
			if n.borrowing == nil {
				continue
			}
			limit += *n.borrowing
		}
		if reserved > limit {
			return fmt.Sprintf("%s has reserved %d of %d thousandths of %s", n.name, reserved, limit, key)
		}
	}
	return ""
}

// A node is a ClusterQueue or a Cohort, with regard to one resource of one flavor, in thousandths.
type node struct {
	name               string
	parent             *node
	children           []*node
	nominal, used      int64
	borrowing, lending *int64
}

func queueNode(name string) string { return "ClusterQueue " + name }

// subtree is the quota that there is for a node and those below it, without what it could borrow.
func (n *node) subtree() int64 {
	sum := n.nominal
	for _, child := range n.children {
		sum += child.subtree() - child.own()
	}
	return sum
}

// own is the part of its quota that a node does not lend.
func (n *node) own() int64 {
	if n.lending == nil {
		return 0
	}
	return max(n.subtree()-*n.lending, 0)
}

// reserved is what a ClusterQueue has reserved, or what those below a Cohort take of what they lend each other.
func (n *node) reserved() int64 {
	sum := n.used
	for _, child := range n.children {
		sum += max(child.reserved()-child.own(), 0)
	}
	return sum
}

// tree has the nodes of all ClusterQueues and Cohorts by their names.
func (w *world) tree(key flavorResource) map[string]*node {
	nodes := map[string]*node{}
	at := func(name string) *node {
		if nodes[name] == nil {
			nodes[name] = &node{name: name}
		}
		return nodes[name]
	}
	hang := func(n *node, cohort kueue.CohortReference) {
		if cohort != "" {
			n.parent = at("Cohort " + string(cohort))
			n.parent.children = append(n.parent.children, n)
		}
	}
	for name, queue := range w.queues {
		n := at(queueNode(name))
		n.allow(queue.Spec.ResourceGroups, key)
		hang(n, queue.Spec.CohortName)
	}
	for name, cohort := range w.cohorts {
		n := at("Cohort " + name)
		n.allow(cohort.Spec.ResourceGroups, key)
		hang(n, cohort.Spec.ParentName)
	}
	return nodes
}

// allow sets the quota of a node.
func (n *node) allow(groups []kueue.ResourceGroup, key flavorResource) {
	for _, group := range groups {
		for _, flavor := range group.Flavors {
			for _, quota := range flavor.Resources {
				if key != (flavorResource{string(flavor.Name), string(quota.Name)}) {
					continue
				}
				n.nominal = quota.NominalQuota.MilliValue()
				if quota.BorrowingLimit != nil {
					n.borrowing = new(quota.BorrowingLimit.MilliValue())
				}
				if quota.LendingLimit != nil {
					n.lending = new(quota.LendingLimit.MilliValue())
				}
			}
		}
	}
}
