package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

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

// IsPending reports whether a stage is pending. Its position takes more time.
func (rp *Reporter) IsPending(key decision.StageKey) bool {
	rp.m.RebuildTrees()
	s := rp.m.Stages[key]
	return s != nil && s.QueuedIn != nil
}

// A Repeat is a pending stage on which no decision depends as long as another one waits and is not about to preempt.
type Repeat struct{ Stage, Behind decision.StageKey }

// Repeated returns the pending stages of a ClusterQueue that come after some others of the same equivalence class but for the time limit, whose limits are not
// longer. Behind is the last of these others.
func (rp *Reporter) Repeated(clusterQueue string, others int) []Repeat {
	q := rp.m.ClusterQueues[clusterQueue]
	if q == nil {
		return nil
	}
	rp.m.RebuildTrees()
	var all []Repeat
	for _, stages := range q.PendingQueue.Alike(others) {
		if q.Preemption.WithinClusterQueue != kueue.PreemptionPolicyLowerOrNewerEqualPriority {
			all = append(all, behind(stages, others)...)
			continue
		}
		// Where the older of equal stages may preempt the newer, the first may be refused because it would, and the second pass.
		byLimit := map[time.Duration][]*model.Stage{}
		for _, s := range stages {
			byLimit[s.TimeLimit] = append(byLimit[s.TimeLimit], s)
		}
		for _, limit := range slices.Sorted(maps.Keys(byLimit)) {
			all = append(all, behind(byLimit[limit], others)...)
		}
	}
	return all
}

// behind returns those of some stages that come after some others with a limit that is not longer.
func behind(stages []*model.Stage, others int) []Repeat {
	limit := func(s *model.Stage) time.Duration { return cmp.Or(s.TimeLimit, math.MaxInt64) }
	var all []Repeat
	var shortest []int // indices of as many as must come before, ordered by limit and then by index
	for i, s := range stages {
		if len(shortest) == others && limit(stages[shortest[others-1]]) <= limit(s) {
			all = append(all, Repeat{Stage: s.Key, Behind: stages[slices.Max(shortest)].Key})
			continue
		}
		at, _ := slices.BinarySearchFunc(shortest, s, func(k int, s *model.Stage) int { return cmp.Or(cmp.Compare(limit(stages[k]), limit(s)), -1) })
		shortest = slices.Insert(shortest, at, i)
		shortest = shortest[:min(len(shortest), others)]
	}
	return all
}

func pendingOf(s *model.Stage, inClusterQueue, inLocalQueue int) Pending {
	return Pending{
		Stage: s.Key, UID: s.UID, LocalQueue: s.LocalQueue.Key, ClusterQueue: s.QueuedIn.Name, Priority: s.Priority, Created: s.Created,
		InClusterQueue: inClusterQueue, InLocalQueue: inLocalQueue,
	}
}
