package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
)

// A LetIn is what would let a pending quota Workload in.
type LetIn struct {
	// Why is true instead of, or besides, the sets.
	Why string `json:"why,omitempty"`
	// Sets are sets of changes, the cheapest first, each of which is enough.
	Sets []string `json:"sets,omitempty"`
	// Taken is when the snapshot was taken from which this follows.
	Taken time.Time `json:"taken"`
	// Changes are those of each of the Sets, for readers who may not see all that the Sets name.
	Changes []ChangeSet `json:"-"`
}

// A ChangeSet is one of the sets of a LetIn.
type ChangeSet struct {
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

// redactLetIn returns what would let a quota Workload in without the names that the viewer may not read. The answer is shared, so redactLetIn changes a copy.
func (m *Model) redactLetIn(v Viewer, x *LetIn) *LetIn {
	if x == nil || v.Namespace == nil && v.ClusterQueue == nil {
		return x
	}
	redacted := &LetIn{Why: m.redact(v, x.Why), Taken: x.Taken}
	for i := range x.Changes {
		// Sets of which the names are hidden may look the same.
		if text := m.redactSet(v, &x.Changes[i]); !slices.Contains(redacted.Sets, text) {
			redacted.Sets = append(redacted.Sets, text)
		}
	}
	return redacted
}

func (m *Model) redactSet(v Viewer, s *ChangeSet) string {
	parts := make([]string, len(s.Changes))
	for i := range s.Changes {
		parts[i] = m.redactChange(v, &s.Changes[i])
	}
	text := strings.Join(parts, "; and ")
	if s.Evicts > 0 {
		text += fmt.Sprintf(" (the engine then evicts %d quota Workloads)", s.Evicts)
	}
	return text
}

func (m *Model) redactChange(v Viewer, c *Change) string {
	switch {
	case c.Namespace != "" && !v.seesNamespace(c.Namespace):
		return "a quota Workload of another namespace ends"
	case !m.seesConstraint(v, &c.Node):
		return c.Bare
	}
	return c.Text
}
