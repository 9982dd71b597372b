package queue

import (
	"cmp"
	"math"
	"slices"

	"github.com/tranche-dev/tranche/queue/ranking"
)

// An Item is a pending stage. Member identifies it for the caller.
type Item[M any, S comparable] struct {
	Member M
	Position
	// Limit is how long the stage may run, in seconds, or Unlimited. If a check passes a stage, it passes all of its Shape with a shorter limit, too.
	Limit int64
	// Passes is true for a stage that other stages never block, such as a stage whose JobSet releases the quota that it holds only after
	// this stage has run. It is the same for all stages of a Shape.
	Passes bool
	// Shape is the same for two stages only if every check must answer the same for both. When one of them is refused, the queue does not
	// offer the other: a thousand equal stages cost as much as one.
	Shape S
}

// Unlimited is the Limit of a stage that may run for any time.
const Unlimited = math.MaxInt64

// A Strategy determines whether a stage that does not fit blocks the stages behind it.
type Strategy int

const (
	// BestEffort lets other stages overtake.
	BestEffort Strategy = iota
	// Strict lets no stage overtake but those with Passes: the stage that does not fit may wait for the quota that these release.
	Strict
)

// A Pending has the pending stages of one ClusterQueue: members M of shape S that are parked on topics T.
type Pending[M any, S, T comparable] struct {
	strategy Strategy
	size     int
	classes  map[S]*equivClass[M, S, T]
	awake    ranking.Ranking[*equivClass[M, S, T]]
	asleep   map[T]*ranking.Ranking[*sleeper[M, S, T]]
	behind   map[S]*equivClass[M, S, T]
	// seconds are those in behind that were checked and did not fit.
	seconds map[S]*equivClass[M, S, T]
	// blocker is the first stage that does not fit, under Strict. Of the stages behind it only those with Passes are offered.
	blocker *Element[M, S, T]
	// lead orders shapes before positions are compared, or is nil.
	lead func(S) float64
}

// An Element is an element of a Pending. There may be a million of them, so what is the same for all stages of a shape is in their class.
type Element[M any, S, T comparable] struct {
	Member M
	Position
	limit      int64
	equivClass *equivClass[M, S, T]
	// index and limitIndex are the places in the rankings of the class.
	index, limitIndex int
	// isOut is true if the stage was removed from the queue.
	isOut bool
}

// Item returns what was added.
func (t *Element[M, S, T]) Item() Item[M, S] {
	return Item[M, S]{Member: t.Member, Position: t.Position, Limit: t.limit, Passes: t.Passes(), Shape: t.Shape()}
}

// Shape returns the shape of the stage.
func (t *Element[M, S, T]) Shape() S { return t.equivClass.shape }

// Passes reports whether other stages never block this one.
func (t *Element[M, S, T]) Passes() bool { return t.equivClass.passes }

// Precedes reports whether a stage comes before another stage of the same Pending.
func (t *Element[M, S, T]) Precedes(other *Element[M, S, T]) bool { return t.order(other) < 0 }

// HasPrecedence reports whether a stage comes before another stage of the same Pending if it does not count which JobSets have begun.
func (t *Element[M, S, T]) HasPrecedence(other *Element[M, S, T]) bool {
	return cmp.Or(cmp.Compare(t.equivClass.lead, other.equivClass.lead), t.WithoutStanding().Compare(other.WithoutStanding())) < 0
}

// order is Precedes as a comparison function for sorting.
func (t *Element[M, S, T]) order(other *Element[M, S, T]) int {
	if c := cmp.Compare(t.equivClass.lead, other.equivClass.lead); c != 0 {
		return c
	}
	return t.Compare(other.Position)
}

// Place is for package ranking.
func (t *Element[M, S, T]) Place() *int { return &t.index }

// An equivClass has the elements of one shape.
type equivClass[M any, S, T comparable] struct {
	shape    S
	passes   bool
	lead     float64
	elements ranking.Ranking[*Element[M, S, T]]
	byLimit  ranking.Ranking[*limited[M, S, T]]
	isAwake  bool
	// offered is the element that is offered instead of the first, or nil: all before it were refused because of their limits.
	offered *Element[M, S, T]
	// unnotified has the elements that were added since the class was last refused. Some may have been removed again.
	unnotified []*Element[M, S, T]
	// heard is the last announced refusal of the shape.
	heard    string
	sleepers []*sleeper[M, S, T]
	index    int
}

// next returns the element that is offered while the class is awake.
func (c *equivClass[M, S, T]) next() *Element[M, S, T] {
	if c.offered != nil {
		return c.offered
	}
	return c.elements.First()
}

// Precedes compares the elements that are offered.
func (c *equivClass[M, S, T]) Precedes(other *equivClass[M, S, T]) bool {
	return c.next().Precedes(other.next())
}

// Place is for package ranking.
func (c *equivClass[M, S, T]) Place() *int { return &c.index }

// A sleeper is a class that is parked on one topic.
type sleeper[M any, S, T comparable] struct {
	equivClass *equivClass[M, S, T]
	on         Wait[T]
	index      int
}

// Precedes compares the needs.
func (s *sleeper[M, S, T]) Precedes(other *sleeper[M, S, T]) bool { return s.on.Need < other.on.Need }

// Place is for package ranking.
func (s *sleeper[M, S, T]) Place() *int { return &s.index }

// A Wait is a topic on which a stage is parked, and the amount of it that makes another check worthwhile. Zero is always enough.
type Wait[T comparable] struct {
	Topic T
	Need  int64
}

// NewPending returns an empty Pending.
func NewPending[M any, S, T comparable]() *Pending[M, S, T] {
	return &Pending[M, S, T]{
		classes: map[S]*equivClass[M, S, T]{},
		asleep:  map[T]*ranking.Ranking[*sleeper[M, S, T]]{},
		behind:  map[S]*equivClass[M, S, T]{},
		seconds: map[S]*equivClass[M, S, T]{},
	}
}

// SetStrategy changes the strategy, and wakes all stages if it is another one.
func (p *Pending[M, S, T]) SetStrategy(s Strategy) {
	if s != p.strategy {
		p.strategy = s
		p.WakeAll()
	}
}

// SetLead makes shapes with a smaller lead come first, regardless of their positions. If it is nil, only positions count. It wakes all
// stages.
func (p *Pending[M, S, T]) SetLead(lead func(S) float64) {
	p.lead = lead
	p.Reorder(nil)
	p.WakeAll()
}

// Reorder computes the lead of every shape again. It wakes stages that now come before the blocker, and those that now have precedence over another stage of
// this Pending, which may be nil, and had not before. It reports whether it woke any.
func (p *Pending[M, S, T]) Reorder(due *Element[M, S, T]) (woken bool) {
	var later []*equivClass[M, S, T]
	for _, c := range p.classes {
		if due != nil && !c.elements.First().HasPrecedence(due) {
			later = append(later, c)
		}
	}
	for _, c := range p.classes {
		c.lead = p.leadOf(c.shape)
	}
	p.awake.Sort()
	for _, c := range later {
		if c.elements.First().HasPrecedence(due) {
			p.wake(c)
			woken = true
		}
	}
	if p.blocker == nil {
		return woken
	}
	for _, c := range p.behind {
		if c.elements.First().Precedes(p.blocker) {
			p.wake(c)
			woken = true
		}
	}
	return woken
}

// Blocks reports whether a stage blocks the stages behind it.
func (p *Pending[M, S, T]) Blocks() bool { return p.blocker != nil }

func (p *Pending[M, S, T]) leadOf(shape S) float64 {
	if p.lead == nil {
		return 0
	}
	return p.lead(shape)
}

// Len returns how many stages are pending.
func (p *Pending[M, S, T]) Len() int { return p.size }

// Add adds a stage, and wakes all stages of its shape.
func (p *Pending[M, S, T]) Add(item Item[M, S]) *Element[M, S, T] {
	c := p.classes[item.Shape]
	if c == nil {
		c = &equivClass[M, S, T]{shape: item.Shape, passes: item.Passes, lead: p.leadOf(item.Shape)}
		p.classes[item.Shape] = c
	}
	t := &Element[M, S, T]{Member: item.Member, Position: item.Position, limit: item.Limit, equivClass: c}
	c.unnotified = append(c.unnotified, t)
	c.elements.Push(t)
	c.byLimit.Push((*limited[M, S, T])(t))
	p.size++
	p.wake(c)
	return t
}

// Remove removes a stage. Stages that were blocked by it are awake again.
func (p *Pending[M, S, T]) Remove(t *Element[M, S, T]) {
	p.size--
	t.isOut = true
	c := t.equivClass
	if c.elements.Len() == 1 {
		if c.isAwake {
			p.awake.Drop(c)
		}
		p.forget(c)
		c.elements.Drop(t)
		delete(p.classes, c.shape)
	} else {
		c.elements.Drop(t)
		c.byLimit.Drop((*limited[M, S, T])(t))
		switch {
		case c.offered == t:
			p.wake(c)
		case c.isAwake:
			p.awake.Fix(c)
		}
	}
	if p.blocker == t {
		// The next stage of its shape takes its place as blocker, and must be offered before the blocked stages.
		if c.elements.Len() > 0 && !c.isAwake {
			p.wake(c)
		}
		p.unblock()
	}
}

// Next returns the first stage that is awake, or nil.
func (p *Pending[M, S, T]) Next() *Element[M, S, T] {
	if p.awake.Len() == 0 {
		return nil
	}
	return p.awake.First().next()
}

// Blocker returns the stage that this one must not overtake, or nil.
func (p *Pending[M, S, T]) Blocker(t *Element[M, S, T]) *Element[M, S, T] {
	if p.blocker == nil || p.blocker == t || t.Passes() || t.Precedes(p.blocker) {
		return nil
	}
	return p.blocker
}

// Announce records why the shape of a stage is about to be refused. If the reason is new, all stages of the shape must be notified.
func (p *Pending[M, S, T]) Announce(t *Element[M, S, T], reason string) {
	if c := t.equivClass; c.heard != reason {
		c.heard = reason
		c.unnotified = slices.Clone(c.elements.Members)
	}
}

// ForgetReasons makes the next refusal of each shape new.
func (p *Pending[M, S, T]) ForgetReasons() {
	for _, c := range p.classes {
		c.heard = ""
	}
}

// Park parks a stage and all others of its shape until one of the waits ends, and returns, in order, those that have not been refused since
// they were added.
func (p *Pending[M, S, T]) Park(t *Element[M, S, T], waits []Wait[T]) []M {
	told := p.park(t.equivClass, waits)
	if p.blocker != nil && p.blocker.equivClass == t.equivClass {
		p.unblock()
	}
	return told
}

func (p *Pending[M, S, T]) park(c *equivClass[M, S, T], waits []Wait[T]) []M {
	if c.isAwake {
		p.awake.Drop(c)
		c.isAwake = false
	}
	if c.offered == nil { // else those before it wait for something else
		p.forget(c)
	}
	c.offered = nil
	p.sleep(c, waits)
	return c.tell()
}

// sleep makes a class wait on topics.
func (p *Pending[M, S, T]) sleep(c *equivClass[M, S, T], waits []Wait[T]) {
	for _, wait := range waits {
		if p.asleep[wait.Topic] == nil {
			p.asleep[wait.Topic] = &ranking.Ranking[*sleeper[M, S, T]]{}
		}
		s := &sleeper[M, S, T]{equivClass: c, on: wait}
		c.sleepers = append(c.sleepers, s)
		p.asleep[wait.Topic].Push(s)
	}
}

// Block does the same as Park for a stage that blocks the stages behind it, if the strategy is Strict.
func (p *Pending[M, S, T]) Block(t *Element[M, S, T], waits []Wait[T]) []M {
	told := p.park(t.equivClass, waits)
	switch {
	case p.strategy != Strict || p.blocker == t:
	case p.blocker == nil || t.Precedes(p.blocker):
		p.replaceBlocker(t)
	case t.equivClass != p.blocker.equivClass:
		// When the blocker is removed, this stage blocks in its place, and must be offered before the stages behind it.
		p.behind[t.equivClass.shape] = t.equivClass
		p.seconds[t.equivClass.shape] = t.equivClass
	}
	return told
}

// replaceBlocker makes a stage the blocker. It wakes the last blocker, and the stages that would have blocked in its place: they were refused for a
// reason of their own, but now wait behind the new blocker.
func (p *Pending[M, S, T]) replaceBlocker(t *Element[M, S, T]) {
	displaced := p.seconds
	p.seconds = map[S]*equivClass[M, S, T]{}
	if p.blocker != nil {
		displaced[p.blocker.equivClass.shape] = p.blocker.equivClass
	}
	p.blocker = t
	for _, c := range displaced {
		if !c.isAwake && c != t.equivClass {
			p.wake(c)
		}
	}
}

// ParkBehind parks a stage and all others of its shape until the blocker is removed or overtaken.
func (p *Pending[M, S, T]) ParkBehind(t *Element[M, S, T]) []M {
	told := p.park(t.equivClass, nil)
	p.behind[t.equivClass.shape] = t.equivClass
	return told
}

// tell returns the members of the unnotified elements, and clears the list.
func (c *equivClass[M, S, T]) tell() []M {
	unnotified := slices.DeleteFunc(c.unnotified, func(t *Element[M, S, T]) bool { return t.isOut })
	c.unnotified = nil
	slices.SortFunc(unnotified, (*Element[M, S, T]).order)
	members := make([]M, len(unnotified))
	for i, t := range unnotified {
		members[i] = t.Member
	}
	return members
}

// Wake wakes the stages that are parked on a topic and need at most this amount, and reports whether there were any.
func (p *Pending[M, S, T]) Wake(topic T, enough int64) bool {
	r := p.asleep[topic]
	woken := false
	for r != nil && r.Len() > 0 && r.First().on.Need <= enough {
		p.wake(r.First().equivClass)
		woken = true
	}
	return woken
}

// Sleeps reports whether a stage is parked on a topic.
func (p *Pending[M, S, T]) Sleeps(topic T) bool { return p.asleep[topic] != nil }

// WakeAll wakes all stages.
func (p *Pending[M, S, T]) WakeAll() {
	p.blocker = nil
	for _, c := range p.classes {
		p.wake(c)
	}
}

func (p *Pending[M, S, T]) unblock() {
	p.blocker = nil
	for _, c := range p.behind {
		p.wake(c)
	}
}

// wake makes a class awake, and offers its first element. If it has the blocker, the blocked stages stay parked until the blocker has been checked again.
func (p *Pending[M, S, T]) wake(c *equivClass[M, S, T]) {
	p.forget(c)
	c.offered = nil
	if c.isAwake {
		p.awake.Fix(c)
		return
	}
	c.isAwake = true
	p.awake.Push(c)
}

// forget removes a class from all topics on which it is parked.
func (p *Pending[M, S, T]) forget(c *equivClass[M, S, T]) {
	for _, s := range c.sleepers {
		r := p.asleep[s.on.Topic]
		r.Drop(s)
		if r.Len() == 0 {
			delete(p.asleep, s.on.Topic)
		}
	}
	c.sleepers = nil
	delete(p.behind, c.shape)
	delete(p.seconds, c.shape)
}
