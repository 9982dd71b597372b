package report

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// A Pending is a pending stage with its queue position.
type Pending struct {
	Stage      decision.StageKey
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
func (rp *Reporter) PendingInClusterQueue(name string, page Page) ([]Pending, bool) {
	q := rp.m.ClusterQueues[name]
	if q == nil || !q.Exists {
		return nil, false
	}
	rp.m.RebuildTrees()
	var all []Pending
	before := map[*model.LocalQueue]int{}
	i := 0
	for s := range q.PendingQueue.Ordered(nil) {
		if i-page.Offset >= page.Limit {
			break
		}
		if i >= page.Offset {
			all = append(all, pendingOf(s, i, before[s.LocalQueue]))
		}
		before[s.LocalQueue]++
		i++
	}
	return all, true
}

// PendingInLocalQueue returns the pending stages of a LocalQueue, if it exists, in the same order.
func (rp *Reporter) PendingInLocalQueue(key types.NamespacedName, page Page) ([]Pending, bool) {
	lq := rp.m.LocalQueues[key]
	if lq == nil || !lq.Exists {
		return nil, false
	}
	rp.m.RebuildTrees()
	pending := rp.m.ClusterQueue(lq.ClusterQueue).PendingQueue
	var elements []*model.Element
	i := 0
	for s := range pending.Ordered(lq.Has) {
		if i-page.Offset >= page.Limit {
			break
		}
		if i >= page.Offset {
			elements = append(elements, s.Element)
		}
		i++
	}
	all := make([]Pending, len(elements))
	for i, rank := range pending.Ranks(elements, nil) {
		all[i] = pendingOf(elements[i].Member, rank, page.Offset+i)
	}
	return all, true
}

// PendingStage returns the position of one stage, if it is pending.
func (rp *Reporter) PendingStage(key decision.StageKey) (Pending, bool) {
	rp.m.RebuildTrees()
	s := rp.m.Stages[key]
	if s == nil || s.QueuedIn == nil {
		return Pending{}, false
	}
	pending, elements := s.QueuedIn.PendingQueue, []*model.Element{s.Element}
	return pendingOf(s, pending.Ranks(elements, nil)[0], pending.Ranks(elements, s.LocalQueue.Has)[0]), true
}

func pendingOf(s *model.Stage, inClusterQueue, inLocalQueue int) Pending {
	return Pending{
		Stage: s.Key, UID: s.UID, LocalQueue: s.LocalQueue.Key, ClusterQueue: s.QueuedIn.Name, Priority: s.Priority, Created: s.Created,
		InClusterQueue: inClusterQueue, InLocalQueue: inLocalQueue,
	}
}
