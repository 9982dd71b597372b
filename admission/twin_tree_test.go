package admission_test

import (
	"maps"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A bill is an amount for each flavor and resource.
type bill map[quota.FlavorResource]quota.Amount

func (b bill) add(other bill) {
	for fr, a := range other {
		b[fr] += a
	}
}

func (b bill) take(other bill) {
	for fr, a := range other {
		b[fr] -= a
	}
}

// A place is a ClusterQueue or a Cohort in the trees of a twin. It has only what its objects say, and what is charged to it.
type place struct {
	parent   *place
	children []*place
	limits   map[quota.FlavorResource]kueue.ResourceQuota
	charged  bill
	weight   float64
}

// places rebuilds the trees from the observed objects.
func (w *twin) places() map[string]*place {
	places := map[string]*place{}
	at := func(name string) *place {
		if places[name] == nil {
			places[name] = &place{limits: map[quota.FlavorResource]kueue.ResourceQuota{}, charged: bill{}, weight: 1}
		}
		return places[name]
	}
	put := func(child, parent string) {
		at(child).parent = at(parent)
		at(parent).children = append(at(parent).children, at(child))
	}
	for name, q := range w.queues {
		at("queue " + name).limit(q.Spec.ResourceGroups)
		at("queue " + name).weight = weightOf(q.Spec.FairSharing)
		if q.Spec.CohortName != "" {
			put("queue "+name, "cohort "+string(q.Spec.CohortName))
		}
	}
	for name, c := range w.cohorts {
		at("cohort " + name).limit(c.Spec.ResourceGroups)
		at("cohort " + name).weight = weightOf(c.Spec.FairSharing)
		if c.Spec.ParentName != "" && !w.isCyclic(name) {
			put("cohort "+name, "cohort "+string(c.Spec.ParentName))
		}
	}
	return places
}

// isCyclic reports whether the chain of parents is longer than any path without a cycle.
func (w *twin) isCyclic(cohort string) bool {
	for range len(w.cohorts) + 1 {
		c := w.cohorts[cohort]
		if c == nil || c.Spec.ParentName == "" {
			return false
		}
		cohort = string(c.Spec.ParentName)
	}
	return true
}

func (p *place) limit(groups []kueue.ResourceGroup) {
	for _, g := range groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				p.limits[quota.FlavorResource{Flavor: f.Name, Resource: r.Name}] = r
			}
		}
	}
}

// has returns the part of the quota of a place that it shares with its parent, and the part that it keeps.
func (p *place) has(fr quota.FlavorResource) (share, keep quota.Amount) {
	r := p.limits[fr]
	share, _ = quota.Of(fr.Resource, r.NominalQuota)
	for _, c := range p.children {
		s, _ := c.has(fr)
		share += s
	}
	if p.parent != nil && r.LendingLimit != nil {
		if l, _ := quota.Of(fr.Resource, *r.LendingLimit); share > l {
			return l, share - l
		}
	}
	return share, 0
}

func (p *place) uses(fr quota.FlavorResource) quota.Amount {
	used := p.charged[fr]
	for _, c := range p.children {
		_, keep := c.has(fr)
		used += max(0, c.uses(fr)-keep)
	}
	return used
}

// isWithinLimits checks the limits of the place and of all places above it that the usage reaches.
func (p *place) isWithinLimits(fr quota.FlavorResource) bool {
	share, keep := p.has(fr)
	used := p.uses(fr)
	switch {
	case p.parent == nil:
		return used <= share
	case used <= keep:
		return true
	}
	if l := p.limits[fr].BorrowingLimit; l != nil {
		if borrowing, _ := quota.Of(fr.Resource, *l); used > share+keep+borrowing {
			return false
		}
	}
	return p.parent.isWithinLimits(fr)
}

// with returns the result of f while a bill is charged.
func with[T any](p *place, b bill, f func() T) T {
	before := maps.Clone(p.charged)
	p.charged.add(b)
	answer := f()
	p.charged = before
	return answer
}

// fits reports whether all places stay within the limits with another bill.
func (p *place) fits(b bill) bool {
	return with(p, b, func() bool {
		for fr, a := range b {
			if a > 0 && !p.isWithinLimits(fr) {
				return false
			}
		}
		return true
	})
}

// level returns how far up the place has to borrow if another bill is charged.
func (p *place) level(b bill) int {
	return with(p, b, func() int {
		level := 0
		for fr, a := range b {
			if a > 0 {
				level = max(level, p.levelOf(fr))
			}
		}
		return level
	})
}

func (p *place) levelOf(fr quota.FlavorResource) int {
	if share, keep := p.has(fr); p.parent != nil && p.uses(fr) > share+keep {
		return p.parent.levelOf(fr)
	}
	return p.height()
}

func (p *place) height() int {
	height := 0
	for _, c := range p.children {
		height = max(height, c.height()+1)
	}
	return height
}

func (p *place) root() *place {
	for p.parent != nil {
		p = p.parent
	}
	return p
}
