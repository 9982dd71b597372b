package admission

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Pending is a pending stage with its queue position.
type Pending struct {
	Stage      StageKey
	UID        types.UID
	LocalQueue types.NamespacedName
	// ClusterQueue is the one in which it is pending.
	ClusterQueue string
	Priority     int32
	Created      time.Time
	// InClusterQueue and InLocalQueue count the stages before it.
	InClusterQueue, InLocalQueue int
}

// A Page is a part of a queue: at most Limit stages, starting at Offset. Neither may be negative.
type Page struct{ Offset, Limit int }

// PendingInClusterQueue returns the pending stages of a ClusterQueue, if it exists, in the order in which they would be admitted if all fitted.
// It takes time for the stages up to the end of the page, and for each kind of pending stage.
func (e *Engine) PendingInClusterQueue(name string, page Page) ([]Pending, bool) {
	q := e.clusterQueues[name]
	if q == nil || !q.exists {
		return nil, false
	}
	e.rebuildTrees()
	var all []Pending
	before := map[*localQueue]int{}
	i := 0
	for s := range q.pendingQueue.Ordered(nil) {
		if i-page.Offset >= page.Limit {
			break
		}
		if i >= page.Offset {
			all = append(all, s.pending(i, before[s.localQueue]))
		}
		before[s.localQueue]++
		i++
	}
	return all, true
}

// PendingInLocalQueue returns the pending stages of a LocalQueue, if it exists, in the same order.
func (e *Engine) PendingInLocalQueue(key types.NamespacedName, page Page) ([]Pending, bool) {
	lq := e.localQueues[key]
	if lq == nil || !lq.exists {
		return nil, false
	}
	e.rebuildTrees()
	pending := e.clusterQueue(lq.clusterQueue).pendingQueue
	var elements []*element
	i := 0
	for s := range pending.Ordered(lq.has) {
		if i-page.Offset >= page.Limit {
			break
		}
		if i >= page.Offset {
			elements = append(elements, s.element)
		}
		i++
	}
	all := make([]Pending, len(elements))
	for i, rank := range pending.Ranks(elements, nil) {
		all[i] = elements[i].Member.pending(rank, page.Offset+i)
	}
	return all, true
}

// PendingStage returns the position of one stage, if it is pending.
func (e *Engine) PendingStage(key StageKey) (Pending, bool) {
	e.rebuildTrees()
	s := e.stages[key]
	if s == nil || s.queuedIn == nil {
		return Pending{}, false
	}
	pending, elements := s.queuedIn.pendingQueue, []*element{s.element}
	return s.pending(pending.Ranks(elements, nil)[0], pending.Ranks(elements, s.localQueue.has)[0]), true
}

func (q *localQueue) has(c equivalenceKey) bool { return c.localQueue == q }

func (s *stage) pending(inClusterQueue, inLocalQueue int) Pending {
	return Pending{
		Stage: s.key, UID: s.uid, LocalQueue: s.localQueue.key, ClusterQueue: s.queuedIn.name, Priority: s.priority, Created: s.created,
		InClusterQueue: inClusterQueue, InLocalQueue: inLocalQueue,
	}
}
