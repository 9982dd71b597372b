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

// maxTogether bounds how many stages are admitted together: all of them are looked at whenever one is.
const maxTogether = apis.MaxTogether

// A standing is how a stage counts among those that it is admitted together with.
type standing int

const (
	isClosed standing = iota
	isWaiting
	// isAssumed is charged, and not observed so yet.
	isAssumed
	isHolding
	isGoing
	hasFinished
	standings
)

// A bundle is stages that are admitted together or not at all.
type bundle struct {
	id      string
	members map[StageKey]*stage
	// sizes counts the members by how many of them there should be, as each says.
	sizes  map[int]int
	counts [standings]int
	// topic is what they sleep on until one of them stands otherwise.
	topic quota.ID
	// wasOver tells what isOver did when it was last asked whether the others have to hear of it.
	wasOver bool
	// wasWhole tells that all of them have been seen admitted at once, since the last time when none held quota.
	wasWhole bool
	// best is what is known of whether they fit together where nothing is charged.
	best best
	// hold is set while one of them has stopped its line until others have come to their turn.
	hold hold
}

// A membership is what a stage that is in a bundle says of it.
type membership struct {
	bundle *bundle
	size   int
	// born is since when the stage asks for quota: its creation, or its last eviction.
	born     time.Time
	standing standing
}

// adoptBundle makes a stage a member of the bundle that it names.
func (e *Engine) adoptBundle(s *stage, object *kueue.Workload) {
	id := object.Labels[apis.AdmitTogetherLabel]
	if id == "" {
		e.unbundle(s)
		return
	}
	size := bundleSize(object.Annotations[apis.AdmitTogetherCountAnnotation])
	if m := s.membership; m == nil || m.bundle.id != id || m.size != size {
		e.unbundle(s)
		// It does not preempt any more.
		e.lose(s)
		b := e.bundles[id]
		if b == nil {
			b = &bundle{id: id, members: map[StageKey]*stage{}, sizes: map[int]int{}, topic: e.newTopic()}
			e.bundles[id] = b
		}
		s.membership = &membership{bundle: b, size: size}
		b.members[s.key] = s
		b.sizes[size]++
		b.counts[isClosed]++
		e.wakeBundle(b)
		if s.line != nil {
			// So far it did not wait for them.
			e.wakeLine(s.line)
		}
	}
	s.membership.born = bornAt(object)
}

// bundleSize reads how many there are. What is no number of stages that can be admitted together counts as 0.
func bundleSize(text string) int {
	size, err := strconv.Atoi(text)
	if err != nil || size < 1 || size > maxTogether {
		return 0
	}
	return size
}

// bornAt is since when a quota Workload asks for quota. One whose checks failed has not been admitted before.
func bornAt(object *kueue.Workload) time.Time {
	born := object.CreationTimestamp.Time
	if c := condition(object, kueue.WorkloadEvicted); c != nil && c.Reason != kueue.WorkloadEvictedByAdmissionCheck && c.LastTransitionTime.After(born) {
		born = c.LastTransitionTime.Time
	}
	return born
}

// unbundle takes a stage out of its bundle, if it is in one.
func (e *Engine) unbundle(s *stage) {
	m := s.membership
	if m == nil {
		return
	}
	b := m.bundle
	s.membership = nil
	delete(b.members, s.key)
	b.counts[m.standing]--
	if b.sizes[m.size]--; b.sizes[m.size] == 0 {
		delete(b.sizes, m.size)
	}
	if len(b.members) == 0 {
		delete(e.bundles, b.id)
		delete(e.stuck, b)
		return
	}
	e.wakeBundle(b)
	e.noteIfStuck(b)
}

// standingOf says how a stage counts.
func standingOf(s *stage) standing {
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

// review tells the others in its bundle if a stage stands otherwise than before.
func (e *Engine) review(s *stage) {
	m := s.membership
	if m == nil {
		return
	}
	b, now := m.bundle, standingOf(s)
	differs := now != m.standing
	b.counts[m.standing]--
	b.counts[now]++
	m.standing = now
	switch {
	case b.counts[isHolding]+b.counts[isGoing]+b.counts[isAssumed] == 0:
		b.wasWhole = false
	case b.isWhole() && b.counts[isHolding] == len(b.members) && !b.has((*stage).isUnadmitted):
		b.wasWhole = true
	}
	if isOver := b.isOver(); differs || isOver != b.wasOver {
		b.wasOver = isOver
		e.wakeBundle(b)
		e.noteIfStuck(b)
	}
}

// wakeBundle wakes all in a bundle who wait for the others. Where there are too many, none is admitted whatever the others do.
func (e *Engine) wakeBundle(b *bundle) {
	if e.isStale || len(b.members) > maxTogether+1 {
		return
	}
	for _, s := range b.members {
		if s.line != nil && s.line.line.Wake(b.topic, 0) {
			e.rouse(s.line)
		}
	}
}

// noteIfStuck makes the next call of Decide look at a bundle some of which hold quota while nobody in line asks for the rest.
func (e *Engine) noteIfStuck(b *bundle) {
	if b.counts[isHolding] > 0 && b.counts[isClosed] > 0 && b.counts[isWaiting]+b.counts[isAssumed]+b.counts[isGoing] == 0 {
		e.stuck[b] = struct{}{}
		return
	}
	delete(e.stuck, b)
}

// has tells whether there is such a member.
func (b *bundle) has(is func(*stage) bool) bool {
	for _, s := range b.members {
		if is(s) {
			return true
		}
	}
	return false
}

// isWhole tells whether there are as many as all say.
func (b *bundle) isWhole() bool { return len(b.sizes) == 1 && b.sizes[len(b.members)] > 0 }

// sorted lists the members that stand in some way.
func (b *bundle) sorted(as standing) []*stage {
	if b.counts[as] == 0 {
		return nil
	}
	members := slices.SortedFunc(maps.Values(b.members), compareStages)
	return slices.DeleteFunc(members, func(s *stage) bool { return s.membership.standing != as })
}

// bundle returns that of a stage, or nil if the stage stands for itself.
func (s *stage) bundle() *bundle {
	if s.membership == nil || s.membership.bundle.isOver() {
		return nil
	}
	return s.membership.bundle
}

// isOver tells whether the members have all been admitted together, and some of them still run. Then the rest may be admitted alone. What
// is remembered of that is lost with the Engine, but a stage that began to ask for quota after those that hold some were admitted was
// admitted with them before, or took the place of one that was.
func (b *bundle) isOver() bool {
	if b.counts[isHolding] == 0 {
		return b.counts[hasFinished] > 0
	}
	if b.wasWhole || b.counts[hasFinished] > 0 {
		return true
	}
	if b.has(func(s *stage) bool { return s.membership.standing == isHolding && s.isReady }) {
		return true
	}
	if b.has((*stage).isUnadmitted) {
		return false
	}
	var latest time.Time
	for _, s := range b.members {
		if s.membership.standing == isHolding && s.reservedAt.After(latest) {
			latest = s.reservedAt
		}
	}
	return !b.has(func(s *stage) bool {
		asks := s.membership.standing == isWaiting || s.membership.standing == isClosed
		return asks && !s.membership.born.After(latest)
	})
}

// isUnadmitted tells whether a stage holds quota and waits for AdmissionChecks.
func (s *stage) isUnadmitted() bool {
	return s.membership.standing == isHolding && s.entry.phase != admitted
}

// breakUp evicts those who hold quota in bundles of which the rest does not ask for any.
func (e *Engine) breakUp(decisions []Decision) []Decision {
	if len(e.stuck) == 0 {
		return decisions
	}
	for _, b := range slices.SortedFunc(maps.Keys(e.stuck), compareBundles) {
		delete(e.stuck, b)
		if b.isWhole() && !b.isOver() {
			decisions = e.evictBundle(b, decisions)
		}
	}
	return decisions
}

// evictBundle takes back what some of a bundle hold without the others: none of them has begun.
func (e *Engine) evictBundle(b *bundle, decisions []Decision) []Decision {
	for _, s := range b.sorted(isHolding) {
		decisions = append(decisions, e.evict(s, Evict{
			Reason:  kueue.WorkloadEvictedByPreemption,
			Message: "gives its quota back: it is admitted together with other gangs or not at all, and not all of them can be admitted now",
		}))
		e.account(s)
	}
	return decisions
}

// isTogetherWith tells whether two stages are in the same bundle.
func (s *stage) isTogetherWith(other *stage) bool {
	return s.membership != nil && other.membership != nil && s.membership.bundle == other.membership.bundle
}
