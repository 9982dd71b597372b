package dashboard

import (
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/dashboard/internal/letin"
)

// A LetIn is what would let a pending quota Workload in.
type LetIn = letin.Answer

// A ChangeSet is one of the sets of a LetIn.
type ChangeSet = letin.Set

// A Change is a quota Workload that ends, or a limit that is raised.
type Change = letin.Change

// redactLetIn returns what would let a quota Workload in without the names that the viewer may not read.
func (m *Model) redactLetIn(v Viewer, x *LetIn) *LetIn {
	if x == nil || v.Namespace == nil && v.ClusterQueue == nil {
		return x
	}
	return x.For(&letin.Reader{
		Namespace: v.seesNamespace,
		Node:      func(c *visibilityapi.Constraint) bool { return m.seesConstraint(v, c) },
		Redact:    func(text string) string { return m.redact(v, text) },
	})
}
