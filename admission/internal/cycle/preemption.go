package cycle

import (
	"cmp"
	"fmt"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/notice"
	"github.com/tranche-dev/tranche/admission/quota"
)

// stillHelps reports whether the victims of a nominee, all of its own ClusterQueue, which no other stage may take, are still valid, enough and
// necessary: they may not be if the victims of another stage release more than that one needs.
func (cy *Cycle) stillHelps(l *nominee) bool {
	for n := l.Queue.Node; n != nil; n = n.Parent() {
		if cy.surplus[n] > l.asOf {
			return false
		}
	}
	for _, v := range l.Victims {
		if v.Reason != kueue.InClusterQueueReason || model.EvictionUnitOf(v.Holder).Holder != v.Holder || v.Holder.IsEvicting() {
			return false
		}
	}
	return len(l.Victims) > 0 && cy.m.Tree.WhatIf(func() bool {
		for _, v := range l.Victims {
			l.Queue.Node.Release(v.Holder.Usage)
		}
		return l.Queue.Node.Fits(l.Needed())
	})
}

// makeRoom evicts the victims, and reserves the usage of the stage for it, so that no other stage takes the quota that they release.
//
// A stage that lost its reservation in the same cycle, because another stage took quota that it counted on, gets no new reservation for
// quota that is being released anyway: two stages could take turns at that forever. The stage is checked again when a victim has left.
func (cy *Cycle) makeRoom(l *check.Candidate) {
	missing, before := cy.check.List(cy.missing(l)), cy.usageAfterEvictions(l.Victims)
	if len(l.Victims) > 0 || l.Stage.LostReservationIn != cy.m.Cycles {
		behind, passesPeaks := cy.check.PreemptorsBehind(l), l.Stage.PassesPeaks || len(l.Reservers) > 0
		cy.m.ReserveForPreemptor(l.Stage, l.Queue, l.Needed())
		l.Stage.PassesPeaks = passesPeaks
		cy.m.Enqueue(l.Stage)
		cy.dropPreemptReservations(behind)
		cy.dropPeaks(l)
	}
	for _, v := range l.Victims {
		unit := model.EvictionUnitOf(v.Holder)
		message := fmt.Sprintf("preempted in ClusterQueue %s: %s", l.Queue.Name, v.Reason)
		if unit.Queue != l.Queue {
			message += fmt.Sprintf(", reclaims %s from ClusterQueue %s", missing, unit.Queue.Name)
		}
		preemption := decision.Preemption{
			Preemptor: l.Stage.Key, PreemptorUID: l.Stage.UID, ClusterQueue: l.Queue.Name, Reason: v.Reason,
			PreemptorPath: l.Queue.Node.Path(), VictimPath: unit.Queue.Node.Path(),
		}
		if ends := noticeEnds(cy.m, unit.Queue, v.Holder, unit.Stages); ends.IsZero() {
			preemptUnit(cy, v.Holder, unit.Stages, decision.Evict{Message: message, Preemption: &preemption})
		} else {
			giveNotice(cy, unit.Stages, notice.Notice{Ends: ends, Preemption: preemption})
		}
		cy.m.ChangedReservations = append(cy.m.ChangedReservations, unit.Queue)
	}
	cy.wakeForSurplus(before)
	l.Effect = check.BlocksOthers
	l.Waits = nil
	for _, c := range l.Needed() {
		l.WaitFor(c.ID, 0)
	}
	cy.check.WaitForOtherChoices(l)
	cy.refuse(l, cy.check.RoomIsMade(l))
	if len(l.Victims) > 0 && cy.fitsAlready(l) {
		cy.m.Schedule.WakeQueue(l.Queue)
	}
}

// reserveForRestored makes the reservations that preemptors had before a restart, while their victims leave. A cycle makes them only as it checks the
// preemptors, and may have admitted others before.
func reserveForRestored(cy *Cycle) {
	uids := cy.m.RestoredPreemptors
	if len(uids) == 0 {
		return
	}
	cy.m.RestoredPreemptors = nil
	var preemptors []*model.Stage
	for _, s := range cy.m.Stages {
		isAwaiting, is := uids[s.UID]
		if is && s.QueuedIn != nil {
			cy.m.Enqueue(s) // unlike others with its demand, it need not wait for due stages
		}
		if isAwaiting && s.QueuedIn != nil && s.QueuedIn.Decides() && s.PreemptQueue == nil && s.CoAdmissionGroup() == nil && s.QueuedIn.CohortTree != nil {
			preemptors = append(preemptors, s)
		}
	}
	cy.m.Cycles++ // none of them has lost a reservation in this one
	slices.SortFunc(preemptors, func(a, b *model.Stage) int {
		return cmp.Or(model.CompareGroups(a.QueuedIn.CohortTree, b.QueuedIn.CohortTree), model.ComparePreemptors(b, a))
	})
	for _, s := range preemptors {
		if l := cy.check.Candidate(s); cy.check.Check(l) == nil && l.Preempts() && len(l.Victims) == 0 {
			cy.makeRoom(l)
		}
	}
}

// missing returns the usage of a stage that is not free, and will not be when all stages that are already being evicted have left.
func (cy *Cycle) missing(l *check.Candidate) quota.Usage {
	var missing quota.Usage
	cy.check.IgnoringOwnReservations(l, func() bool {
		return cy.m.Tree.WhatIfEvicted(func() bool {
			for _, c := range l.Needed() {
				if free := max(0, l.Queue.Node.Available(c.ID)); c.Amount > free {
					missing.Add(c.ID, c.Amount.Minus(free))
				}
			}
			return true
		})
	})
	return missing
}

// fitsAlready reports whether there is quota for a stage although its victims have not left yet: the peak reservations of its victims are
// released at once.
func (cy *Cycle) fitsAlready(l *check.Candidate) bool {
	return cy.check.IgnoringOwnReservations(l, func() bool { return l.Queue.Node.Fits(l.Needed()) })
}

// reserveNominal reserves nominal quota for a stage that waits for it, and reports whether there is any to reserve.
func (cy *Cycle) reserveNominal(l *check.Candidate) bool {
	return cy.setNominal(l, cy.check.NominalReservation(l))
}

// setNominal makes a reservation of nominal quota for a stage, and reports whether there is any.
func (cy *Cycle) setNominal(l *check.Candidate, reserved quota.Usage) bool {
	if len(reserved) == 0 {
		return false
	}
	if !l.Stage.ReservesNominal || l.Stage.PreemptQueue != l.Queue || !l.Stage.PreemptReserved.Equal(reserved) {
		cy.m.ReserveForPreemptor(l.Stage, l.Queue, reserved)
		l.Stage.ReservesNominal = true
		l.Queue.CohortTree.NominalReservers[l.Stage] = struct{}{}
		cy.m.Enqueue(l.Stage)
	}
	return true
}

// dropPreemptReservations cancels the reservations that no longer fit, since another stage has got part of their quota. The stages are checked again, and get
// no new reservation in this cycle unless they evict a victim: so a cycle ends. A reservation of nominal quota is not cancelled: the check would make it
// again, whatever other ClusterQueues use, and two such changes could wake each other forever.
func (cy *Cycle) dropPreemptReservations(behind []*model.Stage) {
	for _, s := range behind {
		if s.PreemptQueue != nil && !cy.canStillHave(s.PreemptQueue, s.PreemptReserved) {
			q := s.PreemptQueue
			if !s.ReservesNominal {
				cy.m.CancelReservation(s)
			}
			cy.m.Schedule.WakeQueue(q)
		}
	}
}

// canStillHave reports whether a reservation will fit when all stages that are being evicted have left.
func (cy *Cycle) canStillHave(q *model.ClusterQueue, reserved quota.Usage) bool {
	return cy.m.Tree.WhatIfEvicted(func() bool {
		q.Node.Release(reserved)
		return q.Node.Fits(reserved)
	})
}
