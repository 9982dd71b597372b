package queue

import "slices"

// An Item is a pending stage. Member identifies it for the caller.
type Item[M any, S comparable] struct {
	Member M
	Position
	// Passes is true for a stage that other stages never block, such as a stage whose JobSet releases the quota that it holds only after
	// this stage has run. It is the same for all stages of a Shape.
	Passes bool
	// Shape is the same for two stages only if every check must answer the same for both. When one of them is refused, the line does not
	// offer the other: a thousand equal stages cost as much as one.
	Shape S
}

// A Strategy determines whether a stage that does not fit blocks the stages behind it.
type Strategy int

const (
	// BestEffort lets other stages overtake.
	BestEffort Strategy = iota
	// Strict lets no stage overtake but those with Passes: the stage that does not fit may wait for the quota that these release.
	Strict
)

// A Line has the pending stages of one ClusterQueue: members M of shape S that are parked on topics T.
type Line[M any, S, T comparable] struct {
	strategy Strategy
	size     int
	classes  map[S]*class[M, S, T]
	awake    ranking[*class[M, S, T]]
	asleep   map[T]*ranking[*sleeper[M, S, T]]
	behind   map[S]*class[M, S, T]
	// blocker is the first stage that does not fit, under Strict. Of the stages behind it only those with Passes are offered.
	blocker *Ticket[M, S, T]
	// lead orders shapes before positions are compared, or is nil.
	lead func(S) float64
}

// A Ticket is an element of a Line.
type Ticket[M any, S, T comparable] struct {
	Item[M, S]
	class *class[M, S, T]
	index int
	// isOut is true if the stage was removed from the line.
	isOut bool
}

func (t *Ticket[M, S, T]) compare(other *Ticket[M, S, T]) int { return t.Compare(other.Position) }

func (t *Ticket[M, S, T]) place() *int { return &t.index }

// Precedes reports whether a stage comes before another stage of the same Line.
func (t *Ticket[M, S, T]) Precedes(other *Ticket[M, S, T]) bool {
	if t.class.lead != other.class.lead {
		return t.class.lead < other.class.lead
	}
	return t.compare(other) < 0
}

// A class has the tickets of one shape.
type class[M any, S, T comparable] struct {
	shape   S
	lead    float64
	tickets ranking[*Ticket[M, S, T]]
	isAwake bool
	// untold has the tickets that were added since the class was last refused. Some may have been removed again.
	untold []*Ticket[M, S, T]
	// heard is the last announced refusal of the shape.
	heard    string
	sleepers []*sleeper[M, S, T]
	index    int
}

func (c *class[M, S, T]) compare(other *class[M, S, T]) int {
	switch {
	case c.tickets.first().Precedes(other.tickets.first()):
		return -1
	case other.tickets.first().Precedes(c.tickets.first()):
		return 1
	}
	return 0
}

func (c *class[M, S, T]) place() *int { return &c.index }

// A sleeper is a class that is parked on one topic.
type sleeper[M any, S, T comparable] struct {
	class *class[M, S, T]
	on    Wait[T]
	index int
}

func (s *sleeper[M, S, T]) compare(other *sleeper[M, S, T]) int {
	switch {
	case s.on.Need < other.on.Need:
		return -1
	case s.on.Need > other.on.Need:
		return 1
	}
	return 0
}

func (s *sleeper[M, S, T]) place() *int { return &s.index }

// A Wait is a topic on which a stage is parked, and the amount of it that makes another check worthwhile. Zero is always enough.
type Wait[T comparable] struct {
	Topic T
	Need  int64
}

// NewLine returns an empty Line.
func NewLine[M any, S, T comparable]() *Line[M, S, T] {
	return &Line[M, S, T]{
		classes: map[S]*class[M, S, T]{},
		asleep:  map[T]*ranking[*sleeper[M, S, T]]{},
		behind:  map[S]*class[M, S, T]{},
	}
}

// SetStrategy changes the strategy, and wakes all stages if it is another one.
func (l *Line[M, S, T]) SetStrategy(s Strategy) {
	if s != l.strategy {
		l.strategy = s
		l.WakeAll()
	}
}

// SetLead makes shapes with a smaller lead come first, regardless of their positions. If it is nil, only positions count. It wakes all
// stages.
func (l *Line[M, S, T]) SetLead(lead func(S) float64) {
	l.lead = lead
	l.Reorder()
	l.WakeAll()
}

// Reorder computes the lead of every shape again. It wakes stages that now come before the blocker.
func (l *Line[M, S, T]) Reorder() {
	for _, c := range l.classes {
		c.lead = l.leadOf(c.shape)
	}
	l.awake.sort()
	if l.blocker == nil {
		return
	}
	for _, c := range l.behind {
		if c.tickets.first().Precedes(l.blocker) {
			l.wake(c)
		}
	}
}

// Blocks reports whether a stage blocks the stages behind it.
func (l *Line[M, S, T]) Blocks() bool { return l.blocker != nil }

func (l *Line[M, S, T]) leadOf(shape S) float64 {
	if l.lead == nil {
		return 0
	}
	return l.lead(shape)
}

// Len returns how many stages are pending.
func (l *Line[M, S, T]) Len() int { return l.size }

// Add adds a stage, and wakes all stages of its shape.
func (l *Line[M, S, T]) Add(item Item[M, S]) *Ticket[M, S, T] {
	c := l.classes[item.Shape]
	if c == nil {
		c = &class[M, S, T]{shape: item.Shape, lead: l.leadOf(item.Shape)}
		l.classes[item.Shape] = c
	}
	t := &Ticket[M, S, T]{Item: item, class: c}
	c.untold = append(c.untold, t)
	c.tickets.push(t)
	l.size++
	if c.isAwake {
		l.awake.fix(c)
	} else {
		l.wake(c)
	}
	return t
}

// Remove removes a stage. Stages that were blocked by it are awake again.
func (l *Line[M, S, T]) Remove(t *Ticket[M, S, T]) {
	l.size--
	t.isOut = true
	c := t.class
	if c.tickets.size() == 1 {
		if c.isAwake {
			l.awake.drop(c)
		}
		l.forget(c)
		c.tickets.drop(t)
		delete(l.classes, c.shape)
	} else {
		c.tickets.drop(t)
		if c.isAwake {
			l.awake.fix(c)
		}
	}
	if l.blocker == t {
		// The next stage of its shape takes its place as blocker, and must be offered before the blocked stages.
		if c.tickets.size() > 0 && !c.isAwake {
			l.wake(c)
		}
		l.unblock()
	}
}

// Next returns the first stage that is awake, or nil.
func (l *Line[M, S, T]) Next() *Ticket[M, S, T] {
	if l.awake.size() == 0 {
		return nil
	}
	return l.awake.first().tickets.first()
}

// Blocker returns the stage that this one must not overtake, or nil.
func (l *Line[M, S, T]) Blocker(t *Ticket[M, S, T]) *Ticket[M, S, T] {
	if l.blocker == nil || l.blocker == t || t.Passes || t.Precedes(l.blocker) {
		return nil
	}
	return l.blocker
}

// Announce records why the shape of a stage is about to be refused. If the reason is new, all stages of the shape must be notified.
func (l *Line[M, S, T]) Announce(t *Ticket[M, S, T], reason string) {
	if c := t.class; c.heard != reason {
		c.heard = reason
		c.untold = slices.Clone(c.tickets.members)
	}
}

// Park parks a stage and all others of its shape until one of the waits ends, and returns, in order, those that have not been refused since
// they were added.
func (l *Line[M, S, T]) Park(t *Ticket[M, S, T], waits []Wait[T]) []M {
	told := l.park(t.class, waits)
	if l.blocker != nil && l.blocker.class == t.class {
		l.unblock()
	}
	return told
}

func (l *Line[M, S, T]) park(c *class[M, S, T], waits []Wait[T]) []M {
	if c.isAwake {
		l.awake.drop(c)
		c.isAwake = false
	}
	l.forget(c)
	for _, wait := range waits {
		if l.asleep[wait.Topic] == nil {
			l.asleep[wait.Topic] = &ranking[*sleeper[M, S, T]]{}
		}
		s := &sleeper[M, S, T]{class: c, on: wait}
		c.sleepers = append(c.sleepers, s)
		l.asleep[wait.Topic].push(s)
	}
	return c.tell()
}

// Block does the same as Park for a stage that blocks the stages behind it, if the strategy is Strict.
func (l *Line[M, S, T]) Block(t *Ticket[M, S, T], waits []Wait[T]) []M {
	told := l.park(t.class, waits)
	second := t
	if l.strategy != Strict || l.blocker == t {
		return told
	}
	if l.blocker == nil || t.Precedes(l.blocker) {
		l.blocker, second = t, l.blocker
	}
	if second != nil && !second.class.isAwake && second.class != l.blocker.class {
		// When the blocker is removed, this stage blocks in its place, and must be offered before the stages behind it.
		l.behind[second.class.shape] = second.class
	}
	return told
}

// ParkBehind parks a stage and all others of its shape until the blocker is removed or overtaken.
func (l *Line[M, S, T]) ParkBehind(t *Ticket[M, S, T]) []M {
	told := l.park(t.class, nil)
	l.behind[t.class.shape] = t.class
	return told
}

// tell returns the members of the untold tickets, and clears the list.
func (c *class[M, S, T]) tell() []M {
	untold := slices.DeleteFunc(c.untold, func(t *Ticket[M, S, T]) bool { return t.isOut })
	c.untold = nil
	slices.SortFunc(untold, (*Ticket[M, S, T]).compare)
	members := make([]M, len(untold))
	for i, t := range untold {
		members[i] = t.Member
	}
	return members
}

// Wake wakes the stages that are parked on a topic and need at most this amount, and reports whether there were any.
func (l *Line[M, S, T]) Wake(topic T, enough int64) bool {
	r := l.asleep[topic]
	woken := false
	for r != nil && r.size() > 0 && r.first().on.Need <= enough {
		l.wake(r.first().class)
		woken = true
	}
	return woken
}

// Sleeps reports whether a stage is parked on a topic.
func (l *Line[M, S, T]) Sleeps(topic T) bool { return l.asleep[topic] != nil }

// WakeAll wakes all stages.
func (l *Line[M, S, T]) WakeAll() {
	l.blocker = nil
	for _, c := range l.classes {
		if !c.isAwake {
			l.wake(c)
		}
	}
}

func (l *Line[M, S, T]) unblock() {
	l.blocker = nil
	for _, c := range l.behind {
		l.wake(c)
	}
}

// wake makes a class awake. If it has the blocker, the blocked stages stay parked until the blocker has been checked again.
func (l *Line[M, S, T]) wake(c *class[M, S, T]) {
	l.forget(c)
	c.isAwake = true
	l.awake.push(c)
}

// forget removes a class from all topics on which it is parked.
func (l *Line[M, S, T]) forget(c *class[M, S, T]) {
	for _, s := range c.sleepers {
		r := l.asleep[s.on.Topic]
		r.drop(s)
		if r.size() == 0 {
			delete(l.asleep, s.on.Topic)
		}
	}
	c.sleepers = nil
	delete(l.behind, c.shape)
}
