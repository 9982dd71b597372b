package queue

// Stages that differ only in their time limits have one shape, since most checks do not depend on the limit. If a stage is refused because of it, the one with
// the shortest limit answers for all others: if it is refused too, all are, after two checks. If not, the first stage that passes is searched for.

// limited is an element as a member of byLimit.
type limited[M any, S, T comparable] Element[M, S, T]

// Precedes compares the limits.
func (t *limited[M, S, T]) Precedes(other *limited[M, S, T]) bool {
	if t.limit != other.limit {
		return t.limit < other.limit
	}
	return (*Element[M, S, T])(t).Precedes((*Element[M, S, T])(other))
}

// Place is for package ranking.
func (t *limited[M, S, T]) Place() *int { return &t.limitIndex }

// HasShorterLimit reports whether a stage has a shorter limit than another one.
func (t *Element[M, S, T]) HasShorterLimit(other *Element[M, S, T]) bool {
	return t.limit < other.limit
}

// Shortest returns the first of the stages with the shape of a stage that have the shortest limit of all.
func (t *Element[M, S, T]) Shortest() *Element[M, S, T] {
	return (*Element[M, S, T])(t.equivClass.byLimit.First())
}

// IsFirst reports whether a stage comes before all others of its shape.
func (t *Element[M, S, T]) IsFirst() bool { return t.equivClass.elements.First() == t }

// OfferFirst offers the first stage of a shape that is awake, instead of the one that has been found.
func (p *Pending[M, S, T]) OfferFirst(t *Element[M, S, T]) { p.wake(t.equivClass) }

// Offer offers a stage instead of the first of its shape, which is awake, until one of the waits ends.
func (p *Pending[M, S, T]) Offer(t *Element[M, S, T], waits []Wait[T]) {
	p.wake(t.equivClass)
	t.equivClass.offered = t
	p.awake.Fix(t.equivClass)
	p.sleep(t.equivClass, waits)
}

// FirstPassing returns the first stage that passes a check, of those with the shape of a stage that is refused because of its limit. The one with the shortest
// limit must pass.
//
// It looks for the longest limit with which a stage passes by bisection: at most 32 checks, however many stages there are. It compares the limit of each stage
// that comes before the result as often.
func (t *Element[M, S, T]) FirstPassing(passes func(*Element[M, S, T]) bool) *Element[M, S, T] {
	found := t.Shortest()
	for passing, failing := found.limit, min(t.limit, maxLimit); failing-passing > 1; {
		limit := passing + (failing-passing)/2
		switch other := t.equivClass.firstWithin(limit, found); {
		case other == found:
			passing = limit
		case passes(other):
			found, passing = other, limit
		default:
			failing = other.limit
		}
	}
	return found
}

// maxLimit is more than any limit but Unlimited.
const maxLimit = 1 << 32

// firstWithin returns the first element with at most some limit, given one that has no longer limit.
func (c *equivClass[M, S, T]) firstWithin(limit int64, first *Element[M, S, T]) *Element[M, S, T] {
	var visit func(at int)
	visit = func(at int) {
		if at >= c.elements.Len() {
			return
		}
		switch t := c.elements.Members[at]; {
		case first.Precedes(t):
		case t.limit <= limit:
			first = t
		default:
			visit(2*at + 1)
			visit(2*at + 2)
		}
	}
	visit(0)
	return first
}
