package dashboard

import (
	"maps"
	"slices"
	"strings"
)

// A NamespaceRow is a namespace that has JobSets or quota Workloads.
type NamespaceRow struct {
	Name string `json:"name"`
	// Objects is how many JobSets and quota Workloads it has.
	Objects int `json:"objects"`
}

// Namespaces returns a page of the namespaces that the viewer sees and whose names contain a text, in the order of their names.
func (m *Model) Namespaces(v Viewer, text string, w Window) Page[NamespaceRow] {
	text = strings.ToLower(text)
	names := slices.Sorted(maps.Keys(m.namespaces))
	matches := func(name string) bool { return strings.Contains(name, text) && v.seesNamespace(name) }
	return pageOf(w, slices.All(names), matches, func(_ int, name string) NamespaceRow { return NamespaceRow{name, m.namespaces[name].objects} })
}
