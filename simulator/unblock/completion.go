package unblock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/simulator"
)

const (
	// maxKinds is how many kinds of running quota Workloads are combined: those that hold the same quota in the same ClusterQueue are of one kind.
	maxKinds = 24
	// maxFailures is how many sets of one size are tried without success.
	maxFailures = 4
)

// missing is what one alternative lacks of each resource of each flavor.
type missing map[quota.FlavorResource]resource.Quantity

// missingOf returns what the alternatives of an explanation lack.
func missingOf(x *visibility.Explanation) []missing {
	var all []missing
	for _, a := range x.Alternatives {
		m := missing{}
		for i := range a.Shortages {
			s := &a.Shortages[i]
			m[quota.FlavorResource{Flavor: s.Flavor, Resource: s.Resource}] = s.Missing
		}
		all = append(all, m)
	}
	return all
}

// part returns how much of what is missing a usage is, summed over all resources.
func (m missing) part(usage map[quota.FlavorResource]resource.Quantity) float64 {
	sum := 0.0
	for fr, lack := range m {
		if held, holds := usage[fr]; holds && !lack.IsZero() {
			sum += held.AsApproximateFloat64() / lack.AsApproximateFloat64()
		}
	}
	return sum
}

// isCoveredBy reports whether some quota Workloads hold as much as is missing.
func (m missing) isCoveredBy(running []simulator.Running) bool {
	for fr, lack := range m {
		var sum resource.Quantity
		for i := range running {
			sum.Add(running[i].Usage[fr])
		}
		if sum.Cmp(lack) < 0 {
			return false
		}
	}
	return true
}

// searchCompletions searches sets of running quota Workloads that let the stage in when they succeed: those of one, then those of two, and so on
// until there are some. Only sets that hold as much as is missing are tried.
func (s *searcher) searchCompletions(x *visibility.Explanation) error {
	alternatives := missingOf(x)
	running := candidates(s.Running(), alternatives)
	for size := 1; size <= min(MaxChanges, len(running)); size++ {
		var sets []Set
		combine(running, size, func(chosen []simulator.Running) {
			if moved, isEnough := movedBy(chosen, alternatives); isEnough {
				sets = append(sets, Set{Succeed: slices.Clone(chosen), moved: moved})
			}
		})
		slices.SortStableFunc(sets, func(a, b Set) int { return a.compare(&b) })
		found, failures := 0, 0
		for i := range sets {
			added, err := s.add(sets[i])
			switch {
			case errors.Is(err, errNoTrials):
				return nil
			case err != nil:
				return err
			case added:
				found++
			default:
				failures++
			}
			if found == maxSets || failures == maxFailures {
				break
			}
		}
		if found > 0 {
			return nil
		}
	}
	return nil
}

// movedBy returns how much of what is missing some quota Workloads hold, for the alternative that needs least of them.
func movedBy(chosen []simulator.Running, alternatives []missing) (moved float64, isEnough bool) {
	for _, m := range alternatives {
		if !m.isCoveredBy(chosen) {
			continue
		}
		sum := 0.0
		for i := range chosen {
			sum += m.part(chosen[i].Usage)
		}
		if !isEnough || sum < moved {
			moved, isEnough = sum, true
		}
	}
	return moved, isEnough
}

// candidates returns the quota Workloads that hold something of what is missing: of each kind those that end first, and at most as many as a set
// can have; of all kinds those that hold most.
func candidates(running []simulator.Running, alternatives []missing) []simulator.Running {
	kinds := map[string][]simulator.Running{}
	most := map[string]float64{}
	for i := range running {
		r := &running[i]
		held := 0.0
		for _, m := range alternatives {
			held = max(held, m.part(r.Usage))
		}
		if held > 0 {
			kind := kindOf(r, alternatives)
			kinds[kind] = append(kinds[kind], *r)
			most[kind] = held
		}
	}
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(most[b], most[a]), cmp.Compare(a, b)) })
	var all []simulator.Running
	for _, name := range names {
		of := kinds[name]
		slices.SortStableFunc(of, func(a, b simulator.Running) int {
			return cmp.Or(compareEnds(a.End, b.End), cmp.Compare(a.Workload.String(), b.Workload.String()))
		})
		all = append(all, of[:min(len(of), MaxChanges, maxKinds-len(all))]...)
		if len(all) == maxKinds {
			break
		}
	}
	return all
}

// kindOf names what a quota Workload holds of what is missing, and where. Those of JobSets differ, because other stages may follow.
func kindOf(r *simulator.Running, alternatives []missing) string {
	var held []string
	for _, m := range alternatives {
		for fr := range m {
			amount := r.Usage[fr]
			held = append(held, fmt.Sprintf("%s/%s=%s", fr.Flavor, fr.Resource, amount.String()))
		}
	}
	slices.Sort(held)
	return r.ClusterQueue + " " + r.Stage + " " + strings.Join(slices.Compact(held), " ")
}

// combine calls f with each combination of a size. f must not keep it.
func combine(all []simulator.Running, size int, f func([]simulator.Running)) {
	chosen := make([]simulator.Running, 0, size)
	var next func(from int)
	next = func(from int) {
		if len(chosen) == size {
			f(chosen)
			return
		}
		for i := from; i <= len(all)-(size-len(chosen)); i++ {
			chosen = append(chosen, all[i])
			next(i + 1)
			chosen = chosen[:len(chosen)-1]
		}
	}
	next(0)
}
