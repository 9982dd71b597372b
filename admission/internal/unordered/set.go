// Package unordered has sets whose members are removed without a search.
package unordered

// A Set is an unordered set. Each member knows its index. A Set is not safe for concurrent use.
type Set[T any] struct {
	All   []T
	place func(T) *int
}

// New returns an empty Set. The function returns where a member keeps its index in this Set.
func New[T any](place func(T) *int) Set[T] { return Set[T]{place: place} }

// Add adds a member that is not in the set.
func (c *Set[T]) Add(member T) {
	*c.place(member) = len(c.All)
	c.All = append(c.All, member)
}

// Drop removes a member, and moves the last one to its place.
func (c *Set[T]) Drop(member T) {
	at, last := *c.place(member), len(c.All)-1
	c.All[at] = c.All[last]
	*c.place(c.All[at]) = at
	clear(c.All[last:])
	c.All = c.All[:last]
}
