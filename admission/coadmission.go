package admission

import (
	"maps"
	"slices"
	"strconv"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis"
)

// maxTogether bounds the size of a co-admission group: all members are checked whenever one is.
const maxTogether = apis.MaxTogether

// A memberState is the state of a member of a co-admission group.
type memberState int

const (
	isClosed memberState = iota
	isWaiting
	// isAssumed means charged, but not observed so yet.
	isAssumed
	isHolding
	isGoing
	hasFinished
	standings
)

// A coAdmissionGroup is a co-admission group: stages that are admitted all or none.
type coAdmissionGroup struct {
	id      string
	members map[StageKey]*stage
	// sizes counts the members by the group size that they report.
	sizes  map[int]int
	counts [standings]int
	// topic is the topic on which the members are parked until the state of one of them changes.
	topic quota.ID
	// wasOver is the last result of isSettled of which the other members were notified.
	wasOver bool
	// wasWhole is true if all members have been observed as admitted at once, since the last time when none held quota.
	wasWhole bool
	// feasibility caches whether the members fit together if nothing is charged.
	feasibility feasibility
	// pause is set while the group has paused the queue of one member until the other members have their turn.
	pause pause
}

// A membership is what a stage reports about its co-admission group.
type membership struct {
	coAdmissionGroup *coAdmissionGroup
	size             int
	// born is the time since when the stage asks for quota: its creation, or its last eviction.
	born        time.Time
	memberState memberState
}

// adoptCoAdmissionGroup makes a stage a member of the co-admission group that its label names.
func (e *Engine) adoptCoAdmissionGroup(s *stage, object *kueue.Workload) {
	id := object.Labels[apis.AdmitTogetherLabel]
	if id == "" {
		e.unbundle(s)
		return
	}
	size := coAdmissionGroupSize(object.Annotations[apis.AdmitTogetherCountAnnotation])
	if m := s.membership; m == nil || m.coAdmissionGroup.id != id || m.size != size {
		e.unbundle(s)
		// It no longer preempts.
		e.cancelReservation(s)
		b := e.coAdmissionGroups[id]
		if b == nil {
			b = &coAdmissionGroup{id: id, members: map[StageKey]*stage{}, sizes: map[int]int{}, topic: e.newTopic()}
			e.coAdmissionGroups[id] = b
		}
		s.membership = &membership{coAdmissionGroup: b, size: size}
		b.members[s.key] = s
		b.sizes[size]++
		b.counts[isClosed]++
		e.wakeCoAdmissionGroup(b)
		if s.queuedIn != nil {
			// Until now it did not wait for the other members.
			e.wakeLine(s.queuedIn)
		}
	}
	s.membership.born = bornAt(object)
}

// coAdmissionGroupSize parses the size of a group. It returns 0 for a text that is no valid size.
func coAdmissionGroupSize(text string) int {
	size, err := strconv.Atoi(text)
	if err != nil || size < 1 || size > maxTogether {
		return 0
	}
	return size
}

// bornAt returns since when a quota Workload asks for quota. If its AdmissionChecks failed, it has not been admitted before.
func bornAt(object *kueue.Workload) time.Time {
	born := object.CreationTimestamp.Time
	if c := condition(object, kueue.WorkloadEvicted); c != nil && c.Reason != kueue.WorkloadEvictedByAdmissionCheck && c.LastTransitionTime.After(born) {
		born = c.LastTransitionTime.Time
	}
	return born
}

// unbundle removes a stage from its co-admission group, if it has one.
func (e *Engine) unbundle(s *stage) {
	m := s.membership
	if m == nil {
		return
	}
	b := m.coAdmissionGroup
	s.membership = nil
	delete(b.members, s.key)
	b.counts[m.memberState]--
	if b.sizes[m.size]--; b.sizes[m.size] == 0 {
		delete(b.sizes, m.size)
	}
	if len(b.members) == 0 {
		delete(e.coAdmissionGroups, b.id)
		delete(e.stuck, b)
		return
	}
	e.wakeCoAdmissionGroup(b)
	e.noteIfStuck(b)
}

// standingOf returns the state of a member.
func standingOf(s *stage) memberState {
	switch {
	case s.entry.phase == finished:
		return hasFinished
	case s.isLeaving():
		return isGoing
	case s.entry.isCharged() && s.reservation == nil:
		return isAssumed
	case s.entry.isCharged():
		return isHolding
	case s.entry.phase == waiting:
		return isWaiting
	}
	return isClosed
}

// review wakes the other members if the state of a member has changed.
func (e *Engine) review(s *stage) {
	m := s.membership
	if m == nil {
		return
	}
	b, now := m.coAdmissionGroup, standingOf(s)
	differs := now != m.memberState
	b.counts[m.memberState]--
	b.counts[now]++
	m.memberState = now
	switch {
	case b.counts[isHolding]+b.counts[isGoing]+b.counts[isAssumed] == 0:
		b.wasWhole = false
	case b.isWhole() && b.counts[isHolding] == len(b.members) && !b.has((*stage).isUnadmitted):
		b.wasWhole = true
	}
	if isOver := b.isSettled(); differs || isOver != b.wasOver {
		b.wasOver = isOver
		e.wakeCoAdmissionGroup(b)
		e.noteIfStuck(b)
	}
}

// wakeCoAdmissionGroup wakes all members that wait for the others. If there are too many members, none is admitted whatever the others do.
func (e *Engine) wakeCoAdmissionGroup(b *coAdmissionGroup) {
	if e.isStale || len(b.members) > maxTogether+1 {
		return
	}
	for _, s := range b.members {
		if s.queuedIn != nil && s.queuedIn.pendingQueue.Wake(b.topic, 0) {
			e.scheduleCycle(s.queuedIn)
		}
	}
}

// noteIfStuck makes the next call of Decide check a group of which some members hold quota while none that is pending asks for the rest.
func (e *Engine) noteIfStuck(b *coAdmissionGroup) {
	if b.counts[isHolding] > 0 && b.counts[isClosed] > 0 && b.counts[isWaiting]+b.counts[isAssumed]+b.counts[isGoing] == 0 {
		e.stuck[b] = struct{}{}
		return
	}
	delete(e.stuck, b)
}

// has reports whether a member satisfies the predicate.
func (b *coAdmissionGroup) has(is func(*stage) bool) bool {
	for _, s := range b.members {
		if is(s) {
			return true
		}
	}
	return false
}

// isWhole reports whether all members report the same size, and the group has that size.
func (b *coAdmissionGroup) isWhole() bool { return len(b.sizes) == 1 && b.sizes[len(b.members)] > 0 }

// sorted returns the members in a state, in order.
func (b *coAdmissionGroup) sorted(as memberState) []*stage {
	if b.counts[as] == 0 {
		return nil
	}
	members := slices.SortedFunc(maps.Values(b.members), compareStages)
	return slices.DeleteFunc(members, func(s *stage) bool { return s.membership.memberState != as })
}

// coAdmissionGroup returns the co-admission group of a stage, or nil if the stage is independent.
func (s *stage) coAdmissionGroup() *coAdmissionGroup {
	if s.membership == nil || s.membership.coAdmissionGroup.isSettled() {
		return nil
	}
	return s.membership.coAdmissionGroup
}

// isSettled reports whether all members have been admitted together, and some of them still run. Then the rest may be admitted alone. The Engine
// forgets at a restart what it has observed of that. But a stage that began to ask for quota after the holding members were admitted had been
// admitted with them before, or replaces one that was.
func (b *coAdmissionGroup) isSettled() bool {
	if b.counts[isHolding] == 0 {
		return b.counts[hasFinished] > 0
	}
	if b.wasWhole || b.counts[hasFinished] > 0 {
		return true
	}
	if b.has(func(s *stage) bool { return s.membership.memberState == isHolding && s.isReady }) {
		return true
	}
	if b.has((*stage).isUnadmitted) {
		return false
	}
	var latest time.Time
	for _, s := range b.members {
		if s.membership.memberState == isHolding && s.reservedAt.After(latest) {
			latest = s.reservedAt
		}
	}
	return !b.has(func(s *stage) bool {
		asks := s.membership.memberState == isWaiting || s.membership.memberState == isClosed
		return asks && !s.membership.born.After(latest)
	})
}

// isUnadmitted reports whether a stage holds quota and waits for AdmissionChecks.
func (s *stage) isUnadmitted() bool {
	return s.membership.memberState == isHolding && s.entry.phase != admitted
}

// evictPartialGroups evicts members that hold quota in groups of which the rest does not ask for any.
func (e *Engine) evictPartialGroups(decisions []Decision) []Decision {
	if len(e.stuck) == 0 {
		return decisions
	}
	for _, b := range slices.SortedFunc(maps.Keys(e.stuck), compareCoAdmissionGroups) {
		delete(e.stuck, b)
		if b.isWhole() && !b.isSettled() {
			decisions = e.evictCoAdmissionGroup(b, decisions)
		}
	}
	return decisions
}

// evictCoAdmissionGroup evicts the members that hold quota without the others: none of them has started.
func (e *Engine) evictCoAdmissionGroup(b *coAdmissionGroup, decisions []Decision) []Decision {
	for _, s := range b.sorted(isHolding) {
		decisions = append(decisions, e.evict(s, Evict{
			Reason:  kueue.WorkloadEvictedByPreemption,
			Message: "gives its quota back: it is admitted together with other gangs or not at all, and not all of them can be admitted now",
		}))
		e.refresh(s)
	}
	return decisions
}

// isTogetherWith reports whether two stages are in the same co-admission group.
func (s *stage) isTogetherWith(other *stage) bool {
	return s.membership != nil && other.membership != nil && s.membership.coAdmissionGroup == other.membership.coAdmissionGroup
}
