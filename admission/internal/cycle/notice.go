package cycle

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/notice"
	"github.com/tranche-dev/tranche/admission/preempt"
)

// A victim has notice of its preemption: it goes on running until the time of the notice, and is evicted then. In all else it counts as evicted from the
// notice on: its quota is reserved for the preemptor, and no other stage of its JobSet is admitted.
//
//	runs -> has notice -> evicted       the time has come
//	runs -> has notice -> runs          the preemptor no longer waits
//	runs -> has notice -> evicted       at once, for any other reason
//
// The condition PreemptionPending has all that a new Engine needs to know of a notice.

// noticeEnds returns when a victim is evicted, or zero if that is at once, as it is for one of which no pod may run yet. A notice that is being
// withdrawn goes on for the next preemptor.
func noticeEnds(m *model.Model, q *model.ClusterQueue, h *preempt.Holder, stages []*model.Stage) time.Time {
	length := m.Config.PreemptionNoticeOf(&q.Spec)
	if length == 0 || h.Started.IsZero() {
		return time.Time{}
	}
	ends := m.Now.Add(length + time.Second - 1).Truncate(time.Second)
	for _, s := range stages {
		if n := s.Notice.Withdrawn(); n != nil && n.Ends.Before(ends) && n.Ends.After(m.Now) {
			ends = n.Ends
		}
	}
	return ends
}

// giveNotice gives notice to the stages of a victim.
func giveNotice(cy *Cycle, stages []*model.Stage, n notice.Notice) {
	for _, s := range stages {
		if !s.IsLeaving() {
			s.IsVictim, s.IsTakenFairly = true, n.Preemption.Reason == kueue.InCohortFairSharingReason
			decideNotice(cy, s, &n)
		}
	}
}

// decideNotice decides about the notice of a stage. Nil withdraws it.
func decideNotice(cy *Cycle, s *model.Stage, n *notice.Notice) {
	cy.m.LastDecision++
	cy.m.ChargeEpoch++
	cy.m.InFlight[cy.m.LastDecision] = s.Key
	d := decision.Notice{ID: cy.m.LastDecision, Stage: s.Key, UID: s.UID}
	if n != nil {
		d.Ends, d.Preemption = n.Ends, new(n.Preemption)
	}
	s.Notice.Decide(d.ID, n)
	cy.decisions = append(cy.decisions, d)
	cy.m.Refresh(s)
}

// preemptUnit evicts the stages of a victim.
func preemptUnit(cy *Cycle, h *preempt.Holder, stages []*model.Stage, d decision.Evict) {
	cy.m.Finder.History.Record(d.Preemption.PreemptorUID, []preempt.Victim{{Holder: h}})
	d.Reason = kueue.WorkloadEvictedByPreemption
	for _, s := range stages {
		if !s.IsEvicting() {
			cy.evict(s, d)
		}
	}
}

// noticed returns the stages that have notice and are not evicted yet.
func noticed(m *model.Model) []*model.Stage {
	all := slices.SortedFunc(maps.Keys(m.Notices.All()), model.CompareStages)
	return slices.DeleteFunc(all, (*model.Stage).IsEvicting)
}

// endNotices evicts the stages whose time has come, with all that hold quota of their JobSets.
func endNotices(cy *Cycle) {
	for _, s := range noticed(cy.m) {
		n := s.CurrentNotice()
		if n == nil || s.IsEvicting() || n.Ends.After(cy.m.Now) {
			continue
		}
		p := n.Preemption
		p.VictimPath = s.Entry.ClusterQueue.Node.Path()
		h, stages := &preempt.Holder{UID: s.UID}, []*model.Stage{s}
		if j := cy.m.JobSets[s.OwnerUID]; j != nil {
			h, stages = &preempt.Holder{UID: j.UID}, j.EvictionUnit.Stages
		}
		preemptUnit(cy, h, stages, decision.Evict{
			Message: fmt.Sprintf("preempted in ClusterQueue %s after notice: %s", p.ClusterQueue, p.Reason), Preemption: &p,
		})
	}
}

// withdrawNotices withdraws the notices for preemptors that no longer wait, and reports whether there were any. What other stages have been promised of
// that quota they have to ask for again.
func withdrawNotices(cy *Cycle) bool {
	isAny := false
	for _, s := range noticed(cy.m) {
		if waits(cy.m, s.CurrentNotice()) && s.Entry.ClusterQueue.Decides() {
			continue
		}
		isAny = true
		decideNotice(cy, s, nil)
		q := s.Entry.ClusterQueue
		if q.CohortTree == nil {
			continue
		}
		cy.m.Schedule.WakeQueueAndPreemptors(q)
		cy.dropPreemptReservations(q.CohortTree.Preemptors())
	}
	return isAny
}

// waits reports whether the preemptor of a notice is pending in queues that are active, and completes what is known of it. A preemptor that a new Engine
// has not seen yet is searched once: all objects are observed before the first decision.
func waits(m *model.Model, n *notice.Notice) bool {
	p := &n.Preemption
	if p.Preemptor.Name == "" {
		for key, s := range m.Stages {
			if s.UID == p.PreemptorUID {
				p.Preemptor = key
			}
		}
	}
	s := m.Stages[p.Preemptor]
	if s == nil || s.UID != p.PreemptorUID || s.QueuedIn == nil || s.Entry.IsHeld || m.Activity(s.QueuedIn).Status != metav1.ConditionTrue {
		return false
	}
	p.ClusterQueue, p.PreemptorPath = s.QueuedIn.Name, s.QueuedIn.Node.Path()
	return true
}
