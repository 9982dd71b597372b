package admission

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A rule says no to a stage, or finds nothing against it.
type rule func(*Engine, *look) *Refusal

// rules in the order in which an owner should hear of them: what somebody must repair comes before what time will solve.
func rules() []rule {
	return []rule{
		localQueueExists, clusterQueueIsActive, namespaceIsSelected,
		isSupported, isInPlan, flavorsExist, peakFitsLimits,
		isNotBehind, quotaFits, stateStaysSafe,
	}
}

func (e *Engine) check(l *look) *Refusal {
	for _, rule := range rules() {
		if refusal := rule(e, l); refusal != nil {
			return refusal
		}
	}
	return nil
}

func misconfigured(check, format string, args ...any) *Refusal {
	return &Refusal{Check: check, Reason: kueue.WorkloadQuotaReservedReasonMisconfigured, Message: fmt.Sprintf(format, args...)}
}

func suspended(check, format string, args ...any) *Refusal {
	return &Refusal{Check: check, Reason: kueue.WorkloadQuotaReservedReasonSuspended, Message: fmt.Sprintf(format, args...)}
}

func localQueueExists(_ *Engine, l *look) *Refusal {
	const check = "LocalQueueExists"
	switch {
	case l.s.localQueue.Name == "":
		return misconfigured(check, "names no LocalQueue")
	case !l.lq.exists:
		return misconfigured(check, "there is no LocalQueue %s in namespace %s", l.s.localQueue.Name, l.s.localQueue.Namespace)
	case l.lq.isStopped:
		return suspended("LocalQueueIsActive", "LocalQueue %s is stopped by its spec.stopPolicy", l.s.localQueue.Name)
	}
	return nil
}

func clusterQueueIsActive(_ *Engine, l *look) *Refusal {
	if !l.q.exists {
		return misconfigured("ClusterQueueExists", "there is no ClusterQueue %s, to which LocalQueue %s leads", l.q.name, l.lq.key.Name)
	}
	switch a := l.q.activity(); a.Reason {
	case kueue.ClusterQueueActiveReasonReady:
		return nil
	case kueue.ClusterQueueActiveReasonStopped, kueue.ClusterQueueActiveReasonTerminating:
		return suspended("ClusterQueueIsActive", "ClusterQueue %s: %s", l.q.name, a.Message)
	default:
		return misconfigured("ClusterQueueIsActive", "ClusterQueue %s: %s", l.q.name, a.Message)
	}
}

func namespaceIsSelected(e *Engine, l *look) *Refusal {
	if namespace, ok := e.namespaces[l.s.key.Namespace]; ok && l.q.selector.Matches(labels.Set(namespace)) {
		return nil
	}
	return misconfigured("NamespaceIsSelected", "ClusterQueue %s does not admit from namespace %s: the labels of the namespace do not match spec.namespaceSelector",
		l.q.name, l.s.key.Namespace)
}

func isSupported(_ *Engine, l *look) *Refusal {
	if l.s.problem != "" {
		return misconfigured("IsSupported", "%s", l.s.problem)
	}
	return nil
}

func isInPlan(_ *Engine, l *look) *Refusal {
	switch {
	case l.j == nil:
		return nil
	case l.s.index < 0 || l.s.index >= len(l.j.plan.Stages):
		return misconfigured("IsInPlan", "stage %d is not in the stage plan, which has %d stages", l.s.index, len(l.j.plan.Stages))
	case l.j.problem != "":
		return misconfigured("IsInPlan", "the stage plan cannot be admitted: %s", l.j.problem)
	}
	return nil
}

// flavorsExist finds the choices of flavors, and refuses what can never be admitted.
func flavorsExist(e *Engine, l *look) *Refusal {
	items, lack := e.items(&l.s.options, l.q, l.s.podSets)
	if lack != nil {
		return lackRefusal(l.q, lack)
	}
	l.items = items
	for choice := range flavor.Choices(items, flavor.MaxChoices) {
		usage := choice.Usage(items)
		within := true
		for fr, a := range usage {
			within = within && a <= e.tree.Limit(l.q.name, fr)
		}
		if within {
			return nil
		}
	}
	first := make(flavor.Choice, len(items))
	for fr, a := range first.Usage(items).Sorted() {
		if limit := e.tree.Limit(l.q.name, fr); a > limit {
			return &Refusal{
				Check: "WithinLimits", Reason: kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
				Message: fmt.Sprintf("can never fit: all pod sets together need %s %s of flavor %s, of which the quota of ClusterQueue %s is %s",
					a.Format(fr.Resource), fr.Resource, fr.Flavor, l.q.name, limit.Format(fr.Resource)),
			}
		}
	}
	return nil
}

func lackRefusal(q *clusterQueue, lack *flavor.Lack) *Refusal {
	switch {
	case lack.Uncovered != "":
		return &Refusal{
			Check: "ResourcesAreCovered", Reason: kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
			Message: fmt.Sprintf("pod set %s asks for %s, for which ClusterQueue %s has no quota in any resource group", lack.PodSet, lack.Uncovered, q.name),
		}
	case lack.Oversized:
		return &Refusal{
			Check: "WithinLimits", Reason: kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
			Message: fmt.Sprintf("can never fit: pod set %s in ClusterQueue %s: %s", lack.PodSet, q.name, strings.Join(lack.Objections, "; ")),
		}
	}
	objections := lack.Objections
	if len(objections) == 0 {
		objections = []string{"the resource group has no flavors"}
	}
	return &Refusal{
		Check: "FlavorMatches", Reason: kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
		Message: fmt.Sprintf("no flavor of ClusterQueue %s takes pod set %s: %s", q.name, lack.PodSet, strings.Join(objections, "; ")),
	}
}

// isNotBehind keeps New stages in order under StrictFIFO. What can never be admitted has been refused before and holds up nobody.
func isNotBehind(e *Engine, l *look) *Refusal {
	blocker, ok := l.q.line.Blocker(e.item(l.s, l.j))
	if !ok {
		return nil
	}
	l.effect = waitsBehind
	return &Refusal{
		Check: "StrictFIFO", Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		Message: fmt.Sprintf("waits behind %s, which comes first in ClusterQueue %s (queueingStrategy StrictFIFO)", blocker.Key, l.q.name),
	}
}

// quotaFits keeps the choices for which there is quota now.
func quotaFits(e *Engine, l *look) *Refusal {
	var short []string
	e.asIfNothingWereKept(l, func() {
		for choice := range flavor.Choices(l.items, flavor.MaxChoices) {
			lacks := e.lacks(l, choice.Usage(l.items))
			if len(lacks) == 0 {
				l.fitting = append(l.fitting, slices.Clone(choice))
			} else if text := strings.Join(lacks, " and "); !slices.Contains(short, text) {
				short = append(short, text)
			}
		}
	})
	if len(l.fitting) > 0 {
		return nil
	}
	l.effect = holdsUpOthers
	const most = 4
	if len(short) > most {
		short = append(short[:most], "or one of the other combinations of flavors")
	}
	return &Refusal{
		Check: "QuotaFits", Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		Message: fmt.Sprintf("waits for quota in ClusterQueue %s: needs %s", l.q.name, strings.Join(short, ", or ")),
	}
}

// asIfNothingWereKept runs f with the quota that is kept for the stage's own JobSet set free.
func (e *Engine) asIfNothingWereKept(l *look, f func()) {
	e.tree.WhatIf(func() bool {
		if l.j != nil && l.j.home == l.q {
			e.tree.Unkeep(l.q.name, l.j.kept)
		}
		f()
		return true
	})
}

// lacks says what of a usage is short, and notes it as what to wait for.
func (e *Engine) lacks(l *look, usage quota.Usage) []string {
	if e.tree.Fits(l.q.name, usage) {
		return nil
	}
	var lacks []string
	for fr, a := range usage.Sorted() {
		free := e.tree.Available(l.q.name, fr)
		if a == 0 || a <= free {
			continue
		}
		if !slices.Contains(l.topics, fr) {
			l.topics = append(l.topics, fr)
		}
		text := fmt.Sprintf("%s %s of flavor %s: %s of %s free", a.Format(fr.Resource), fr.Resource, fr.Flavor,
			max(free, 0).Format(fr.Resource), e.tree.Limit(l.q.name, fr).Format(fr.Resource))
		if kept := e.tree.Kept(l.q.name, fr); kept > 0 {
			text += fmt.Sprintf(" (%s kept for stages to come)", kept.Format(fr.Resource))
		}
		lacks = append(lacks, text)
	}
	return lacks
}
