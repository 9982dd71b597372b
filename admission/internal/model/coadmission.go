package model

import (
	"maps"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis"
)

// MaxTogether bounds the size of a co-admission group: all members are checked whenever one is.
const MaxTogether = apis.MaxTogether

// A MemberState is the state of a member of a co-admission group.
type MemberState int

// The states of a member.
const (
	IsClosed MemberState = iota
	IsWaiting
	// IsAssumed means charged, but not observed so yet.
	IsAssumed
	IsHolding
	IsGoing
	hasFinished
	standings
)

// A CoAdmissionGroup is a co-admission group: stages that are admitted all or none.
type CoAdmissionGroup struct {
	Id      string
	Members stagesByKey
	// Sizes counts the members by the group size that they report.
	Sizes  map[int]int
	Counts [standings]int
	// Topic is the topic on which the members are parked until the state of one of them changes.
	Topic quota.ID
	// wasOver is the last result of IsSettled of which the other members were notified.
	wasOver bool
	// wasWhole is true if all members have been observed as admitted at once, since the last time when none held quota.
	wasWhole bool
	// Feasibility caches whether the members fit together if nothing is charged.
	Feasibility Feasibility
	// Pause is set while the group has paused the queue of one member until the other members have their turn.
	Pause Pause
}

// A Membership is what a stage reports about its co-admission group.
type Membership struct {
	CoAdmissionGroup *CoAdmissionGroup
	Size             int
	// Born is the time since when the stage asks for quota: its creation, or its last eviction.
	Born        time.Time
	MemberState MemberState
}

// standingOf returns the state of a member.
func standingOf(s *Stage) MemberState {
	switch {
	case s.Entry.Phase == Finished:
		return hasFinished
	case s.IsEvicting():
		return IsGoing
	case s.Entry.IsCharged() && s.Reservation == nil:
		return IsAssumed
	case s.Entry.IsCharged():
		return IsHolding
	case s.Entry.Phase == Waiting:
		return IsWaiting
	}
	return IsClosed
}

// review wakes the other members if the state of a member has changed.
func (m *Model) review(s *Stage) {
	member := s.Membership
	if member == nil {
		return
	}
	b, now := member.CoAdmissionGroup, standingOf(s)
	differs := now != member.MemberState
	b.Counts[member.MemberState]--
	b.Counts[now]++
	member.MemberState = now
	switch {
	case b.Counts[IsHolding]+b.Counts[IsGoing]+b.Counts[IsAssumed] == 0:
		b.wasWhole = false
	case b.IsWhole() && b.Counts[IsHolding] == len(b.Members) && !b.Members.Has((*Stage).isUnadmitted):
		b.wasWhole = true
	}
	if isOver := b.IsSettled(); differs || isOver != b.wasOver {
		b.wasOver = isOver
		m.Schedule.WakeCoAdmissionGroup(b)
		m.NoteIfStuck(b)
	}
}

// NoteIfStuck makes the next call of Decide check a group of which some members hold quota while none that is pending asks for the rest.
func (m *Model) NoteIfStuck(b *CoAdmissionGroup) {
	if b.Counts[IsHolding] > 0 && b.Counts[IsClosed] > 0 && b.Counts[IsWaiting]+b.Counts[IsAssumed]+b.Counts[IsGoing] == 0 {
		m.Stuck[b] = struct{}{}
		return
	}
	delete(m.Stuck, b)
}

// IsWhole reports whether all members report the same size, and the group has that size.
func (b *CoAdmissionGroup) IsWhole() bool { return len(b.Sizes) == 1 && b.Sizes[len(b.Members)] > 0 }

// Sorted returns the members in a state, in order.
func (b *CoAdmissionGroup) Sorted(as MemberState) []*Stage {
	if b.Counts[as] == 0 {
		return nil
	}
	members := slices.SortedFunc(maps.Values(b.Members), CompareStages)
	return slices.DeleteFunc(members, func(s *Stage) bool { return s.Membership.MemberState != as })
}

// CoAdmissionGroup returns the co-admission group of a stage, or nil if the stage is independent.
func (s *Stage) CoAdmissionGroup() *CoAdmissionGroup {
	if s.Membership == nil || s.Membership.CoAdmissionGroup.IsSettled() {
		return nil
	}
	return s.Membership.CoAdmissionGroup
}

// IsSettled reports whether all members have been admitted together, and some of them still run. Then the rest may be admitted alone. The Engine
// forgets at a restart what it has observed of that. But a stage that began to ask for quota after the holding members were admitted had been
// admitted with them before, or replaces one that was.
func (b *CoAdmissionGroup) IsSettled() bool {
	if b.Counts[IsHolding] == 0 {
		return b.Counts[hasFinished] > 0
	}
	if b.wasWhole || b.Counts[hasFinished] > 0 {
		return true
	}
	if b.Members.Has(func(s *Stage) bool { return s.Membership.MemberState == IsHolding && s.IsReady }) {
		return true
	}
	if b.Members.Has((*Stage).isUnadmitted) {
		return false
	}
	var latest time.Time
	for _, s := range b.Members {
		if s.Membership.MemberState == IsHolding && s.ReservedAt.After(latest) {
			latest = s.ReservedAt
		}
	}
	return !b.Members.Has(func(s *Stage) bool {
		asks := s.Membership.MemberState == IsWaiting || s.Membership.MemberState == IsClosed
		return asks && !s.Membership.Born.After(latest)
	})
}

// isUnadmitted reports whether a stage holds quota and waits for AdmissionChecks.
func (s *Stage) isUnadmitted() bool {
	return s.Membership.MemberState == IsHolding && s.Entry.Phase != Admitted
}

// IsTogetherWith reports whether two stages are in the same co-admission group.
func (s *Stage) IsTogetherWith(other *Stage) bool {
	return s.Membership != nil && other.Membership != nil && s.Membership.CoAdmissionGroup == other.Membership.CoAdmissionGroup
}
