// Package unblock finds what would let a pending quota Workload in: running quota Workloads that succeed, or limits of queues that are raised.
//
// Every set of changes that it returns was tried: the engine admits the quota Workload after these changes, and not after a part of them.
// One set is cheaper than another one if it has fewer changes; then if it moves less of the missing quota; then if its last quota Workload ends
// earlier. Of the missing quota, a quota Workload moves what it holds, and a limit what it is raised by, as parts of what is missing.
package unblock

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/simulator"
)

const (
	// maxSets is how many sets are returned.
	maxSets = 3
	// MaxChanges is how many changes a set has at most.
	MaxChanges = 4
	// maxTrials limits the time of a search, in trials.
	maxTrials = 40
)

// A World tries changes. It is a simulator.Laboratory.
type World interface {
	Try(changes ...simulator.Change) (simulator.TrialResult, error)
	Running() []simulator.Running
	Value(limit simulator.Limit) (resource.Quantity, bool)
	ClusterQueue() *kueue.ClusterQueue
	Ahead(name corev1.ResourceName) resource.Quantity
}

// A Set is a set of changes after which the quota Workload is admitted, and of which no part is enough.
type Set struct {
	// Succeed are the running quota Workloads that succeed. A set has either these or limits.
	Succeed []simulator.Running
	Raise   []Raise
	// Evicts is how many quota Workloads the engine evicts for it.
	Evicts int

	moved float64
}

// A Raise is a limit that is raised.
type Raise struct {
	Limit    simulator.Limit
	From, To resource.Quantity
}

// An Answer is what would let a quota Workload in.
type Answer struct {
	// Sets are the cheapest sets that were found, the cheapest first.
	Sets []Set
	// Why says what is true instead of, or besides, the sets. It is empty if nothing is to be said.
	Why string
	// Missing is what the quota Workload lacks now, in some alternative.
	Missing map[quota.FlavorResource]struct{}
}

// Find returns what would let the pending quota Workload of a world in.
func Find(w World) (*Answer, error) {
	s := &searcher{World: w, known: map[string]simulator.TrialResult{}, trials: maxTrials}
	now, err := s.try(nil)
	if err != nil {
		return nil, err
	}
	if now.IsAdmitted {
		return &Answer{Why: "nothing has to change: quota that is free or being released is enough"}, nil
	}
	if why := hopeless(&now.Explanation); why != "" {
		return &Answer{Why: why}, nil
	}
	answer := &Answer{Missing: map[quota.FlavorResource]struct{}{}}
	for _, m := range missingOf(&now.Explanation) {
		for fr := range m {
			answer.Missing[fr] = struct{}{}
		}
	}
	if isBeyondLimits(&now.Explanation) {
		answer.Why = "no completion lets it in: it asks for more than these queues can ever have; ask for less, or raise the limits"
	} else if err := s.searchCompletions(&now.Explanation); err != nil {
		return nil, err
	}
	if err := s.searchRaises(&now.Explanation); err != nil {
		return nil, err
	}
	answer.Sets = s.cheapest()
	if answer.Why == "" {
		answer.Why = s.incompleteness()
	}
	return answer, nil
}

// incompleteness says what is true if there are no sets, or if the search was cut off before it had tried all that it would.
func (s *searcher) incompleteness() string {
	none := fmt.Sprintf("no set of at most %d completions or raised limits was found that lets it in", MaxChanges)
	switch {
	case s.isCutOff && len(s.sets) == 0:
		return fmt.Sprintf("%s: the search was stopped after %d trials, so there may be one", none, s.made)
	case s.isCutOff:
		return fmt.Sprintf("the search was stopped after %d trials: there may be other sets, also cheaper ones", s.made)
	case len(s.sets) == 0:
		return none
	}
	return ""
}

// hopeless says why no sets are searched, or returns "".
func hopeless(x *visibility.Explanation) string {
	switch {
	case x.Check == "":
		return "all checks pass, but other stages are admitted first"
	case x.Check == admission.DelaysNone && x.Behind != nil:
		return fmt.Sprintf("quota is reserved for quota Workload %s, which must be admitted first: explain that one", x.Behind)
	case x.Behind != nil:
		return fmt.Sprintf("quota Workload %s is ahead in the queue and must be admitted first: explain that one", x.Behind)
	case len(x.Alternatives) == 0 && !isBeyondLimits(x):
		return fmt.Sprintf("check %s fails, which is not about missing quota: completions and limits were not searched", x.Check)
	}
	return ""
}

// isBeyondLimits reports whether a quota Workload does not fit even if nothing is charged.
func isBeyondLimits(x *visibility.Explanation) bool {
	return x.Check == admission.WithinLimits || x.Check == admission.PeakWithinLimits
}

// A searcher searches sets.
type searcher struct {
	World
	// known has the outcomes of the trials by the names of their changes, and trials is how many more may be made.
	known  map[string]simulator.TrialResult
	trials int
	// made counts the trials that were made. isCutOff is true if sets were left out because there were no more trials.
	made     int
	isCutOff bool
	sets     []Set
}

// errNoTrials is the result of a trial beyond the limit.
var errNoTrials = fmt.Errorf("the search has made all its trials")

func (s *searcher) try(changes []simulator.Change) (simulator.TrialResult, error) {
	name := nameOf(changes)
	if o, isKnown := s.known[name]; isKnown {
		return o, nil
	}
	if s.trials == 0 {
		s.isCutOff = true
		return simulator.TrialResult{}, errNoTrials
	}
	s.trials--
	s.made++
	o, err := s.Try(changes...)
	if err == nil {
		s.known[name] = o
	}
	return o, err
}

// nameOf returns the same text for the same changes in any order.
func nameOf(changes []simulator.Change) string {
	names := make([]string, len(changes))
	for i := range changes {
		c := &changes[i]
		names[i] = fmt.Sprintf("%v %v %s", c.Succeeds, c.Limit, c.To.String())
	}
	slices.Sort(names)
	return fmt.Sprint(names)
}

// Changes returns what happens.
func (set *Set) Changes() []simulator.Change {
	var all []simulator.Change
	for i := range set.Succeed {
		all = append(all, simulator.Change{Succeeds: set.Succeed[i].Workload})
	}
	for _, r := range set.Raise {
		all = append(all, simulator.Change{Limit: r.Limit, To: r.To})
	}
	return all
}

// isMinimal reports whether no part of the changes is enough.
func (s *searcher) isMinimal(changes []simulator.Change) (bool, error) {
	for mask := 1; mask < 1<<len(changes)-1; mask++ {
		var part []simulator.Change
		for i := range changes {
			if mask&(1<<i) != 0 {
				part = append(part, changes[i])
			}
		}
		o, err := s.try(part)
		if err != nil || o.IsAdmitted {
			return false, err
		}
	}
	return true, nil
}

// add tries a set, and adds it if the quota Workload is admitted after it and not after a part of it.
func (s *searcher) add(set Set) (added bool, err error) {
	changes := set.Changes()
	o, err := s.try(changes)
	if err != nil || !o.IsAdmitted {
		return false, err
	}
	if isMinimal, err := s.isMinimal(changes); err != nil || !isMinimal {
		return false, err
	}
	set.Evicts = o.Evicts
	if !slices.ContainsFunc(s.sets, set.includes) {
		s.sets = append(slices.DeleteFunc(s.sets, func(known Set) bool { return known.includes(set) }), set)
	}
	return true, nil
}

// includes reports whether a set has all that another one has: it raises the same limits, as far or further.
func (set *Set) includes(other Set) bool {
	if len(set.Succeed) > 0 || len(other.Succeed) > 0 {
		return nameOf(set.Changes()) == nameOf(other.Changes())
	}
	return !slices.ContainsFunc(other.Raise, func(o Raise) bool {
		return !slices.ContainsFunc(set.Raise, func(r Raise) bool { return r.Limit == o.Limit && r.To.Cmp(o.To) >= 0 })
	})
}

// cheapest returns the first sets in the order of their costs.
func (s *searcher) cheapest() []Set {
	slices.SortStableFunc(s.sets, func(a, b Set) int { return a.compare(&b) })
	return s.sets[:min(len(s.sets), maxSets)]
}

func (set *Set) compare(other *Set) int {
	if c := cmp.Or(cmp.Compare(len(set.Succeed)+len(set.Raise), len(other.Succeed)+len(other.Raise)), cmp.Compare(set.moved, other.moved)); c != 0 {
		return c
	}
	if c := compareEnds(set.end(), other.end()); c != 0 {
		return c
	}
	return cmp.Compare(nameOf(set.Changes()), nameOf(other.Changes()))
}

// end returns when the last quota Workload ends, or zero if that is not known.
func (set *Set) end() time.Time {
	var last time.Time
	for i := range set.Succeed {
		end := set.Succeed[i].End
		if end.IsZero() {
			return end
		}
		if end.After(last) {
			last = end
		}
	}
	return last
}

// compareEnds orders times, and no time after all others.
func compareEnds(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}
