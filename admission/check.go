package admission

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// A rule returns why a stage is refused, or nil.
type rule func(*Engine, *candidate) *Refusal

// rules returns the checks in the order in which they are reported: problems that a user must fix come before those that time will solve.
func rules() []rule {
	return []rule{
		localQueueExists, clusterQueueIsActive, namespaceIsSelected,
		isSupported, isInPlan, flavorsExist, growthFitsLimits, peakFitsLimits,
		jobSetStays, podsAreReady, isNotBehind, quotaFits, checksAreFew, stateStaysSafe,
	}
}

// check returns why a stage is not admitted, or nil. The stage uses no quota that is reserved for other stages. But a stage that stays within the
// quota of its own ClusterQueue neither evicts nor waits because of quota that other stages wait to borrow, or keep from borrowers.
func (e *Engine) check(l *candidate) *Refusal {
	if b := l.s.coAdmissionGroup(); b != nil {
		return e.checkTogether(l, b)
	}
	refusal := e.ignoringOwnReservations(l, func() *Refusal { return e.firstRefusal(l) })
	if refusal == nil && !l.preempts() {
		return nil
	}
	yielding, reservers := e.borrowedPreemptReservations(l), e.borrowedPeaks(l)
	yielding = append(yielding, l.keptNominal(yielding)...)
	if len(yielding)+len(reservers) == 0 {
		return refusal
	}
	again := e.candidate(l.s)
	again.yielding, again.reservers = yielding, reservers
	var borrows bool
	if e.ignoringOwnReservations(again, func() *Refusal {
		refusal := e.firstRefusal(again)
		borrows = refusal == nil && e.wouldBorrow(again)
		return refusal
	}) == nil && !borrows {
		*l = *again
		return nil
	}
	return refusal
}

func (e *Engine) firstRefusal(l *candidate) *Refusal {
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

// namespaceSelected is the check that refuses stages of namespaces that a ClusterQueue does not select.
const namespaceSelected = "NamespaceIsSelected"

// podsAreValid is the check that refuses pods which the API server would not create.
const podsAreValid = "PodsAreValid"

// inKueue sets the message that Kueue has for a refusal.
func (r Refusal) inKueue(format string, args ...any) *Refusal {
	r.Kueue = fmt.Sprintf(format, args...)
	return &r
}

func localQueueExists(_ *Engine, l *candidate) *Refusal {
	const check = "LocalQueueExists"
	switch {
	case l.lq.key.Name == "":
		return misconfigured(check, "names no LocalQueue")
	case !l.lq.exists:
		return misconfigured(check, "there is no LocalQueue %s in namespace %s", l.lq.key.Name, l.lq.key.Namespace).
			inKueue("LocalQueue %s doesn't exist", l.lq.key.Name)
	case l.lq.stop != kueue.None:
		return suspended("LocalQueueIsActive", "LocalQueue %s is stopped by its spec.stopPolicy", l.lq.key.Name).
			inKueue("LocalQueue %s is inactive", l.lq.key.Name)
	}
	return nil
}

func clusterQueueIsActive(e *Engine, l *candidate) *Refusal {
	if !l.q.exists {
		return misconfigured("ClusterQueueExists", "there is no ClusterQueue %s, to which LocalQueue %s leads", l.q.name, l.lq.key.Name).
			inKueue("ClusterQueue %s doesn't exist", l.q.name)
	}
	if l.q.isUnprotected {
		return suspended("ClusterQueueIsActive", "ClusterQueue %s admits no quota Workloads until it has the finalizer %s", l.q.name, kueue.ResourceInUseFinalizerName).
			inKueue("ClusterQueue %s is inactive", l.q.name)
	}
	refuse := misconfigured
	a := e.activity(l.q)
	switch a.Reason {
	case kueue.ClusterQueueActiveReasonReady:
		return nil
	case kueue.ClusterQueueActiveReasonStopped, kueue.ClusterQueueActiveReasonTerminating:
		refuse = suspended
	}
	return refuse("ClusterQueueIsActive", "ClusterQueue %s: %s", l.q.name, a.Message).inKueue("ClusterQueue %s is inactive", l.q.name)
}

func namespaceIsSelected(e *Engine, l *candidate) *Refusal {
	if namespace, ok := e.namespaces[l.s.key.Namespace]; ok && l.q.selector.Matches(labels.Set(namespace)) {
		return nil
	}
	return misconfigured(namespaceSelected, "ClusterQueue %s does not admit from namespace %s: the labels of the namespace do not match spec.namespaceSelector",
		l.q.name, l.s.key.Namespace).inKueue("workload namespace doesn't match ClusterQueue selector")
}

func isSupported(_ *Engine, l *candidate) *Refusal {
	switch {
	case l.s.unsupported != "":
		return misconfigured("IsSupported", "%s", l.s.unsupported)
	case l.s.demand.isRejected:
		return misconfigured(podsAreValid, "%s", l.s.demand.problem)
	case l.s.demand.problem != "":
		return misconfigured("IsSupported", "%s", l.s.demand.problem)
	}
	return nil
}

func isInPlan(_ *Engine, l *candidate) *Refusal {
	switch {
	case l.j == nil:
		return nil
	case l.s.index < 0 || l.s.index >= len(l.j.plan.Stages):
		return misconfigured("IsInPlan", "stage %d is not in the stage plan, which has %d stages", l.s.index, len(l.j.plan.Stages))
	}
	if problem := l.j.problemAhead(); problem != "" {
		return misconfigured("IsInPlan", "the stage plan cannot be admitted: %s", problem)
	}
	return nil
}

// problemAhead returns the problem of the first stage that has one and has still to be admitted, or nothing. A rule of an administrator for new
// pods does not apply to stages that have finished, or that hold quota.
func (j *jobSet) problemAhead() string {
	if j.problem == "" {
		return ""
	}
	isBehind := j.finished()
	for _, s := range j.members {
		if s.index >= 0 && s.index < len(isBehind) && !s.isGrowth && s.entry.isCharged() {
			isBehind[s.index] = true
		}
	}
	for i, demand := range j.stages {
		if demand.problem != "" && !isBehind[i] {
			return demand.problem
		}
	}
	return ""
}

// flavorsExist computes the choices of flavors, and refuses a stage that can never be admitted.
func flavorsExist(e *Engine, l *candidate) *Refusal {
	o := e.offer(l.s.demand, l.q)
	if o.infeasibility != nil {
		if o.infeasibility.Oversized && (e.fitsInPart(l) || e.mayFitInPart(l)) {
			return nil
		}
		refusal := lackRefusal(l.q, o.infeasibility)
		if o.infeasibility.Oversized {
			refusal = neverFits(e.largest(l), oversize(l.q, o.infeasibility))
		}
		return refusal
	}
	l.items = o.items
	if l.q.withinCapacity(o.first) || l.q.isWithinMost(o.items) || e.fitsInPart(l) || e.mayFitInPart(l) {
		return nil
	}
	return neverFits(e.largest(l), fmt.Sprintf("all pod sets together need %s in ClusterQueue %s", strings.Join(e.aboveMost(l.q, o.first), " and "), l.q.name))
}

// neverFits refuses a stage that is too large even if nothing were charged. The size that would fit comes before the amounts, which may be many.
func neverFits(advice, why string) *Refusal {
	return &Refusal{
		Check: withinLimits, Reason: kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, Message: fmt.Sprintf("can never fit%s: %s", inBrackets(advice), why),
	}
}

func inBrackets(advice string) string {
	if advice == "" {
		return ""
	}
	return " (" + advice + ")"
}

func oversize(q *clusterQueue, infeasibility *flavor.Infeasibility) string {
	return fmt.Sprintf("pod set %s in ClusterQueue %s: %s", infeasibility.PodSet, q.name, strings.Join(infeasibility.Objections, "; "))
}

// growthFitsLimits refuses a growth that would make a stage larger than its ClusterQueue could ever admit.
func growthFitsLimits(e *Engine, l *candidate) *Refusal {
	if !l.s.isGrowth || l.j == nil || l.items == nil {
		return nil
	}
	var above []string
	held := quota.Usage{}
	for _, s := range l.j.members {
		if s.index == l.s.index && s.entry.isCharged() && s.entry.clusterQueue == l.q {
			held.AddAll(s.entry.usage)
		}
	}
	for choice := range flavor.Choices(l.items, flavor.MaxChoices) {
		together := held.Clone()
		together.AddAll(choice.Usage(l.items))
		lacks := e.aboveMost(l.q, together)
		if len(lacks) == 0 {
			return nil
		}
		if above == nil {
			above = lacks
		}
	}
	return &Refusal{
		Check: withinLimits, Reason: kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
		Message: fmt.Sprintf("the stage can never grow that much: with what it holds it would need %s in ClusterQueue %s", strings.Join(above, " and "), l.q.name),
	}
}

// isWithinMost reports whether some combination of flavors is within the capacity of the ClusterQueue.
func (q *clusterQueue) isWithinMost(items []flavor.Item) bool {
	for choice := range flavor.Choices(items, flavor.MaxChoices) {
		if q.withinCapacity(choice.Usage(items)) {
			return true
		}
	}
	return false
}

// withinCapacity reports whether a usage is within the capacity of the ClusterQueue.
func (q *clusterQueue) withinCapacity(usage quota.Usage) bool {
	return !slices.ContainsFunc(usage, func(c quota.Charge) bool { return c.Amount > q.node.Capacity(c.ID) })
}

// aboveMost returns which amounts of a usage exceed the capacity of the ClusterQueue.
func (e *Engine) aboveMost(q *clusterQueue, usage quota.Usage) []string {
	if q.withinCapacity(usage) {
		return nil
	}
	var above []string
	for fr, a := range e.tree.Index.ByName(usage) {
		if most := q.node.Capacity(e.tree.Index.ID(fr)); a > most {
			above = append(above, fmt.Sprintf("%s %s of flavor %s, of which the quota is %s", a.Format(fr.Resource), fr.Resource, fr.Flavor, most.Format(fr.Resource)))
		}
	}
	return above
}

func lackRefusal(q *clusterQueue, infeasibility *flavor.Infeasibility) *Refusal {
	switch {
	case infeasibility.Uncovered != "":
		return &Refusal{
			Check: "ResourcesAreCovered", Reason: kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
			Message: fmt.Sprintf("pod set %s asks for %s, for which ClusterQueue %s has no quota in any resource group", infeasibility.PodSet, infeasibility.Uncovered, q.name),
		}
	case infeasibility.Oversized:
		return neverFits("", oversize(q, infeasibility))
	}
	objections := infeasibility.Objections
	if len(objections) == 0 {
		objections = []string{"the resource group has no flavors"}
	}
	return &Refusal{
		Check: "FlavorMatches", Reason: kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
		Message: fmt.Sprintf("no flavor of ClusterQueue %s takes pod set %s: %s", q.name, infeasibility.PodSet, strings.Join(objections, "; ")),
	}
}

// checksAreFew refuses a stage that has to pass more AdmissionChecks than the status of a quota Workload can list.
func checksAreFew(_ *Engine, l *candidate) *Refusal {
	const most = 8
	if len(l.q.checks) <= most {
		return nil
	}
	a := l.admission()
	if n := len(l.q.checksFor(&a)); n > most {
		return misconfigured("ChecksAreFew", "ClusterQueue %s asks for %d AdmissionChecks on these flavors, at most %d are possible: remove some from spec.admissionChecksStrategy",
			l.q.name, n, most)
	}
	return nil
}

// jobSetStays refuses all stages of a JobSet that is being evicted: they would have to be evicted with the others.
func jobSetStays(_ *Engine, l *candidate) *Refusal {
	if l.j == nil || !l.j.isLeaving() {
		return nil
	}
	return &Refusal{
		Check: "JobSetStays", Reason: kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads,
		Message: "waits until the pods of its own JobSet, which is evicted, have ended",
	}
}

// podsAreReady lets one stage start at a time under BlockAdmission.
func podsAreReady(e *Engine, l *candidate) *Refusal {
	if !e.config.BlockAdmission || e.unready == 0 {
		return nil
	}
	l.effect = holdsUpOthers
	l.waits = append(l.waits, queue.Wait[quota.ID]{Topic: allReady})
	return &Refusal{
		Check: "PodsAreReady", Reason: kueue.WorkloadQuotaReservedReasonWaitingForPodsReady,
		Message: "waits until all pods of the stages that are admitted already are ready (waitForPodsReady.blockAdmission)",
		Kueue:   "waiting for all admitted workloads to be in PodsReady condition",
	}
}

// isNotBehind keeps stages in order under StrictFIFO. A stage that can never be admitted has been refused before, and blocks no other.
//
// Two kinds of stages are never blocked. A stage of a hold segment in progress passes (queue.Item.Passes): its JobSet releases its quota only
// when this stage has run, and the blocking stage may wait for that quota. Only JobSets that already hold quota have such stages, so that no
// stream of new JobSets can overtake. And no JobSet blocks another stage of its own.
func isNotBehind(e *Engine, l *candidate) *Refusal {
	blocker := l.q.pendingQueue.Blocker(l.s.element)
	if blocker == nil || blocker.Member.isTogetherWith(l.s) || l.isOwnStage(blocker.Member) {
		return nil
	}
	l.effect = waitsBehind
	return &Refusal{
		Check: strictFIFO, Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		Message: fmt.Sprintf("waits behind %s, which comes first in ClusterQueue %s (queueingStrategy StrictFIFO)", e.nameFor(l.s, blocker.Member), l.q.name),
	}
}

// isOwnStage reports whether both stages belong to one JobSet. A growth comes after all stages, and is not one of them.
func (l *candidate) isOwnStage(other *stage) bool {
	return l.j != nil && other.owner == l.s.owner && !l.s.isGrowth
}

// nameFor returns the name of another stage for the owner of a stage. Objects of other namespaces are not disclosed.
func (e *Engine) nameFor(reader, other *stage) string {
	j := e.jobSets[other.owner]
	isJobSet := other.ofJobSet && j != nil && j.isKnown()
	switch isForeign := other.key.Namespace != reader.key.Namespace; {
	case isJobSet && isForeign:
		return "a JobSet of another namespace"
	case isForeign:
		return "a quota Workload of another namespace"
	case isJobSet && len(j.plan.Stages) > 1 && other.index >= 0 && other.index < len(j.plan.Stages):
		return fmt.Sprintf("stage %q of JobSet %q", j.plan.Stages[other.index].Name, j.key.Name)
	case isJobSet:
		return fmt.Sprintf("JobSet %q", j.key.Name)
	}
	return fmt.Sprintf("quota Workload %q", other.key.Name)
}
