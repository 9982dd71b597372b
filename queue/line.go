package queue

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// An Item is a pending stage.
type Item struct {
	Key types.NamespacedName
	Position
	// Shape is the same for two stages only if every check must answer the same for both. When one is refused, the line does not
	// offer the other: a thousand equal stages cost as much as one.
	Shape string
}

// A Strategy says whether a stage that does not fit holds up those behind it.
type Strategy int

const (
	// BestEffort lets others overtake.
	BestEffort Strategy = iota
	// Strict lets nobody overtake who has not begun. A Continuing stage is never held up by a New one: that one may be waiting
	// for the very quota which the Continuing one's JobSet gives back at its end.
	Strict
)

// A Line is the pending stages of one ClusterQueue. Topic is what sleeping stages wait for.
type Line[Topic comparable] struct {
	strategy Strategy
	entries  map[types.NamespacedName]*entry[Topic]
	classes  map[string]*class[Topic]
	awake    ranking[*class[Topic]]
	asleep   map[Topic]map[string]*class[Topic]
	behind   map[string]*class[Topic]
	// blocker has refused under Strict, and nothing New behind it is offered.
	blocker *entry[Topic]
}

type entry[Topic comparable] struct {
	Item
	class *class[Topic]
	index int
}

func (e *entry[Topic]) compare(other *entry[Topic]) int { return e.Compare(other.Position) }
func (e *entry[Topic]) place() *int                     { return &e.index }

// A class has the items of one shape.
type class[Topic comparable] struct {
	shape   string
	entries ranking[*entry[Topic]]
	isAwake bool
	topics  []Topic
	// untold have joined since the class was last refused.
	untold map[types.NamespacedName]struct{}
	index  int
}

func (c *class[Topic]) compare(other *class[Topic]) int {
	return c.entries.first().compare(other.entries.first())
}
func (c *class[Topic]) place() *int { return &c.index }

// NewLine returns an empty Line.
func NewLine[Topic comparable]() *Line[Topic] {
	return &Line[Topic]{
		entries: map[types.NamespacedName]*entry[Topic]{},
		classes: map[string]*class[Topic]{},
		asleep:  map[Topic]map[string]*class[Topic]{},
		behind:  map[string]*class[Topic]{},
	}
}

// SetStrategy changes the strategy, and wakes everybody if it is another one.
func (l *Line[Topic]) SetStrategy(s Strategy) {
	if s != l.strategy {
		l.strategy = s
		l.WakeAll()
	}
}

// Len returns how many stages are in line.
func (l *Line[Topic]) Len() int { return len(l.entries) }

// Has tells whether a stage is in line.
func (l *Line[Topic]) Has(key types.NamespacedName) bool { return l.entries[key] != nil }

// Add puts a stage in line, and wakes all of its shape. One that is in line already takes its new place.
func (l *Line[Topic]) Add(item Item) {
	if old := l.entries[item.Key]; old != nil {
		if old.Item == item {
			return
		}
		l.Remove(item.Key)
	}
	c := l.classes[item.Shape]
	if c == nil {
		c = &class[Topic]{shape: item.Shape, untold: map[types.NamespacedName]struct{}{}}
		l.classes[item.Shape] = c
	}
	e := &entry[Topic]{Item: item, class: c}
	l.entries[item.Key] = e
	c.untold[item.Key] = struct{}{}
	c.entries.push(e)
	if c.isAwake {
		l.awake.fix(c)
		return
	}
	l.wake(c)
}

// Remove takes a stage out of line. Those that waited behind it are awake again.
func (l *Line[Topic]) Remove(key types.NamespacedName) {
	e := l.entries[key]
	if e == nil {
		return
	}
	delete(l.entries, key)
	c := e.class
	delete(c.untold, key)
	if c.entries.size() == 1 {
		if c.isAwake {
			l.awake.drop(c)
		}
		l.forget(c)
		c.entries.drop(e)
		delete(l.classes, c.shape)
	} else {
		c.entries.drop(e)
		if c.isAwake {
			l.awake.fix(c)
		}
	}
	if l.blocker == e {
		l.unblock()
	}
}

// Next returns the first stage that is awake.
func (l *Line[Topic]) Next() (Item, bool) {
	if l.awake.size() == 0 {
		return Item{}, false
	}
	return l.awake.first().entries.first().Item, true
}

// Blocker returns the stage that this one must not overtake, if there is one.
func (l *Line[Topic]) Blocker(item Item) (Item, bool) {
	if l.blocker == nil || l.blocker.Key == item.Key || item.Standing == Continuing || l.blocker.Compare(item.Position) > 0 {
		return Item{}, false
	}
	return l.blocker.Item, true
}

// Park lets a stage and all of its shape sleep until one of the topics is woken, and returns those, in line order, that have not
// been refused since they joined.
func (l *Line[Topic]) Park(key types.NamespacedName, topics []Topic) []types.NamespacedName {
	e := l.entries[key]
	if e == nil {
		return nil
	}
	told := l.park(e.class, topics)
	if l.blocker == e {
		l.unblock()
	}
	return told
}

func (l *Line[Topic]) park(c *class[Topic], topics []Topic) []types.NamespacedName {
	if c.isAwake {
		l.awake.drop(c)
		c.isAwake = false
	}
	l.forget(c)
	c.topics = slices.Clone(topics)
	for _, topic := range topics {
		if l.asleep[topic] == nil {
			l.asleep[topic] = map[string]*class[Topic]{}
		}
		l.asleep[topic][c.shape] = c
	}
	return l.tell(c)
}

// Block is Park of a stage that holds up those behind it, if the strategy is Strict and the stage is New.
func (l *Line[Topic]) Block(key types.NamespacedName, topics []Topic) []types.NamespacedName {
	e := l.entries[key]
	if e == nil {
		return nil
	}
	if l.strategy == Strict && e.Standing == New && (l.blocker == nil || e.compare(l.blocker) < 0) {
		l.blocker = e
	}
	return l.park(e.class, topics)
}

// ParkBehind lets a stage and all of its shape sleep until the blocker has gone or is overtaken.
func (l *Line[Topic]) ParkBehind(key types.NamespacedName) []types.NamespacedName {
	e := l.entries[key]
	if e == nil {
		return nil
	}
	told := l.park(e.class, nil)
	l.behind[e.class.shape] = e.class
	return told
}

// tell returns the untold of a class and forgets them.
func (l *Line[Topic]) tell(c *class[Topic]) []types.NamespacedName {
	keys := slices.SortedFunc(maps.Keys(c.untold), func(a, b types.NamespacedName) int {
		return l.entries[a].compare(l.entries[b])
	})
	clear(c.untold)
	return keys
}

// Wake wakes everybody who sleeps on a topic.
func (l *Line[Topic]) Wake(topic Topic) {
	for _, c := range l.asleep[topic] {
		l.wake(c)
	}
}

// WakeAll wakes everybody.
func (l *Line[Topic]) WakeAll() {
	l.blocker = nil
	for _, c := range l.classes {
		if !c.isAwake {
			l.wake(c)
		}
	}
}

func (l *Line[Topic]) unblock() {
	l.blocker = nil
	for _, c := range l.behind {
		l.wake(c)
	}
}

// wake puts a class among those awake. If it has the blocker, what is behind stays there until the blocker has been looked at.
func (l *Line[Topic]) wake(c *class[Topic]) {
	l.forget(c)
	c.isAwake = true
	l.awake.push(c)
}

// forget takes a class off everything that it sleeps on.
func (l *Line[Topic]) forget(c *class[Topic]) {
	for _, topic := range c.topics {
		delete(l.asleep[topic], c.shape)
		if len(l.asleep[topic]) == 0 {
			delete(l.asleep, topic)
		}
	}
	c.topics = nil
	delete(l.behind, c.shape)
}
