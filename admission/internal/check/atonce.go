package check

import (
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// Some stages are admitted only if more than their own quota is free: under policy Reserve the peak of the hold segment, and under policy Safe, for a
// stage with accelerators, the quota of the stages that start when it is ready. All of it is preempted for together, and is then reserved.

// unreserved refuses the stage unless all that the JobSet may come to hold in this hold segment is free now.
func (ck *Checker) unreserved(l *Candidate, before, after *safety.Progress) *decision.Refusal {
	lacks := ck.lacksAtOnce(l, before, after.Peaks())
	if lacks == nil {
		return nil
	}
	return decision.NewRefusal(PeakFits, kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		"waits for quota in ClusterQueue %s: this stage and the stages that may hold quota at the same time are admitted together (policy Reserve) and need %s%s",
		l.Queue.Name, strings.Join(lacks, " and "), l.Overruled())
}

// startsAlone refuses a stage with accelerators if there is no quota for the stages that start when it is ready (model.JobSet.CoStarted).
func (ck *Checker) startsAlone(l *Candidate, before, after *safety.Progress, usage quota.Usage) *decision.Refusal {
	started := ck.coStarted(l, after, usage)
	if len(started) == 0 {
		return nil
	}
	lacks := ck.lacksAtOnce(l, before, after.PeaksWith(started))
	if lacks == nil {
		return nil
	}
	names := make([]string, len(started))
	for i, s := range started {
		names[i] = l.JobSet.Plan.Stages[s].Name
	}
	return decision.NewRefusal(CoStartFits, kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		"waits for quota in ClusterQueue %s: this stage holds accelerators and starts %s as soon as it is ready, so that there must be quota for all of them (coStart): needs %s",
		l.Queue.Name, strings.Join(names, ", "), strings.Join(lacks, " and "))
}

// coStarted returns the stages for which there must be quota, too, when a stage is admitted under policy Safe.
func (ck *Checker) coStarted(l *Candidate, after *safety.Progress, usage quota.Usage) []int {
	isLauncher := !l.Stage.IsGrowth && l.Policy == settings.Safe && ck.m.Config.CoStartOf(&l.Queue.Spec).IsEnabled &&
		l.JobSet.Plan.OpensByReady(l.Stage.Index) && ck.m.Config.HasAccelerators(ck.m.Tree.Index, usage)
	if !isLauncher {
		return nil
	}
	launchers := make([]bool, len(l.JobSet.Plan.Stages))
	launchers[l.Stage.Index] = true
	return l.JobSet.CoStarted(after, launchers)
}

// lacksAtOnce returns the missing quota of the first of some alternatives, of which each is what the JobSet would hold at once, or nil if one of them
// is available, or will be when the victims of the stage have left. Then all of it is reserved, whether the victims were chosen for it or for the stage alone.
func (ck *Checker) lacksAtOnce(l *Candidate, before *safety.Progress, peaks []quota.Usage) []string {
	held := before.HeldNow()
	lacks := []string{"a flavor that fits each later stage"}
	ck.withoutVictims(l, func() {
		for i, peak := range peaks {
			need := peak.Without(held)
			short := ck.Lacks(l, need)
			if len(short) == 0 {
				lacks = nil
				if l.Preempts() && l.atOnce == nil {
					l.atOnce = need
				}
				return
			}
			if i == 0 {
				lacks = short
			}
		}
	})
	return lacks
}

// withoutVictims calls a function as if the victims of a stage had left.
func (ck *Checker) withoutVictims(l *Candidate, f func()) {
	if !l.Preempts() {
		f()
		return
	}
	ck.m.Tree.WhatIfEvicted(func() bool {
		for _, v := range l.Victims {
			model.EvictionUnitOf(v.Holder).Queue.Node.Release(v.Holder.Usage)
		}
		f()
		return true
	})
}

// NeededAtOnce returns the amounts, as alternatives, that have to be free for the admission of a stage with its choice because of the stages that
// may hold quota at the same time. There are none if its own quota is enough.
func (ck *Checker) NeededAtOnce(l *Candidate) []quota.Usage {
	if !l.HasPlan() || l.Policy == settings.Greedy {
		return nil
	}
	before := ck.m.Progress(l.JobSet, l.Queue)
	after := l.Admitted(before, l.Choice)
	var peaks []quota.Usage
	if l.Policy == settings.Reserve {
		if len(after.Ahead()) > 0 {
			peaks = after.Peaks()
		}
	} else if started := ck.coStarted(l, after, l.Usage); len(started) > 0 {
		peaks = after.PeaksWith(started)
	}
	held := before.HeldNow()
	more := make([]quota.Usage, len(peaks))
	for i, peak := range peaks {
		more[i] = peak.Without(held)
	}
	return more
}

// launchersNeeds returns the alternatives for what a launcher and the stages that it starts need, or the only one for another stage.
func launchersNeeds(ck *Checker, l *Candidate) []quota.Usage {
	if l.Policy == settings.Safe && l.atOnce == nil {
		if needs := ck.NeededAtOnce(l); len(needs) > 0 {
			return needs
		}
	}
	return []quota.Usage{l.Needed()}
}

// Needed returns what has to be free for the admission of a stage: its usage, or what it is preempted for together with it.
func (l *Candidate) Needed() quota.Usage {
	if l.atOnce != nil {
		return l.atOnce
	}
	return l.Usage
}

// preemptsAtOnce searches for victims for all that has to be free at once, and reports whether there are enough. A stage that would need more than its
// ClusterQueue may preempt for as a whole preempts nothing: it would evict others and then wait.
func (ck *Checker) preemptsAtOnce(l *Candidate) bool {
	if !l.Queue.MayPreempt() || l.Stage.CoAdmissionGroup() != nil {
		return false
	}
	choice, usage, level, victims, awaits := l.Choice, l.Usage, l.Level, l.Victims, l.awaits
	searches := 0
	for option := range flavor.Choices(l.Items, flavor.MaxChoices) {
		l.choose(option)
		for _, need := range ck.NeededAtOnce(l) {
			if searches++; searches > flavor.MaxChoices {
				break
			}
			if ck.preemptsFor(l, need) {
				return true
			}
		}
	}
	l.Choice, l.Usage, l.Level, l.Victims, l.awaits, l.atOnce = choice, usage, level, victims, awaits, nil
	return false
}

// preemptsFor reports whether there are victims for one of the amounts, and chooses them.
func (ck *Checker) preemptsFor(l *Candidate, need quota.Usage) bool {
	request := ck.request(l, need)
	request.Peaks = func() []quota.Usage { return ck.peaksWith(l, l.Usage) }
	result := ck.m.Finder.Find(request)
	l.retryAt(result.RetryAt)
	switch {
	case result.Outcome == preempt.EvictionsPending:
		l.Victims, l.awaits = nil, true
	case result.Outcome == preempt.Found && !l.isOwn(result.Victims) && !ck.isOutOfTurn(l, result.Victims):
		l.Victims, l.awaits = result.Victims, false
	default:
		return false
	}
	l.atOnce = need
	return ck.Unsafe(l, l.Choice) == nil
}
