// Package ranking has a heap whose members know their places in it.
package ranking

import "container/heap"

// A Member of a Ranking is compared with others, and stores its index.
type Member[E any] interface {
	// Precedes reports whether the member comes before another one.
	Precedes(E) bool
	// Place returns where the member stores its index in Members. It is -1 after the member was removed.
	Place() *int
}

// A Ranking returns the first of its members in constant time, and removes any of them in logarithmic time. The zero Ranking is empty.
type Ranking[E Member[E]] struct {
	// Members is a heap: those at 2i+1 and 2i+2 do not precede the one at i.
	Members members[E]
}

// Push adds a member.
func (r *Ranking[E]) Push(e E) { heap.Push(&r.Members, e) }

// Drop removes a member.
func (r *Ranking[E]) Drop(e E) { heap.Remove(&r.Members, *e.Place()) }

// Fix must be called when the order of a member may have changed.
func (r *Ranking[E]) Fix(e E) { heap.Fix(&r.Members, *e.Place()) }

// First returns the member that precedes all others. There must be one.
func (r *Ranking[E]) First() E { return r.Members[0] }

// Sort must be called when the order of several members may have changed.
func (r *Ranking[E]) Sort() { heap.Init(&r.Members) }

// Len returns how many members there are.
func (r *Ranking[E]) Len() int { return len(r.Members) }

// members implements heap.Interface.
type members[E Member[E]] []E

func (m members[E]) Len() int           { return len(m) }
func (m members[E]) Less(i, j int) bool { return m[i].Precedes(m[j]) }

func (m members[E]) Swap(i, j int) {
	m[i], m[j] = m[j], m[i]
	*m[i].Place(), *m[j].Place() = i, j
}

func (m *members[E]) Push(x any) {
	e, ok := x.(E)
	if !ok {
		return
	}
	*e.Place() = len(*m)
	*m = append(*m, e)
}

func (m *members[E]) Pop() any {
	old := *m
	last := old[len(old)-1]
	*last.Place() = -1
	var none E
	old[len(old)-1] = none
	*m = old[:len(old)-1]
	return last
}
