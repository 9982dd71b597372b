package cycle

import (
	"maps"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// parkTogether parks all refused members, each in its own queue, and emits their refusals. Members that hold quota without the others release
// it.
func (cy *Cycle) parkTogether(l *check.Candidate) {
	g := l.GroupCandidate
	g.CoAdmissionGroup.Pause = model.Pause{}
	if noteGroupDue(cy, g) {
		return
	}
	for i, m := range g.Candidates {
		m.Waits = append(m.Waits, queue.Wait[quota.ID]{Topic: g.CoAdmissionGroup.Topic})
		cy.park(m, g.Refusals[i], g.Refusals[i])
		if m.Queue != l.Queue && m.Queue.PendingQueue.Next() != nil {
			cy.m.Schedule.ScheduleCycle(m.Queue)
		}
	}
	if g.IsPart {
		cy.evictCoAdmissionGroup(g.CoAdmissionGroup)
	}
}

// admitTogether admits all members.
func (cy *Cycle) admitTogether(g *check.GroupCandidate) {
	g.CoAdmissionGroup.Pause = model.Pause{}
	for _, l := range g.Candidates {
		cy.admit(l)
	}
}

// isTurn reports whether no stage that is not parked precedes any of the members: in its queue, and in the queues that share quota with it. In
// the cohort tree of the candidate the contest ensures that. Until then the queue of the candidate is paused, at most until every queue is idle
// and no quota has been taken meanwhile: then the preceding stages are themselves on paused queues, and wait for one of these members.
func (cy *Cycle) isTurn(l *check.Candidate) bool {
	g := l.GroupCandidate
	p := &g.CoAdmissionGroup.Pause
	if p.Rests > 0 && p.Rests < cy.rests && p.ChargeEpoch == cy.m.ChargeEpoch {
		return true
	}
	for _, m := range g.Candidates {
		if next := m.Queue.PendingQueue.Next(); next != nil && !g.ComesBefore(next, m.Queue) {
			return false
		}
		if g := m.Queue.CohortTree; g == l.Queue.CohortTree || !g.IsDirty {
			continue
		}
		for _, q := range m.Queue.CohortTree.Awake {
			if next := q.PendingQueue.Next(); next != nil && q != m.Queue && next.Compare(m.Stage.Element.Position) < 0 && !g.Has(next.Member) {
				return false
			}
		}
	}
	return true
}

// holdLine pauses a queue until every queue is idle, or a member of the group of its head is checked.
func (cy *Cycle) holdLine(l *check.Candidate) {
	l.GroupCandidate.CoAdmissionGroup.Pause = model.Pause{Rests: cy.rests, ChargeEpoch: cy.m.ChargeEpoch}
	cy.Held = append(cy.Held, l.Queue)
}

// rest resumes the paused queues, once every queue is idle.
func (cy *Cycle) rest() {
	held := cy.Held
	cy.Held = nil
	cy.rests++
	for _, q := range held {
		cy.m.Schedule.ScheduleCycle(q)
	}
}

func compareCoAdmissionGroups(a, b *model.CoAdmissionGroup) int { return strings.Compare(a.Id, b.Id) }

// evictPartialGroups evicts members that hold quota in groups of which the rest does not ask for any.
func (cy *Cycle) evictPartialGroups() {
	if len(cy.m.Stuck) == 0 {
		return
	}
	for _, b := range slices.SortedFunc(maps.Keys(cy.m.Stuck), compareCoAdmissionGroups) {
		delete(cy.m.Stuck, b)
		if b.IsWhole() && !b.IsSettled() {
			cy.evictCoAdmissionGroup(b)
		}
	}
}

// evictCoAdmissionGroup evicts the members that hold quota without the others: none of them has started.
func (cy *Cycle) evictCoAdmissionGroup(b *model.CoAdmissionGroup) {
	for _, s := range b.Sorted(model.IsHolding) {
		if !s.Entry.ClusterQueue.Decides() {
			continue
		}
		cy.evict(s, decision.Evict{
			Reason:  kueue.WorkloadEvictedByPreemption,
			Message: "not all gangs that are admitted together with it can be admitted now, and none of them keeps quota without the others",
		})
	}
}
