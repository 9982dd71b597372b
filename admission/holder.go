package admission

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A tenure is what preemption knows of a stage, or of all stages of a JobSet, that hold quota of one ClusterQueue. Its home is
// renewTenure, which derives it from what is booked.
type tenure struct {
	holder *preempt.Holder
	queue  *clusterQueue
	// stages are those that leave together.
	stages []*stage
}

// renewTenures brings what preemption knows of a stage that belongs to no JobSet in step with what is booked for it.
func (e *Engine) renewTenures(s *stage) {
	if s.owner == "" {
		s.tenure = e.renewTenure(s.tenure, s.uid, []*stage{s})
	}
}

// renewTenuresOf does the same for a JobSet, whose stages leave together. Those that are charged to another ClusterQueue than its home,
// as only an administrator can bring about, leave with them, but are not looked for.
func (e *Engine) renewTenuresOf(j *jobSet) {
	stages := slices.SortedFunc(maps.Values(j.members), compareStages)
	j.tenure = e.renewTenure(j.tenure, j.uid, stages)
}

func (e *Engine) renewTenure(old tenure, uid types.UID, stages []*stage) tenure {
	stages = slices.DeleteFunc(stages, func(s *stage) bool { return !s.entry.isCharged() })
	var now tenure
	if len(stages) > 0 {
		now = newTenure(uid, stages)
	}
	if old.says(&now) {
		return old
	}
	if old.holder != nil {
		old.queue.holders.Remove(old.holder)
	}
	if now.holder != nil {
		now.queue.holders.Add(now.holder)
		if slices.ContainsFunc(stages, (*stage).isLeaving) {
			now.queue.holders.Evict(now.holder)
		}
	}
	return now
}

func newTenure(uid types.UID, stages []*stage) tenure {
	t := tenure{queue: stages[0].entry.clusterQueue, stages: stages}
	h := &preempt.Holder{UID: uid, Key: stages[0].key.String(), Priority: int64(stages[0].priority), Queued: stages[0].created, Reserved: stages[0].reservedAt}
	for _, s := range stages {
		if s.entry.clusterQueue == t.queue {
			h.Usage = plus(h.Usage, s.entry.usage)
		}
		h.Priority = max(h.Priority, int64(s.priority))
		h.Queued, h.Reserved = earlier(h.Queued, s.created), earlier(h.Reserved, s.reservedAt)
	}
	t.holder = h
	return t
}

func plus(a, b quota.Usage) quota.Usage {
	if len(a) == 0 {
		return b
	}
	sum := a.Clone()
	sum.AddAll(b)
	return sum
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// says tells whether two tenures are the same for preemption.
func (t *tenure) says(o *tenure) bool {
	if t.holder == nil || o.holder == nil {
		return t.holder == o.holder
	}
	return t.queue == o.queue && t.holder.Usage.Equal(o.holder.Usage) && t.holder.Priority == o.holder.Priority &&
		t.holder.Queued.Equal(o.holder.Queued) && t.holder.Reserved.Equal(o.holder.Reserved) &&
		t.holder.IsEvicting() == slices.ContainsFunc(o.stages, (*stage).isLeaving) && slices.Equal(t.stages, o.stages)
}
