package quota

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A FlavorResource is what quota is given for: a resource on nodes of one flavor.
type FlavorResource struct {
	Flavor   kueue.ResourceFlavorReference
	Resource corev1.ResourceName
}

// Compare orders by flavor, then by resource.
func (fr FlavorResource) Compare(other FlavorResource) int {
	return cmp.Or(cmp.Compare(fr.Flavor, other.Flavor), cmp.Compare(fr.Resource, other.Resource))
}

// A Usage says how much is used of what. Its amounts are not negative.
type Usage map[FlavorResource]Amount

// Add adds to one entry.
func (u Usage) Add(fr FlavorResource, a Amount) { u[fr] = u[fr].Plus(a) }

// AddAll adds every entry of another usage.
func (u Usage) AddAll(other Usage) {
	for fr, a := range other {
		u.Add(fr, a)
	}
}

// Without returns how much each entry is above that of another usage, and leaves out those that are not.
func (u Usage) Without(other Usage) Usage {
	rest := Usage{}
	for fr, a := range u {
		if a > other[fr] {
			rest[fr] = a.Minus(other[fr])
		}
	}
	return rest
}

// Sorted returns the entries in a fixed order.
func (u Usage) Sorted() iter.Seq2[FlavorResource, Amount] {
	return func(yield func(FlavorResource, Amount) bool) {
		for _, fr := range slices.SortedFunc(maps.Keys(u), FlavorResource.Compare) {
			if !yield(fr, u[fr]) {
				return
			}
		}
	}
}

// A Tally is a sum of usages that is exact however large it gets, so that each can be taken away again. The zero Tally is empty.
type Tally struct{ totals map[FlavorResource]total }

// Add adds a usage.
func (t *Tally) Add(u Usage) {
	for fr, a := range u {
		t.set(fr, t.totals[fr].plus(a))
	}
}

// Take takes away a usage that was added before.
func (t *Tally) Take(u Usage) {
	for fr, a := range u {
		t.set(fr, t.totals[fr].minus(a))
	}
}

// Of returns one entry, or MaxAmount if it is larger than that.
func (t *Tally) Of(fr FlavorResource) Amount { return t.totals[fr].amount() }

// Equal tells whether two tallies are the same.
func (t *Tally) Equal(other *Tally) bool { return maps.Equal(t.totals, other.totals) }

func (t *Tally) set(fr FlavorResource, to total) {
	if t.totals == nil {
		t.totals = map[FlavorResource]total{}
	}
	if to == (total{}) {
		delete(t.totals, fr)
		return
	}
	t.totals[fr] = to
}
