// Package unordered has sets whose members are removed without a search.
package unordered

// A Set is an unordered set. Each member knows its index. A Set is not safe for concurrent use.
type Set[T any] struct {
	Members []T
	place   func(T) *int
}

// New returns an empty Set. The function returns where a member keeps its index in this Set.
func New[T any](place func(T) *int) Set[T] { return Set[T]{place: place} }

// Add adds a member that is not in the set.
func (c *Set[T]) Add(member T) {
	*c.place(member) = len(c.Members)
	c.Members = append(c.Members, member)
}

// Drop removes a member, and moves the last one to its place.
func (c *Set[T]) Drop(member T) {
	at, last := *c.place(member), len(c.Members)-1
	c.Members[at] = c.Members[last]
	*c.place(c.Members[at]) = at
	clear(c.Members[last:])
	c.Members = c.Members[:last]
}
