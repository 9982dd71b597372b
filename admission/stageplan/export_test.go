package stageplan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/quota"
)

// FinishedBefore reports whether stage b can only open after stage a has finished.
func (p *Plan) FinishedBefore(a, b int) bool { return p.finishedBefore()[a][b] }

// MostHeld is MostAtOnce of all Holds of the plan.
func (p *Plan) MostHeld(amounts []int64) int64 {
	converted := make([]quota.Amount, len(amounts))
	for i, a := range amounts {
		converted[i] = quota.Amount(a)
	}
	return int64(MostAtOnce(p.Precedence(p.Holds()), converted))
}

// Peak returns the most that the JobSet may hold at once. See PeakOf.
func (p *Plan) Peak() corev1.ResourceList { return p.peak(p.Holds()) }

// PeakOf returns the most that the given stages may hold at once, if the others hold nothing. Each resource has its own maximum.
func (p *Plan) PeakOf(stages []int) corev1.ResourceList {
	return p.peak(slices.DeleteFunc(p.Holds(), func(h Hold) bool { return !slices.Contains(stages, h.Stage) }))
}

func (p *Plan) peak(holds []Hold) corev1.ResourceList {
	before := p.Precedence(holds)
	return p.collect(holds, func(amounts []quota.Amount) quota.Amount { return MostAtOnce(before, amounts) })
}
