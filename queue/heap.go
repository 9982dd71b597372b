package queue

import "container/heap"

// A ranked thing knows its index in a heap.
type ranked[E any] interface {
	compare(E) int
	place() *int
}

// A ranking returns the first of its members in constant time, and removes any of them in logarithmic time.
type ranking[E ranked[E]] struct{ members members[E] }

func (r *ranking[E]) push(e E)  { heap.Push(&r.members, e) }
func (r *ranking[E]) drop(e E)  { heap.Remove(&r.members, *e.place()) }
func (r *ranking[E]) fix(e E)   { heap.Fix(&r.members, *e.place()) }
func (r *ranking[E]) first() E  { return r.members[0] }
func (r *ranking[E]) sort()     { heap.Init(&r.members) }
func (r *ranking[E]) size() int { return len(r.members) }

// members implements heap.Interface.
type members[E ranked[E]] []E

func (m members[E]) Len() int           { return len(m) }
func (m members[E]) Less(i, j int) bool { return m[i].compare(m[j]) < 0 }

func (m members[E]) Swap(i, j int) {
	m[i], m[j] = m[j], m[i]
	*m[i].place(), *m[j].place() = i, j
}

func (m *members[E]) Push(x any) {
	e, ok := x.(E)
	if !ok {
		return
	}
	*e.place() = len(*m)
	*m = append(*m, e)
}

func (m *members[E]) Pop() any {
	old := *m
	last := old[len(old)-1]
	var none E
	old[len(old)-1] = none
	*m = old[:len(old)-1]
	return last
}
