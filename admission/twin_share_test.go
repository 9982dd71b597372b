package admission_test

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A share is the part of the lendable quota of the tree that a place borrows (KEP-1714): of the resource with the largest part, and divided by
// the weight. A place that borrows and has no weight comes after all places that have one.
type share struct {
	isInfinite bool
	part       float64
}

func (s share) compare(o share) int {
	if s.isInfinite != o.isInfinite {
		if s.isInfinite {
			return 1
		}
		return -1
	}
	return cmp.Compare(s.part, o.part)
}

// share returns that of a ClusterQueue or Cohort, with its current charges.
func (p *place) share() share {
	if p.parent == nil {
		return share{}
	}
	over, most := map[corev1.ResourceName]quota.Amount{}, map[corev1.ResourceName]quota.Amount{}
	for fr := range p.root().offered() {
		own, keep := p.has(fr)
		over[fr.Resource] += max(0, p.uses(fr)-own-keep)
		most[fr.Resource] += p.parent.most(fr)
	}
	part := 0.0
	for r := range over {
		if most[r] > 0 {
			part = max(part, float64(over[r])*1000/float64(most[r]))
		}
	}
	switch {
	case part == 0:
		return share{}
	case p.weight == 0:
		return share{true, part}
	}
	return share{false, part / p.weight}
}

// offered returns the flavors and resources that have a limit or a charge in a place and below.
func (p *place) offered() map[quota.FlavorResource]bool {
	all := map[quota.FlavorResource]bool{}
	for fr := range p.limits {
		all[fr] = true
	}
	for fr := range p.charged {
		all[fr] = true
	}
	for _, c := range p.children {
		for fr := range c.offered() {
			all[fr] = true
		}
	}
	return all
}

// most returns how much could be used below a place if nothing were charged.
func (p *place) most(fr quota.FlavorResource) quota.Amount {
	own, keep := p.has(fr)
	if p.parent == nil {
		return own
	}
	lent := p.parent.most(fr)
	if l := p.limits[fr].BorrowingLimit; l != nil {
		borrowing, _ := quota.Of(fr.Resource, *l)
		lent = min(lent, own+borrowing)
	}
	return keep + lent
}

func weightOf(f *kueue.FairSharing) float64 {
	if f == nil || f.Weight == nil {
		return 1
	}
	return f.Weight.AsApproximateFloat64()
}

// champion returns the offer below a place to admit next: each Cohort nominates the best of the offers below it. The best is the one by which the
// nominating child does not come to borrow what it asks for, then the one that leaves that child with the lowest share.
func (w *twin) champion(p *place, offers map[*place]*offer) *offer {
	if o := offers[p]; o != nil {
		return o
	}
	var best *offer
	var bestBorrows int
	var bestShare share
	for _, c := range p.children {
		o := w.champion(c, offers)
		if o == nil {
			continue
		}
		borrows := 0
		s := with(o.place, o.bill, func() share {
			for fr, a := range o.bill {
				if own, keep := c.has(fr); a > 0 && c.uses(fr) > own+keep {
					borrows = 1
				}
			}
			return c.share()
		})
		if best == nil || cmp.Or(borrows-bestBorrows, s.compare(bestShare), w.comparePlaces(o.wl, best.wl)) < 0 {
			best, bestBorrows, bestShare = o, borrows, s
		}
	}
	return best
}
