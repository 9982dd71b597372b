package dashboard

import (
	"iter"
	"strings"
)

// Limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 200
	// maxMessage is how many bytes of a message a row has.
	maxMessage = 1000
)

// A Window selects a part of a list: at most Limit items, starting at Offset.
type Window struct{ Offset, Limit int }

// bounded returns the window with a limit that is allowed.
func (w Window) bounded() Window {
	if w.Limit <= 0 {
		w.Limit = DefaultLimit
	}
	return Window{max(0, w.Offset), min(w.Limit, MaxLimit)}
}

// A Page is a part of a list.
type Page[T any] struct {
	// Total is the number of items that match, and Offset that of the matching items before the first of the page.
	Total  int `json:"total"`
	Offset int `json:"offset"`
	// Items are those of the page.
	Items []T `json:"items"`
}

// A List yields its elements from a rank on, with their ranks.
type List[E any] interface {
	Len() int
	From(first int) iter.Seq2[int, E]
}

// pageOfList returns a page of all elements of a list. It visits no other elements.
func pageOfList[E, T any](w Window, l List[E], convert func(rank int, e E) T) Page[T] {
	w = w.bounded()
	page := Page[T]{Total: l.Len(), Offset: w.Offset, Items: []T{}}
	for rank, e := range l.From(w.Offset) {
		if len(page.Items) == w.Limit {
			break
		}
		page.Items = append(page.Items, convert(rank, e))
	}
	return page
}

// pageOf returns a page of the elements that match. It converts no other elements.
func pageOf[E, T any](w Window, all iter.Seq2[int, E], matches func(E) bool, convert func(rank int, e E) T) Page[T] {
	w = w.bounded()
	page := Page[T]{Offset: w.Offset, Items: []T{}}
	for rank, e := range all {
		if !matches(e) {
			continue
		}
		if page.Total >= w.Offset && len(page.Items) < w.Limit {
			page.Items = append(page.Items, convert(rank, e))
		}
		page.Total++
	}
	return page
}

// shortened returns the part of a message that a row has: one in the status of an object may have 32 KiB.
func shortened(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "…"
}
