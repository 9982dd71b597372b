package unblock

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/simulator"
)

// maxRounds is how often limits are raised further because others fail, or because other stages take what is added.
const maxRounds = 4

// searchRaises searches sets of limits that let the stage in when they are raised. For each alternative it raises the limits that fail by what is
// missing, and goes on with those that fail then.
func (s *searcher) searchRaises(x *visibility.Explanation) error {
	for i := range x.Alternatives {
		for way := range ways {
			err := s.raise(x, i, way)
			if errors.Is(err, errNoTrials) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// raise raises limits in one way until the stage is admitted. first is the alternative to begin with.
func (s *searcher) raise(x *visibility.Explanation, first, way int) error {
	var set Set
	a := &x.Alternatives[first]
	for range maxRounds {
		if !s.raiseFor(&set, a, way) || len(set.Raise) > MaxChanges {
			return nil
		}
		o, err := s.try(set.Changes())
		if err != nil {
			return err
		}
		if o.IsAdmitted {
			set.moved = missingOf(x)[first].partOf(set.Raise)
			_, err := s.add(set)
			return err
		}
		if a = sameFlavors(a, &o.Explanation); a == nil {
			return nil
		}
	}
	return nil
}

// sameFlavors returns the alternative with the flavors of an earlier one, or the first one.
func sameFlavors(before *visibility.Alternative, x *visibility.Explanation) *visibility.Alternative {
	if x.Behind != nil || len(x.Alternatives) == 0 {
		return nil
	}
	for i := range x.Alternatives {
		isSame := func(s visibility.Shortage) bool {
			return slices.ContainsFunc(before.Shortages, func(b visibility.Shortage) bool { return b.Flavor == s.Flavor })
		}
		if !slices.ContainsFunc(x.Alternatives[i].Shortages, func(s visibility.Shortage) bool { return !isSame(s) }) {
			return &x.Alternatives[i]
		}
	}
	return &x.Alternatives[0]
}

// ways is how many ways there are to raise limits: the limits that fail themselves; the quota of the ClusterQueue; the quota of the Cohort.
const ways = 3

// raiseFor adds to a set what an alternative lacks. It returns false if there is no limit to raise in this way.
func (s *searcher) raiseFor(set *Set, a *visibility.Alternative, way int) bool {
	for i := range a.Shortages {
		shortage := &a.Shortages[i]
		limit, ok := s.limitFor(shortage, way)
		if !ok {
			return false
		}
		k := slices.IndexFunc(set.Raise, func(r Raise) bool { return r.Limit == limit })
		if k < 0 {
			from, _ := s.Value(limit)
			set.Raise = append(set.Raise, Raise{Limit: limit, From: from, To: from.DeepCopy()})
			k = len(set.Raise) - 1
		}
		set.Raise[k].To.Add(shortage.Missing)
	}
	return true
}

// limitFor returns the limit to raise for a shortage.
func (s *searcher) limitFor(shortage *visibility.Shortage, way int) (simulator.Limit, bool) {
	c := &shortage.Constraint
	limit := simulator.Limit{Kind: c.Kind, Name: c.Name, Flavor: shortage.Flavor, Resource: shortage.Resource, Field: c.Limit}
	switch {
	case way == 0 && c.Limit == visibility.SharedQuota:
		return limit, false // no field has this limit: it is a sum
	case way == 1 || c.Limit == visibility.SharedQuota && c.Kind == visibility.ClusterQueue:
		queue := s.ClusterQueue()
		if queue == nil {
			return limit, false
		}
		limit.Kind, limit.Name, limit.Field = visibility.ClusterQueue, queue.Name, visibility.NominalQuota
	case way == 2 && c.Kind != visibility.Cohort:
		return limit, false
	case way == 2:
		limit.Field = visibility.NominalQuota
	}
	_, isSet := s.Value(limit)
	return limit, isSet
}

// partOf returns by how much of what is missing limits are raised, summed over all resources. A resource that was not missing counts as one.
func (m missing) partOf(raised []Raise) float64 {
	sum := 0.0
	for i := range raised {
		amount, limit := raised[i].Amount(), raised[i].Limit
		lack, isMissing := m[simulator.FlavorResource{Flavor: limit.Flavor, Resource: limit.Resource}]
		if !isMissing {
			lack = amount
		}
		sum += amount.AsApproximateFloat64() / lack.AsApproximateFloat64()
	}
	return sum
}

// Amount returns by how much a limit is raised.
func (r *Raise) Amount() resource.Quantity {
	amount := r.To.DeepCopy()
	amount.Sub(r.From)
	return amount
}
