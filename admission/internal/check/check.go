package check

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/wording"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A rule returns why a stage is refused, or nil.
type rule func(*Checker, *Candidate) *decision.Refusal

// rules returns the checks in the order in which they are reported: problems that a user must fix come before those that time will solve.
func rules() []rule {
	return []rule{
		localQueueExists, clusterQueueIsActive, namespaceIsSelected,
		isSupported, isInPlan, flavorsExist, growthFitsLimits, PeakFitsLimits,
		jobSetStays, podsAreReady, isNotFarAhead, isNotBehind, quotaFits, checksAreFew, stateStaysSafe, delaysNone,
	}
}

// Check returns why a stage is not admitted, or nil. The stage uses no quota that is reserved for other stages. But a stage that stays within the
// quota of its own ClusterQueue neither evicts nor waits because of quota that other stages wait to borrow, or keep from borrowers.
func (ck *Checker) Check(l *Candidate) *decision.Refusal {
	if b := l.Stage.CoAdmissionGroup(); b != nil {
		return ck.checkTogether(l, b)
	}
	var refusal *decision.Refusal
	passes := ck.IgnoringOwnReservations(l, func() bool {
		refusal = ck.FirstRefusal(l)
		return refusal == nil
	})
	NoteWithheld(ck, l, refusal)
	if passes && !l.Preempts() || !mayBorrowNothing(ck, l) {
		return refusal
	}
	yielding, reservers := ck.borrowedPreemptReservations(l), ck.BorrowedPeaks(l)
	yielding = append(yielding, l.nominalReservers(yielding)...)
	if len(yielding)+len(reservers) == 0 {
		return refusal
	}
	again := ck.Candidate(l.Stage)
	again.yielding, again.Reservers = yielding, reservers
	if ck.IgnoringOwnReservations(again, func() bool { return ck.FirstRefusal(again) == nil && !ck.wouldBorrow(again) }) {
		*l = *again
		return nil
	}
	l.retryAt(again.RetryAt)
	l.delaysOtherwise = again.delays
	return refusal
}

// FirstRefusal returns the refusal of the first check that a candidate does not pass, or nil. A refused candidate has no victims.
func (ck *Checker) FirstRefusal(l *Candidate) *decision.Refusal {
	for _, rule := range rules() {
		if refusal := rule(ck, l); refusal != nil {
			l.Victims, l.awaits, l.atOnce = nil, false, nil
			refusal.Message += wording.MinimumRuntime(l.RetryAt)
			if l.Stage.CoAdmissionGroup() == nil {
				AddReservation(ck, l, refusal)
			}
			return refusal
		}
	}
	return nil
}

func localQueueExists(ck *Checker, l *Candidate) *decision.Refusal {
	const check = "LocalQueueExists"
	switch {
	case l.lq.Key.Name == "":
		return decision.Misconfigured(check, "names no LocalQueue")
	case !l.lq.Exists:
		return decision.Misconfigured(check, "there is no LocalQueue %s in namespace %s", l.lq.Key.Name, l.lq.Key.Namespace).
			InKueue("LocalQueue %s doesn't exist", l.lq.Key.Name)
	case l.lq.IsTerminating:
		return suspended("LocalQueueIsActive", "LocalQueue %s is being deleted", l.lq.Key.Name).
			InKueue("LocalQueue %s is inactive", l.lq.Key.Name)
	case l.lq.Stop != kueue.None:
		return suspended("LocalQueueIsActive", "LocalQueue %s is stopped by its spec.stopPolicy", l.lq.Key.Name).
			InKueue("LocalQueue %s is inactive", l.lq.Key.Name)
	}
	return nil
}

func clusterQueueIsActive(ck *Checker, l *Candidate) *decision.Refusal {
	if !l.Queue.Exists {
		return decision.Misconfigured("ClusterQueueExists", "there is no ClusterQueue %s, to which LocalQueue %s leads", l.Queue.Name, l.lq.Key.Name).
			InKueue("ClusterQueue %s doesn't exist", l.Queue.Name)
	}
	if l.Queue.IsUnprotected {
		return suspended("ClusterQueueIsActive", "ClusterQueue %s admits no quota Workloads until it has the finalizer %s", l.Queue.Name, kueue.ResourceInUseFinalizerName).
			InKueue("ClusterQueue %s is inactive", l.Queue.Name)
	}
	refuse := decision.Misconfigured
	a := ck.m.Activity(l.Queue)
	switch a.Reason {
	case kueue.ClusterQueueActiveReasonReady:
		return nil
	case kueue.ClusterQueueActiveReasonStopped, kueue.ClusterQueueActiveReasonTerminating:
		refuse = suspended
	}
	return refuse("ClusterQueueIsActive", "%s", a.Sentence(l.Queue.Name)).InKueue("ClusterQueue %s is inactive", l.Queue.Name)
}

func namespaceIsSelected(ck *Checker, l *Candidate) *decision.Refusal {
	if namespace, ok := ck.m.Namespaces[l.Stage.Key.Namespace]; ok && l.Queue.Selector.Matches(labels.Set(namespace)) {
		return nil
	}
	return decision.Misconfigured(decision.NamespaceSelected, "ClusterQueue %s does not admit from namespace %s: the labels of the namespace do not match spec.namespaceSelector",
		l.Queue.Name, l.Stage.Key.Namespace).InKueue("workload namespace doesn't match ClusterQueue selector")
}

func isSupported(ck *Checker, l *Candidate) *decision.Refusal {
	switch {
	case l.Stage.Unsupported != "":
		return decision.Misconfigured("IsSupported", "%s", l.Stage.Unsupported)
	case l.Stage.Demand.IsRejected:
		return decision.Misconfigured(decision.PodsAreValid, "%s", l.Stage.Demand.Problem)
	case l.Stage.Demand.Problem != "":
		return decision.Misconfigured("IsSupported", "%s", l.Stage.Demand.Problem)
	}
	return nil
}

func isInPlan(ck *Checker, l *Candidate) *decision.Refusal {
	switch {
	case l.JobSet == nil:
		return nil
	case l.Stage.Index < 0 || l.Stage.Index >= len(l.JobSet.Plan.Stages):
		return decision.Misconfigured("IsInPlan", "stage %d is not in the stage plan, which has %d stages", l.Stage.Index, len(l.JobSet.Plan.Stages))
	}
	if problem := problemAhead(l.JobSet); problem != "" {
		return decision.Misconfigured("IsInPlan", "the stage plan cannot be admitted: %s", problem)
	}
	return nil
}

func suspended(check, format string, args ...any) *decision.Refusal {
	return decision.NewRefusal(check, kueue.WorkloadQuotaReservedReasonSuspended, format, args...)
}

// problemAhead returns the problem of the first stage that has one and has still to be admitted, or nothing. A rule of an administrator for new
// pods does not apply to stages that have finished, or that hold quota.
func problemAhead(j *model.JobSet) string {
	if j.Problem == "" {
		return ""
	}
	isBehind := j.Finished()
	for _, s := range j.Members {
		if s.Index >= 0 && s.Index < len(isBehind) && !s.IsGrowth && s.Entry.IsCharged() {
			isBehind[s.Index] = true
		}
	}
	for i, demand := range j.Stages {
		if demand.Problem != "" && !isBehind[i] {
			return demand.Problem
		}
	}
	return ""
}

// flavorsExist computes the choices of flavors, and refuses a stage that can never be admitted.
func flavorsExist(ck *Checker, l *Candidate) *decision.Refusal {
	o := ck.m.Offer(l.Stage.Demand, l.Queue)
	switch {
	case o.Infeasibility == nil:
	case !o.Infeasibility.Oversized:
		return LackRefusal(l.Queue, o.Infeasibility)
	case ck.fitsInPart(l), ck.mayFitInPart(l):
		return nil
	default:
		return neverFits(ck.largest(l), oversize(l.Queue, o.Infeasibility))
	}
	l.Items = o.Items
	if l.Queue.WithinCapacity(o.First) || isWithinMost(l.Queue, o.Items) || ck.fitsInPart(l) || ck.mayFitInPart(l) {
		return nil
	}
	return neverFits(ck.largest(l), fmt.Sprintf("all pod sets together need %s in ClusterQueue %s", strings.Join(ck.AboveMost(l.Queue, o.First), " and "), l.Queue.Name))
}

// neverFits refuses a stage that is too large even if nothing were charged. The size that would fit comes before the amounts, which may be many.
func neverFits(advice, why string) *decision.Refusal {
	return decision.NewRefusal(WithinLimits, kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, "can never fit%s: %s", inBrackets(advice), why)
}

func inBrackets(advice string) string {
	if advice == "" {
		return ""
	}
	return " (" + advice + ")"
}

func oversize(q *model.ClusterQueue, infeasibility *flavor.Infeasibility) string {
	return fmt.Sprintf("pod set %s in ClusterQueue %s: %s", infeasibility.PodSet, q.Name, strings.Join(infeasibility.Objections, "; "))
}

// growthFitsLimits refuses a growth that would make a stage larger than its ClusterQueue could ever admit.
func growthFitsLimits(ck *Checker, l *Candidate) *decision.Refusal {
	if !l.Stage.IsGrowth || l.JobSet == nil || l.Items == nil {
		return nil
	}
	var above []string
	held := quota.Usage{}
	for _, s := range l.JobSet.Members {
		if s.Index == l.Stage.Index && s.Entry.IsCharged() && s.Entry.ClusterQueue == l.Queue {
			held.AddAll(s.Entry.Usage)
		}
	}
	for choice := range flavor.Choices(l.Items, flavor.MaxChoices) {
		together := held.Clone()
		together.AddAll(choice.Usage(l.Items))
		lacks := ck.AboveMost(l.Queue, together)
		if len(lacks) == 0 {
			return nil
		}
		if above == nil {
			above = lacks
		}
	}
	return decision.NewRefusal(WithinLimits, kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
		"the stage can never grow that much: with what it holds it would need %s in ClusterQueue %s", strings.Join(above, " and "), l.Queue.Name)
}

// LackRefusal refuses a stage for which no flavor can ever have enough.
func LackRefusal(q *model.ClusterQueue, infeasibility *flavor.Infeasibility) *decision.Refusal {
	switch {
	case infeasibility.Uncovered != "":
		return decision.NewRefusal("ResourcesAreCovered", kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
			"pod set %s asks for %s, for which ClusterQueue %s has no quota in any resource group", infeasibility.PodSet, infeasibility.Uncovered, q.Name)
	case infeasibility.Oversized:
		return neverFits("", oversize(q, infeasibility))
	}
	objections := infeasibility.Objections
	if len(objections) == 0 {
		objections = []string{"the resource group has no flavors"}
	}
	return decision.NewRefusal("FlavorMatches", kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
		"no flavor of ClusterQueue %s takes pod set %s: %s", q.Name, infeasibility.PodSet, strings.Join(objections, "; "))
}

// checksAreFew refuses a stage that has to pass more AdmissionChecks than the status of a quota Workload can list.
func checksAreFew(ck *Checker, l *Candidate) *decision.Refusal {
	const most = 8
	if len(l.Queue.Checks) <= most {
		return nil
	}
	a := l.Admission()
	if n := len(l.Queue.ChecksFor(&a)); n > most {
		return decision.Misconfigured("ChecksAreFew", "ClusterQueue %s asks for %d AdmissionChecks on these flavors, at most %d are possible: remove some from spec.admissionChecksStrategy",
			l.Queue.Name, n, most)
	}
	return nil
}

// jobSetStays refuses all stages of a JobSet that is being evicted: they would have to be evicted with the others.
func jobSetStays(ck *Checker, l *Candidate) *decision.Refusal {
	if l.JobSet == nil || !l.JobSet.IsLeaving() {
		return nil
	}
	return decision.NewRefusal("JobSetStays", kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads,
		"waits until the pods of its own %s, whose eviction is decided, have terminated", l.JobSet.Owner.Kind)
}

// isNotFarAhead keeps the number of JobSets small that have prepared all and wait for their accelerators. It blocks no other stage.
func isNotFarAhead(ck *Checker, l *Candidate) *decision.Refusal {
	ids, exceeds := ck.Ahead.Exceeds(l.Stage, l.Queue, l.JobSet)
	if !exceeds {
		return nil
	}
	for _, id := range append(ids, model.FewerAhead) {
		l.wait(id, anyNews)
	}
	return decision.NewRefusal("FewAreAhead", kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		"ClusterQueue %s already has as many JobSets that are prepared ahead as it may have (lookAhead.maxAhead: %d), and there are not enough free accelerators for them and this JobSet",
		l.Queue.Name, ck.m.Config.LookAhead.MaxAhead)
}

// podsAreReady lets one stage start at a time under BlockAdmission.
func podsAreReady(ck *Checker, l *Candidate) *decision.Refusal {
	if !ck.m.Config.BlockAdmission || ck.m.Unready == 0 {
		return nil
	}
	l.Effect = BlocksOthers
	l.wait(model.AllReady, 0)
	return decision.NewRefusal("PodsAreReady", kueue.WorkloadQuotaReservedReasonWaitingForPodsReady,
		"waits until all pods of the stages that are admitted already are ready (waitForPodsReady.blockAdmission)").
		InKueue("waiting for all admitted workloads to be in PodsReady condition")
}

// isNotBehind keeps stages in order under StrictFIFO. A stage that can never be admitted has been refused before, and blocks no other.
//
// Two kinds of stages are never blocked. A stage of a hold segment in progress passes (queue.Item.Passes): its JobSet releases its quota only
// when this stage has run, and the blocking stage may wait for that quota. Only JobSets that already hold quota have such stages, so that no
// stream of new JobSets can overtake. And no JobSet blocks another stage of its own.
func isNotBehind(ck *Checker, l *Candidate) *decision.Refusal {
	if s := l.preemptorInFront(); s != nil {
		return decision.NewRefusal(decision.StrictFIFO, kueue.WorkloadQuotaReservedReasonWaitingForQuota,
			"waits for %s, which preempts in ClusterQueue %s and may preempt this one (queueingStrategy StrictFIFO)", ck.NameFor(l.Stage, s), l.Queue.Name)
	}
	blocker := l.Queue.PendingQueue.Blocker(l.Stage.Element)
	if blocker == nil || blocker.Member.IsTogetherWith(l.Stage) || l.isOwnStage(blocker.Member) {
		return nil
	}
	l.Effect = WaitsBehind
	return decision.NewRefusal(decision.StrictFIFO, kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		"waits behind %s, which comes first in ClusterQueue %s (queueingStrategy StrictFIFO)", ck.NameFor(l.Stage, blocker.Member), l.Queue.Name)
}

// isOwnStage reports whether both stages belong to one JobSet. A growth comes after all stages, and is not one of them.
func (l *Candidate) isOwnStage(other *model.Stage) bool {
	return l.JobSet != nil && other.OwnerUID == l.Stage.OwnerUID && !l.Stage.IsGrowth
}
