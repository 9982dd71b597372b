// Package ordered keeps long lists in order, so that one element can be inserted, removed and counted from without a look at all others.
package ordered

import (
	"iter"
	"slices"
)

// maxChunk is the number of elements at which a chunk is split.
const maxChunk = 512

// A List keeps its elements in order. It inserts and removes one in time proportional to the number of chunks, and counts those before it.
type List[E any] struct {
	compare func(a, b E) int
	// chunks have the elements in order. None is empty.
	chunks [][]E
	length int
}

// New returns an empty List. compare must be total, and must not change for an element that is in the List.
func New[E any](compare func(a, b E) int) *List[E] { return &List[E]{compare: compare} }

// Len returns the number of elements.
func (l *List[E]) Len() int { return l.length }

// find returns the chunk that has an element, or would have it, and its index there.
func (l *List[E]) find(e E) (chunk, at int, isThere bool) {
	chunk, _ = slices.BinarySearchFunc(l.chunks, e, func(c []E, e E) int { return l.compare(c[len(c)-1], e) })
	if chunk == len(l.chunks) {
		if chunk == 0 {
			return 0, 0, false
		}
		chunk--
	}
	at, isThere = slices.BinarySearchFunc(l.chunks[chunk], e, l.compare)
	return chunk, at, isThere
}

// Insert adds an element, unless it is in the List.
func (l *List[E]) Insert(e E) {
	chunk, at, isThere := l.find(e)
	if isThere {
		return
	}
	l.length++
	if len(l.chunks) == 0 {
		l.chunks = [][]E{{e}}
		return
	}
	grown := slices.Insert(l.chunks[chunk], at, e)
	l.chunks[chunk] = grown
	if len(grown) > maxChunk {
		half := len(grown) / 2
		l.chunks[chunk] = grown[:half:half]
		l.chunks = slices.Insert(l.chunks, chunk+1, slices.Clone(grown[half:]))
	}
}

// Remove removes an element if it is in the List.
func (l *List[E]) Remove(e E) {
	chunk, at, isThere := l.find(e)
	if !isThere {
		return
	}
	l.length--
	l.chunks[chunk] = slices.Delete(l.chunks[chunk], at, at+1)
	if len(l.chunks[chunk]) == 0 {
		l.chunks = slices.Delete(l.chunks, chunk, chunk+1)
	}
}

// Rank returns how many elements come before an element, which need not be in the List.
func (l *List[E]) Rank(e E) int {
	chunk, at, _ := l.find(e)
	for _, c := range l.chunks[:chunk] {
		at += len(c)
	}
	return at
}

// After yields the elements that come after an element, which need not be in the List, with their ranks.
func (l *List[E]) After(e E) iter.Seq2[int, E] {
	rank := l.Rank(e)
	if _, _, isThere := l.find(e); isThere {
		rank++
	}
	return l.From(rank)
}

// From yields the elements from the given rank on, with their ranks.
func (l *List[E]) From(first int) iter.Seq2[int, E] {
	return func(yield func(int, E) bool) {
		rank := 0
		for _, c := range l.chunks {
			if rank+len(c) <= first {
				rank += len(c)
				continue
			}
			for i := max(0, first-rank); i < len(c); i++ {
				if !yield(rank+i, c[i]) {
					return
				}
			}
			rank += len(c)
		}
	}
}
