package flavor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/quota"
)

// KueueMessage returns Kueue's message for PodSets that do not fit the available amounts, or nothing if they fit. For flavors that pods cannot
// use at all, it contains the text of Objection.
func (s *Supply) KueueMessage(podSets []PodSet, available func(quota.ID) quota.Amount) string {
	var parts []string
	assumed := quota.Usage{}
	for i := range podSets {
		reasons, isPossible := s.reasons(&podSets[i], &assumed, available)
		if len(reasons) > 0 {
			slices.Sort(reasons)
			parts = append(parts, fmt.Sprintf("couldn't assign flavors to pod set %s: %s", podSets[i].Name, strings.Join(reasons, ", ")))
		}
		if !isPossible {
			break
		}
	}
	return strings.Join(parts, "; ")
}

// reasons returns why a PodSet does not get flavors now, and whether it could if quota were released. The usage of the first such flavors is
// added to the amounts that are assumed for the PodSets after it.
func (s *Supply) reasons(podSet *PodSet, assumed *quota.Usage, available func(quota.ID) quota.Amount) (reasons []string, isPossible bool) {
	if infeasibility := s.uncovered(podSet); infeasibility != nil {
		return []string{fmt.Sprintf("resource %s unavailable in ClusterQueue", infeasibility.Uncovered)}, false
	}
	for g := range s.Groups {
		group := &s.Groups[g]
		item := Item{Requests: group.requests(podSet)}
		if len(item.Requests) == 0 {
			continue
		}
		why, chosen := s.try(podSet, group, &item, *assumed, available)
		reasons = append(reasons, why...)
		if chosen == nil {
			return reasons, false
		}
		assumed.AddAll(chosen)
	}
	return reasons, true
}

// try returns the usage of the first flavor of a group that fits and no reasons, or the usage of the first that could fit and the reasons against
// each flavor.
func (s *Supply) try(podSet *PodSet, g *Group, item *Item, assumed quota.Usage, available func(quota.ID) quota.Amount) (reasons []string, chosen quota.Usage) {
	for _, f := range g.Flavors {
		if objection := podSet.objection(f, item, g); objection != "" {
			reasons = append(reasons, objection)
			continue
		}
		usage, why, isPossible := quota.Usage{}, []string(nil), true
		for _, r := range item.Requests {
			id := s.Index.ID(quota.FlavorResource{Flavor: f.Name, Resource: r.Resource})
			usage.Add(id, r.Amount)
			before := assumed.Of(id)
			switch need := before.Plus(r.Amount); {
			case need > s.Most(id):
				isPossible = false
				why = append(why, fmt.Sprintf("insufficient quota for %s in flavor %s, previously considered podsets requests (%s) + current podset request (%s) > maximum capacity (%s)",
					r.Resource, f.Name, before.Format(r.Resource), r.Amount.Format(r.Resource), s.Most(id).Format(r.Resource)))
			case need > available(id):
				why = append(why, fmt.Sprintf("insufficient unused quota for %s in flavor %s, %s more needed",
					r.Resource, f.Name, need.Minus(available(id)).Format(r.Resource)))
			}
		}
		if len(why) == 0 {
			return nil, usage
		}
		if isPossible && chosen == nil {
			chosen = usage
		}
		reasons = append(reasons, why...)
	}
	return reasons, chosen
}
