// Package cohorts has the Cohorts and their place in the quota trees.
package cohorts

import (
	"maps"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A Cohort exists as soon as an object names it, whether or not there is a Cohort object. Without one it has no quota of its own, no parent and
// weight 1.
type Cohort struct {
	Name    string
	Version version.Version
	Exists  bool
	// IsLost is true if the object has been deleted. It is remembered only while members name the cohort.
	IsLost bool
	Parent string
	Groups []kueue.ResourceGroup
	Weight float64

	// Node is charged; Bare has the same limits and is not.
	Node, Bare *quota.Node
	// Cycle names the Cohorts from parent to parent, if they form a cycle, and is empty otherwise.
	Cycle string
}

// A Registry has all Cohorts, in two trees.
type Registry struct {
	byName     map[string]*Cohort
	tree, bare *quota.Tree
}

// New returns a Registry without Cohorts for two trees with the same Index.
func New(tree, bare *quota.Tree) *Registry {
	return &Registry{byName: map[string]*Cohort{}, tree: tree, bare: bare}
}

// Get returns the Cohort with a name, and creates it if no object has named it before.
func (r *Registry) Get(name string) *Cohort {
	c := r.byName[name]
	if c == nil {
		c = &Cohort{Name: name, Weight: 1, Node: r.tree.AddCohort(name), Bare: r.bare.AddCohort(name)}
		r.byName[name] = c
	}
	return c
}

// Find returns the Cohort with a name, or nil.
func (r *Registry) Find(name string) *Cohort { return r.byName[name] }

// All returns all Cohorts, ordered by name.
func (r *Registry) All() []*Cohort {
	return slices.SortedFunc(maps.Values(r.byName), func(a, b *Cohort) int { return strings.Compare(a.Name, b.Name) })
}

// Arrange puts each Cohort below its parent. Those whose parents form a cycle get none.
func (r *Registry) Arrange() {
	all := r.All()
	for _, c := range all {
		c.Cycle = r.cycleAbove(c)
	}
	for _, c := range all {
		parent := c.Parent
		if c.Cycle != "" {
			parent = ""
		}
		r.Place(c.Node, c.Bare, parent)
	}
}

// Place moves the nodes of a ClusterQueue or Cohort below those of a Cohort, or nowhere if its name is empty.
func (r *Registry) Place(node, bare *quota.Node, cohort string) {
	parent := &Cohort{}
	if cohort != "" {
		parent = r.byName[cohort]
	}
	r.tree.SetParent(node, parent.Node)
	r.bare.SetParent(bare, parent.Bare)
}

// cycleAbove names the Cohorts from parent to parent up to the first that is repeated, if there is one.
func (r *Registry) cycleAbove(c *Cohort) string {
	var met []string
	for ; c.Parent != ""; c = r.byName[c.Parent] {
		if slices.Contains(met, c.Name) {
			return strings.Join(append(met, c.Name), ", ")
		}
		met = append(met, c.Name)
	}
	return ""
}

// Forget forgets the Cohorts that do not exist and that neither another Cohort nor anything else names.
func (r *Registry) Forget(named map[string]struct{}) {
	for _, c := range r.byName {
		named[c.Parent] = struct{}{}
	}
	for name, c := range r.byName {
		if _, isNamed := named[name]; !c.Exists && !isNamed {
			delete(r.byName, name)
			r.tree.Remove(c.Node)
			r.bare.Remove(c.Bare)
		}
	}
}
