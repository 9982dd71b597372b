package queue

import (
	"iter"
	"slices"

	"github.com/tranche-dev/tranche/queue/ranking"
)

// Ordered yields the members of the queue, or those of the shapes for which of is true, in the order in which they would be offered if all
// were awake. It visits each shape once, and then only the yielded members and their neighbors in the heap. The line must not change during
// the iteration.
func (p *Pending[M, S, T]) Ordered(of func(S) bool) iter.Seq[M] {
	return func(yield func(M) bool) {
		front := &ranking.Ranking[*spot[M, S, T]]{}
		for shape, c := range p.classes {
			if of == nil || of(shape) {
				front.Push(&spot[M, S, T]{equivClass: c})
			}
		}
		for front.Len() > 0 {
			next := front.First()
			if !yield(next.element().Member) {
				return
			}
			below := 2*next.at + 1
			front.Drop(next)
			for i := below; i < min(below+2, next.equivClass.elements.Len()); i++ {
				front.Push(&spot[M, S, T]{equivClass: next.equivClass, at: i})
			}
		}
	}
}

// Contenders yields, in order, the members that are offered next or would be if no stage blocked them: all but those of shapes that are parked for a
// reason of their own. The line must not change during the iteration.
func (p *Pending[M, S, T]) Contenders() iter.Seq[M] {
	return p.Ordered(func(shape S) bool {
		c := p.classes[shape]
		return c.isAwake || p.behind[shape] == c || p.blocker != nil && p.blocker.equivClass == c
	})
}

// A spot is the position of a walk in the heap of a class.
type spot[M any, S, T comparable] struct {
	equivClass *equivClass[M, S, T]
	at         int
	index      int
}

func (s *spot[M, S, T]) element() *Element[M, S, T] { return s.equivClass.elements.Members[s.at] }

// Precedes compares the elements.
func (s *spot[M, S, T]) Precedes(other *spot[M, S, T]) bool {
	return s.element().Precedes(other.element())
}

// Place is for package ranking.
func (s *spot[M, S, T]) Place() *int { return &s.index }

// Ranks returns how many stages come before each of some elements, which must be given in the order of the queue. It counts only shapes for
// which of is true, or all if of is nil. It visits each shape once, and the stages that come before the last of the elements.
func (p *Pending[M, S, T]) Ranks(elements []*Element[M, S, T], of func(S) bool) []int {
	ranks := make([]int, len(elements))
	if len(elements) == 0 {
		return ranks
	}
	for shape, c := range p.classes {
		if of == nil || of(shape) {
			c.count(0, elements, ranks)
		}
	}
	for i := 1; i < len(ranks); i++ {
		ranks[i] += ranks[i-1]
	}
	return ranks
}

// count increments the rank of the first element that comes after the member at an index of the heap, and continues with the members below
// it.
func (c *equivClass[M, S, T]) count(at int, elements []*Element[M, S, T], ranks []int) {
	if at >= c.elements.Len() {
		return
	}
	t := c.elements.Members[at]
	first, isOneOfThem := slices.BinarySearchFunc(elements, t, (*Element[M, S, T]).order)
	if isOneOfThem {
		first++
	}
	if first == len(elements) {
		return
	}
	ranks[first]++
	c.count(2*at+1, elements, ranks)
	c.count(2*at+2, elements, ranks)
}
