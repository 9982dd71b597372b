package unblock

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/simulator"
)

// maxRounds is how often limits are raised further because others fail, or because other stages take what is added. It is doubled each time.
const maxRounds = 12

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
			if err := s.lower(&set); err != nil {
				return err
			}
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

// lower lowers a single limit again that was raised too far: to the least whole amount after which the stage is admitted, if more quota never hurts.
func (s *searcher) lower(set *Set) error {
	if len(set.Raise) != 1 {
		return nil
	}
	r := &set.Raise[0]
	unit := int64(1000)
	if r.From.MilliValue()%unit != 0 || r.To.MilliValue()%unit != 0 {
		unit = 1
	}
	enough, from := r.To.DeepCopy(), r.From.MilliValue()
	few, most := int64(0), (enough.MilliValue()-from)/unit
	for isFirst := true; most-few > 1; isFirst = false {
		middle := few + (most-few)/2
		if isFirst {
			middle = most - 1 // most often it was not raised too far
		}
		to := resource.NewMilliQuantity(from+middle*unit, r.To.Format)
		o, err := s.try([]simulator.Change{{Limit: r.Limit, To: *to}})
		if errors.Is(err, errNoTrials) {
			break
		}
		if err != nil {
			return err
		}
		if o.IsAdmitted {
			most, enough = middle, *to
		} else {
			few = middle
		}
	}
	r.To = enough
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

// There are three ways to raise limits: the limits that fail themselves; the quota of the ClusterQueue; the quota of the Cohort.
const (
	ofLimit = iota
	ofQueue
	ofCohort
	ways
)

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
		more := set.Raise[k].Amount()
		if more.IsZero() {
			more = shortage.Missing
		} else if ahead := s.Ahead(limit.Resource); way == ofQueue && more.Cmp(ahead) < 0 {
			ahead.Sub(more)
			more = ahead // those before it take what is added
		}
		if more.Cmp(shortage.Missing) < 0 {
			more = shortage.Missing
		}
		set.Raise[k].To.Add(more)
	}
	return true
}

// limitFor returns the limit to raise for a shortage.
func (s *searcher) limitFor(shortage *visibility.Shortage, way int) (simulator.Limit, bool) {
	c := &shortage.Constraint
	limit := simulator.Limit{Kind: c.Kind, Name: c.Name, Flavor: shortage.Flavor, Resource: shortage.Resource, Field: c.Limit}
	switch {
	case way == ofLimit && c.Limit == visibility.SharedQuota:
		return limit, false // no field has this limit: it is a sum
	case way == ofQueue || c.Limit == visibility.SharedQuota && c.Kind == visibility.ClusterQueue:
		queue := s.ClusterQueue()
		if queue == nil {
			return limit, false
		}
		limit.Kind, limit.Name, limit.Field = visibility.ClusterQueue, queue.Name, visibility.NominalQuota
	case way == ofCohort && c.Kind != visibility.Cohort:
		return limit, false
	case way == ofCohort:
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
		lack, isMissing := m[quota.FlavorResource{Flavor: limit.Flavor, Resource: limit.Resource}]
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
