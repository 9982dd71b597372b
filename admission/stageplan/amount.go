package stageplan

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/admission/quota"
)

// amountOf returns a quantity in the unit in which quota is charged: thousandths of a CPU, and whole units of all else, rounded up. It saturates
// at quota.MaxAmount, which therefore means "too much" wherever amounts are added or multiplied.
func amountOf(name corev1.ResourceName, q resource.Quantity) quota.Amount {
	largest, amount := resource.NewQuantity(math.MaxInt64, resource.DecimalSI), q.Value
	if name == corev1.ResourceCPU {
		largest, amount = resource.NewMilliQuantity(math.MaxInt64, resource.DecimalSI), q.MilliValue
	}
	if q.Cmp(*largest) >= 0 {
		return quota.MaxAmount
	}
	return quota.Amount(amount())
}

// amount returns the sum of the requests of all pods of the set for one resource.
func (s *PodSet) amount(name corev1.ResourceName) quota.Amount {
	return amountOf(name, s.Requests[name]).Times(s.Count)
}

func (s *PodSet) checkAmounts(field string) Problems {
	var problems Problems
	for _, name := range slices.Sorted(maps.Keys(s.Requests)) {
		q := s.Requests[name]
		switch {
		case q.Sign() < 0:
			problems = problems.addf(field, "requests of %s must not be negative", name)
		case amountOf(name, q) == quota.MaxAmount:
			problems = problems.addf(field, "requests of %s are larger than any quota", name)
		case s.amount(name) == quota.MaxAmount:
			problems = problems.addf(field, "requests of %s times %d pods are larger than any quota", name, s.Count)
		}
	}
	return problems
}

// amounts has, for each resource that the plan asks for, the amount of each of its Holds.
func (p *Plan) amounts(holds []Hold) map[corev1.ResourceName][]quota.Amount {
	amounts := map[corev1.ResourceName][]quota.Amount{}
	for h, hold := range holds {
		for _, i := range hold.PodSets {
			podSet := &p.Stages[hold.Stage].PodSets[i]
			for name := range podSet.Requests {
				if amounts[name] == nil {
					amounts[name] = make([]quota.Amount, len(holds))
				}
				amounts[name][h] = amounts[name][h].Plus(podSet.amount(name))
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
		if total(amounts[name]) == quota.MaxAmount {
			problems = problems.addf(replicatedJobsField, "requests of %s by all ReplicatedJobs together are larger than any quota", name)
		}
	}
	return problems
}

func total(amounts []quota.Amount) quota.Amount {
	var sum quota.Amount
	for _, a := range amounts {
		sum = sum.Plus(a)
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

// collect returns, for each resource, one applied to its amounts by Hold, without zero results.
func (p *Plan) collect(holds []Hold, one func(amounts []quota.Amount) quota.Amount) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amounts := range p.amounts(holds) {
		if amount := one(amounts); amount > 0 {
			list[name] = amount.Quantity(name)
		}
	}
	return list
}
