// Package letin has what would let pending quota Workloads in, in words for readers with different rights.
package letin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
)

// An Answer is what would let a pending quota Workload in.
type Answer struct {
	// Why is true instead of, or besides, the sets.
	Why string `json:"why,omitempty"`
	// Sets are sets of changes, the cheapest first, each of which is enough.
	Sets []string `json:"sets,omitempty"`
	// Taken is when the snapshot was taken from which this follows.
	Taken time.Time `json:"taken"`
	// Changes are those of each of the Sets, for readers who may not see all that the Sets name.
	Changes []Set `json:"-"`
}

// A Set is one of the sets of an Answer.
type Set struct {
	Changes []Change
	// Evicts is how many quota Workloads the engine evicts then.
	Evicts int
}

// A Change is a quota Workload that ends, or a limit that is raised.
type Change struct {
	// Text names all, and Bare neither the ClusterQueue nor the Cohort.
	Text, Bare string
	// Namespace is that of the quota Workload that ends. It is empty for a limit.
	Namespace string
	// Node is the ClusterQueue that the quota Workload is in, or what has the limit.
	Node visibilityapi.Constraint
}

// A Reader is what a reader may see.
type Reader struct {
	Namespace func(name string) bool
	Node      func(c *visibilityapi.Constraint) bool
	// Redact removes from a text what the reader may not see.
	Redact func(text string) string
}

// For returns the answer without the names that a reader may not see. The answer is shared, so For changes a copy.
func (a *Answer) For(r *Reader) *Answer {
	redacted := &Answer{Why: r.Redact(a.Why), Taken: a.Taken}
	for i := range a.Changes {
		// Sets of which the names are hidden may look the same.
		if text := a.Changes[i].text(r); !slices.Contains(redacted.Sets, text) {
			redacted.Sets = append(redacted.Sets, text)
		}
	}
	return redacted
}

func (s *Set) text(r *Reader) string {
	parts := make([]string, len(s.Changes))
	for i := range s.Changes {
		parts[i] = s.Changes[i].text(r)
	}
	text := strings.Join(parts, "; and ")
	if s.Evicts > 0 {
		text += fmt.Sprintf(" (the engine then evicts %d quota Workloads)", s.Evicts)
	}
	return text
}

func (c *Change) text(r *Reader) string {
	switch {
	case c.Namespace != "" && !r.Namespace(c.Namespace):
		return "a quota Workload of another namespace ends"
	case !r.Node(&c.Node):
		return c.Bare
	}
	return c.Text
}
