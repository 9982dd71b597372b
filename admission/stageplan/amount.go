package stageplan

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// amountOf returns a quantity in the unit in which quota is charged: thousandths of a CPU, and whole units of all else, rounded up. It saturates
// at the largest int64, which therefore means "too much" wherever amounts are added or multiplied.
func amountOf(name corev1.ResourceName, q resource.Quantity) int64 {
	largest, amount := resource.NewQuantity(math.MaxInt64, resource.DecimalSI), q.Value
	if name == corev1.ResourceCPU {
		largest, amount = resource.NewMilliQuantity(math.MaxInt64, resource.DecimalSI), q.MilliValue
	}
	if q.Cmp(*largest) >= 0 {
		return math.MaxInt64
	}
	return amount()
}

func quantityOf(name corev1.ResourceName, amount int64) resource.Quantity {
	switch {
	case name == corev1.ResourceCPU:
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return *resource.NewQuantity(amount, resource.BinarySI)
	default:
		return *resource.NewQuantity(amount, resource.DecimalSI)
	}
}

// plus adds amounts that are not negative.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// times multiplies an amount that is not negative.
func times(amount int64, n int32) int64 {
	if n > 0 && amount > math.MaxInt64/int64(n) {
		return math.MaxInt64
	}
	return amount * int64(n)
}

// amount returns the sum of the requests of all pods of the set for one resource.
func (s *PodSet) amount(name corev1.ResourceName) int64 {
	return times(amountOf(name, s.Requests[name]), s.Count)
}

func (s *PodSet) checkAmounts(field string) Problems {
	var problems Problems
	for _, name := range slices.Sorted(maps.Keys(s.Requests)) {
		q := s.Requests[name]
		switch {
		case q.Sign() < 0:
			problems = problems.addf(field, "requests of %s must not be negative", name)
		case amountOf(name, q) == math.MaxInt64:
			problems = problems.addf(field, "requests of %s are larger than any quota", name)
		case s.amount(name) == math.MaxInt64:
			problems = problems.addf(field, "requests of %s times %d pods are larger than any quota", name, s.Count)
		}
	}
	return problems
}

// amounts has, for each resource that the plan asks for, the amount of each of its Holds.
func (p *Plan) amounts(holds []Hold) map[corev1.ResourceName][]int64 {
	amounts := map[corev1.ResourceName][]int64{}
	for h, hold := range holds {
		for _, i := range hold.PodSets {
			podSet := &p.Stages[hold.Stage].PodSets[i]
			for name := range podSet.Requests {
				if amounts[name] == nil {
					amounts[name] = make([]int64, len(holds))
				}
				amounts[name][h] = plus(amounts[name][h], podSet.amount(name))
			}
		}
	}
	return amounts
}

// checkSum checks that nothing computed from the plan can overflow: every other total is a part of the sum.
func (p *Plan) checkSum() Problems {
	var problems Problems
	amounts := p.amounts(p.Holds())
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if total(amounts[name]) == math.MaxInt64 {
			problems = problems.addf(replicatedJobsField, "requests of %s by all ReplicatedJobs together are larger than any quota", name)
		}
	}
	return problems
}

func total(amounts []int64) int64 {
	var sum int64
	for _, a := range amounts {
		sum = plus(sum, a)
	}
	return sum
}

// Requests returns the total requests of the stage, without resources of which it requests nothing.
func (s *Stage) Requests() corev1.ResourceList {
	return (&Plan{Stages: []Stage{{ReplicatedJobs: s.ReplicatedJobs, PodSets: s.PodSets}}}).Sum()
}

// Sum returns the total requests of all stages: what the JobSet would hold if it were admitted as a whole.
func (p *Plan) Sum() corev1.ResourceList {
	return p.collect(p.Holds(), total)
}

// Peak returns the most that the JobSet may hold at once. See PeakOf.
func (p *Plan) Peak() corev1.ResourceList {
	holds := p.Holds()
	before := p.Precedence(holds)
	return p.collect(holds, func(amounts []int64) int64 { return MostAtOnce(before, amounts) })
}

// PeakOf returns the most that the given stages may hold at once, if the others hold nothing. The stages are, for instance, those that are not
// finished yet, for what a running JobSet may come to hold, or those of a segment.
//
// Each resource has its own maximum. They need not be reached at the same time, so that the result is an upper bound of what is
// held at any time, and the smallest for each single resource that MostHeld can give.
func (p *Plan) PeakOf(stages []int) corev1.ResourceList {
	holds := slices.DeleteFunc(p.Holds(), func(h Hold) bool { return !slices.Contains(stages, h.Stage) })
	before := p.Precedence(holds)
	return p.collect(holds, func(amounts []int64) int64 { return MostAtOnce(before, amounts) })
}

// collect returns, for each resource, one applied to its amounts by Hold, without zero results.
func (p *Plan) collect(holds []Hold, one func(amounts []int64) int64) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amounts := range p.amounts(holds) {
		if amount := one(amounts); amount > 0 {
			list[name] = quantityOf(name, amount)
		}
	}
	return list
}
