// Package lookahead bounds how many JobSets are prepared ahead: those of which a stage without accelerators runs or has finished, such as the download of
// a model, while no stage with accelerators has been admitted. A download that ends a day before the training begins fills disks for nothing.
//
// A JobSet that makes no progress keeps no other waiting for long: one whose download hangs would stop its ClusterQueue while accelerators idle.
//
// The bound holds back the first stage of a JobSet only. A JobSet that is prepared holds no accelerators, and none of its stages is held back, so that it
// can always go on, and the bound is part of no deadlock.
package lookahead

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/demand"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A Board has the JobSets that are prepared ahead. It follows from the stages of the Model.
type Board struct {
	m *model.Model
	// queues have the JobSets that count. Those that do not, of which there may be many, cost no time in a check.
	queues map[*model.ClusterQueue]map[*model.JobSet]struct{}
	places map[*model.JobSet]place
	// prepared is how many of places there are in each ClusterQueue.
	prepared map[*model.ClusterQueue]int
}

// A place is where a JobSet is prepared ahead, and with which priority.
type place struct {
	queue    *model.ClusterQueue
	priority int32
	// isRunning is true if a stage holds quota. Otherwise the JobSet has prepared its work, and waits.
	isRunning bool
	// isStalled is true if no stage has been admitted for long.
	isStalled bool
}

// New returns the Board of a Model that has no stages yet.
func New(m *model.Model) *Board {
	b := &Board{m: m, queues: map[*model.ClusterQueue]map[*model.JobSet]struct{}{}, places: map[*model.JobSet]place{}, prepared: map[*model.ClusterQueue]int{}}
	m.Progressed = b.note
	return b
}

// Count returns how many JobSets of a ClusterQueue are prepared ahead.
func (b *Board) Count(q *model.ClusterQueue) int { return b.prepared[q] }

// note updates the Board after the progress of a JobSet, and wakes the stages that are held back if fewer are prepared ahead.
func (b *Board) note(j *model.JobSet) {
	if !b.m.Config.LookAhead.IsEnabled {
		return
	}
	before, now := b.places[j], b.placeOf(j)
	if now.queue != nil && !now.isStalled {
		// It has no accelerators, so that the timer is not needed for a co-start reservation.
		b.m.Timers.Put(&j.Timer, b.stallsAt(j), model.Timed{JobSet: j})
	}
	if before == now {
		return
	}
	if before.queue != nil {
		delete(b.queues[before.queue], j)
		delete(b.places, j)
		if b.prepared[before.queue]--; b.prepared[before.queue] == 0 {
			delete(b.prepared, before.queue)
		}
		if before.queue.CohortTree != nil {
			b.m.Schedule.WakeTopic(before.queue.CohortTree, model.FewerAhead)
		}
	}
	if now.queue == nil {
		return
	}
	b.places[j] = now
	b.prepared[now.queue]++
	if !now.counts() {
		return
	}
	if b.queues[now.queue] == nil {
		b.queues[now.queue] = map[*model.JobSet]struct{}{}
	}
	b.queues[now.queue][j] = struct{}{}
}

// placeOf returns where a JobSet is prepared ahead. One of which no stage runs or waits, because it is suspended for example, is not: it would keep others
// waiting without end.
func (b *Board) placeOf(j *model.JobSet) (p place) {
	if b.firstWithAccelerators(j) == nil {
		return place{}
	}
	hasBegun, goesOn := false, false
	for _, s := range j.Members {
		if s.IsGrowth || s.Index < 0 || s.Index >= len(j.Stages) {
			continue
		}
		holds, hasFinished := s.Entry.IsCharged(), s.Entry.Phase == model.Finished
		if b.hasUsedAccelerators(j, s) {
			return place{}
		}
		hasBegun, p.isRunning = hasBegun || holds || hasFinished, p.isRunning || holds
		goesOn = goesOn || holds || s.Entry.Phase == model.Waiting && !s.Entry.IsHeld
		if q := s.Entry.ClusterQueue; q != nil && (p.queue == nil || q.Name < p.queue.Name) {
			p.queue = q
		}
		p.priority = max(p.priority, s.Priority)
	}
	if !hasBegun || !goesOn {
		return place{}
	}
	p.isStalled = !b.stallsAt(j).After(b.m.Now)
	return p
}

// stallsAt returns when a JobSet is stalled, unless another of its stages is admitted before.
func (b *Board) stallsAt(j *model.JobSet) time.Time {
	var last time.Time
	for _, s := range j.Members {
		if s.Entry.IsCharged() || s.Entry.Phase == model.Finished {
			last = slices.MaxFunc([]time.Time{last, s.ReservedAt}, time.Time.Compare)
		}
	}
	return last.Add(b.m.Config.LookAhead.StalledAfter)
}

// counts reports whether a JobSet counts for the bound: it waits for accelerators, or prepares its work and is not stalled.
func (p place) counts() bool { return !p.isRunning || !p.isStalled }

// Exceeds reports whether a stage would prepare a JobSet ahead beyond the bound. That counts the JobSets of the ClusterQueue that have at least its
// priority. It does not if the accelerators are free that its JobSet and these need first, unless they are stalled. ids are the flavors and resources of which
// more have to be free.
func (b *Board) Exceeds(s *model.Stage, q *model.ClusterQueue, j *model.JobSet) (ids []quota.ID, exceeds bool) {
	if !b.m.Config.LookAhead.IsEnabled || j == nil || s.IsGrowth || s.Index < 0 || s.Index >= len(j.Stages) {
		return nil, false
	}
	first := b.firstWithAccelerators(j)
	if first == nil || b.hasAccelerators(s.Demand) || b.places[j].queue != nil || j.Members.Has(func(other *model.Stage) bool { return b.hasUsedAccelerators(j, other) }) {
		return nil, false
	}
	need, count := map[corev1.ResourceName]quota.Amount{}, 0
	b.addAccelerators(need, first)
	for other := range b.queues[q] {
		p := b.places[other]
		if p.priority < s.Priority {
			continue
		}
		count++
		if !p.isStalled {
			b.addAccelerators(need, b.firstWithAccelerators(other))
		}
	}
	if count < b.m.Config.LookAhead.MaxAhead {
		return nil, false
	}
	for resource, amount := range need {
		free, of := b.free(q, resource)
		ids = append(ids, of...)
		exceeds = exceeds || amount > free
	}
	slices.Sort(ids)
	return ids, exceeds
}

// hasUsedAccelerators reports whether a stage, or a growth of it, has or had accelerators. The demand of a stage does not tell: it no longer has those of
// ReplicatedJobs that have succeeded.
func (b *Board) hasUsedAccelerators(j *model.JobSet, s *model.Stage) bool {
	return (s.Entry.IsCharged() || s.Entry.Phase == model.Finished) && s.Index >= 0 && s.Index < len(j.Stages) && b.hasAccelerators(j.Stages[s.Index])
}

// firstWithAccelerators returns the demand of the first stage of a JobSet that has accelerators, or nil if there is none.
func (b *Board) firstWithAccelerators(j *model.JobSet) *demand.Demand {
	if !j.IsKnown() || j.Owner.Kind != decision.JobSetOwner {
		return nil
	}
	i := slices.IndexFunc(j.Stages, b.hasAccelerators)
	if i < 0 {
		return nil
	}
	return j.Stages[i]
}

func (b *Board) hasAccelerators(d *demand.Demand) bool {
	for i := range d.PodSets {
		for _, r := range d.PodSets[i].Requests {
			if r.Amount > 0 && b.m.Config.IsAccelerator(r.Resource) {
				return true
			}
		}
	}
	return false
}

func (b *Board) addAccelerators(sum map[corev1.ResourceName]quota.Amount, d *demand.Demand) {
	for i := range d.PodSets {
		for _, r := range d.PodSets[i].Requests {
			if b.m.Config.IsAccelerator(r.Resource) {
				sum[r.Resource] = sum[r.Resource].Plus(r.Amount)
			}
		}
	}
}

// free returns how much of a resource is available to a ClusterQueue, of all its flavors together.
func (b *Board) free(q *model.ClusterQueue, resource corev1.ResourceName) (sum quota.Amount, ids []quota.ID) {
	for _, g := range q.Groups {
		if !slices.Contains(g.CoveredResources, resource) {
			continue
		}
		for i := range g.Flavors {
			id := b.m.Tree.Index.ID(quota.FlavorResource{Flavor: g.Flavors[i].Name, Resource: resource})
			ids = append(ids, id)
			sum = sum.Plus(max(0, q.Node.Available(id)))
		}
	}
	return sum, ids
}
