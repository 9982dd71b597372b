package stageplan

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// amountOf returns a quantity in the unit in which quota is charged: thousandths of a CPU, and whole units of all else, rounded
// up. It stops at the largest int64, which therefore stands for "too much" wherever amounts are added or multiplied.
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

// amount is what all pods of the set ask for of one resource.
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

// amount is what the stage holds of one resource.
func (s *Stage) amount(name corev1.ResourceName) int64 {
	var sum int64
	for i := range s.PodSets {
		sum = plus(sum, s.PodSets[i].amount(name))
	}
	return sum
}

// amounts has, for each resource that the plan asks for, what each stage holds.
func (p *Plan) amounts() map[corev1.ResourceName][]int64 {
	amounts := map[corev1.ResourceName][]int64{}
	for s := range p.Stages {
		for _, podSet := range p.Stages[s].PodSets {
			for name := range podSet.Requests {
				if amounts[name] == nil {
					amounts[name] = make([]int64, len(p.Stages))
				}
			}
		}
	}
	for name, held := range amounts {
		for s := range p.Stages {
			held[s] = p.Stages[s].amount(name)
		}
	}
	return amounts
}

// checkSum makes sure that nothing computed from the plan can overflow: every other total is a part of the sum.
func (p *Plan) checkSum() Problems {
	var problems Problems
	amounts := p.amounts()
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

// Requests returns what the stage holds of each resource, those left out of which it holds nothing.
func (s *Stage) Requests() corev1.ResourceList {
	return (&Plan{Stages: []Stage{*s}}).Sum()
}

// Sum returns what all stages together ask for: what the JobSet would hold if it were admitted as a whole.
func (p *Plan) Sum() corev1.ResourceList {
	return p.collect(total)
}

// Peak returns the most that the JobSet may hold at once. See PeakOf.
func (p *Plan) Peak() corev1.ResourceList {
	return p.collect(p.MostHeld)
}

// PeakOf returns the most that the given stages may hold at once, if the others hold nothing: those that are not finished yet,
// for what a running JobSet may come to hold, or those of a segment.
//
// Each resource has its own maximum. They need not be reached at the same time, so that the result is an upper bound of what is
// held at any time, and the smallest for each single resource that MostHeld can give.
func (p *Plan) PeakOf(stages []int) corev1.ResourceList {
	return p.collect(func(amounts []int64) int64 {
		chosen := make([]int64, len(amounts))
		for _, s := range stages {
			chosen[s] = amounts[s]
		}
		return p.MostHeld(chosen)
	})
}

// collect makes a list of what is left of each resource when its amounts, by stage, are made one.
func (p *Plan) collect(one func(amounts []int64) int64) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amounts := range p.amounts() {
		if amount := one(amounts); amount > 0 {
			list[name] = quantityOf(name, amount)
		}
	}
	return list
}
