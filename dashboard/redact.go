package dashboard

import (
	"slices"

	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/dashboard/redact"
)

// redact returns a text without the names of objects in namespaces that the viewer does not see. Conditions that the manager writes name no
// such objects, but others can write conditions, too.
func (m *Model) redact(v Viewer, text string) string {
	if v.Namespace == nil {
		return text
	}
	return redact.Text(text, func(namespace string) bool { return m.HasNamespace(namespace) && !v.seesNamespace(namespace) })
}

// redactRow returns a row of the tree for a viewer. Rows are shared, so it changes a copy.
func (m *Model) redactRow(v Viewer, row *QueueRow) *QueueRow {
	changed := *row
	changed.Message = m.redact(v, row.Message)
	return &changed
}

// redactExplanation returns an explanation without the names that the viewer may not read. Explanations are shared, so it changes a copy.
func (m *Model) redactExplanation(v Viewer, x *visibilityapi.Explanation) *visibilityapi.Explanation {
	if x == nil || v.Namespace == nil && v.ClusterQueue == nil {
		return x
	}
	redacted := x.Redacted(v.seesNamespace)
	redacted.Message = m.redact(v, redacted.Message)
	for _, a := range redacted.Alternatives {
		for i := range a.Shortages {
			s := &a.Shortages[i]
			if !m.seesConstraint(v, &s.Constraint) {
				s.Constraint.Name = ""
			}
			for k := range s.Holders {
				s.Holders[k].ClusterQueue = v.clusterQueueFor(s.Holders[k].ClusterQueue)
			}
		}
	}
	return &redacted
}

// seesConstraint reports whether the viewer sees the ClusterQueue of a limit, or one below its Cohort.
func (m *Model) seesConstraint(v Viewer, c *visibilityapi.Constraint) bool {
	if v.ClusterQueue == nil || c.Kind == visibilityapi.ClusterQueue {
		return v.seesClusterQueue(c.Name)
	}
	return slices.ContainsFunc(m.settled().rows, func(row *QueueRow) bool {
		return row.Kind == KindClusterQueue && slices.Contains(row.Path, c.Name) && v.seesClusterQueue(row.Name)
	})
}

// clusterQueueFor returns the name of a ClusterQueue, or nothing if the viewer does not see it.
func (v *Viewer) clusterQueueFor(name string) string {
	if name != "" && v.seesClusterQueue(name) {
		return name
	}
	return ""
}
