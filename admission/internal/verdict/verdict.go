// Package verdict judges stages in cohort trees where another engine admits.
package verdict

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/queue"
)

// In a cohort tree that another engine leads, this one answers two questions. Whether a stage may open is asked before the other engine may reserve
// quota for it: would the JobSets that hold quota still be able to finish? Because the other engine may admit others in between, each reservation is
// judged as well, one after the other: until then it does not count as held.

// A Judge answers them.
type Judge struct{ *check.Checker }

// MayOpen returns why a stage of a JobSet must not open yet in the ClusterQueue of its LocalQueue, or nil. If it must not, the JobSet is kept until it may be different.
func (ck Judge) MayOpen(j *model.JobSet, stage int, lq *model.LocalQueue, q *model.ClusterQueue) *decision.Refusal {
	l := &check.Candidate{Stage: &model.Stage{Index: stage, OwnerUID: j.UID, Demand: j.Stages[stage], LocalQueue: lq}, Queue: q, JobSet: j, Policy: ck.Model.Policy(q, j)}
	l.PodSets = l.Stage.Demand.PodSets
	if !l.HasPlan() || l.Policy == settings.Greedy || j.IsLeaving() {
		return nil
	}
	ck.forgetRejections(j)
	refusal := ck.protect(l)
	if refusal == nil {
		refusal = ck.mayOpen(l)
	}
	if refusal != nil {
		ck.keepUnopened(l)
	}
	return refusal
}

// protect refuses the first stage of a JobSet that could deadlock whatever is answered later.
func (ck Judge) protect(l *check.Candidate) *decision.Refusal {
	if l.JobSet.ClaimQueue != nil || !l.JobSet.Plan.HoldsAndWaits() {
		return nil
	}
	if why := ck.Unprotected(l.JobSet, l.Queue); why != "" {
		return decision.Misconfigured(check.StageUnsafe, "the JobSet would hold quota while it waits for more, and could deadlock: %s", why)
	}
	return nil
}

func (ck Judge) mayOpen(l *check.Candidate) *decision.Refusal {
	if refusal := check.PeakFitsLimits(ck.Checker, l); refusal != nil {
		return refusal
	}
	if refusal, isRejected := l.JobSet.Rejected[l.Stage.Index]; isRejected {
		return &refusal
	}
	o := ck.Model.Offer(l.Stage.Demand, l.Queue)
	if o.Infeasibility != nil {
		return nil // the other engine reports that
	}
	l.Items = o.Items
	before := ck.Model.Progress(l.JobSet, l.Queue)
	assumeSucceeded(l.JobSet, before, l.Stage.Index)
	var first *decision.Refusal
	for choice := range flavor.Choices(l.Items, flavor.MaxChoices) {
		refusal := ck.unsafeAfter(l, before, l.Admitted(before, choice), choice.Usage(l.Items))
		if refusal == nil {
			return nil
		}
		if first == nil {
			first = refusal
		}
	}
	return first
}

// Knows reports whether all these AdmissionChecks are known to apply this manager's judgement to a ClusterQueue.
func (ck Judge) Knows(q *model.ClusterQueue, checks []kueue.AdmissionCheckReference) bool {
	rules := q.SafetyChecks(ck.Model.Checks)
	for _, name := range checks {
		if !slices.ContainsFunc(rules, func(rule kueue.AdmissionCheckStrategyRule) bool { return rule.Name == name }) {
			return false
		}
	}
	return true
}

// Judge returns why a reservation of another engine is not safe, or nil. Then it counts as held.
func (ck Judge) Judge(s *model.Stage, j *model.JobSet) *decision.Refusal {
	ck.Disapprove(s)
	q := s.Entry.ClusterQueue
	l := &check.Candidate{Stage: s, Queue: q, JobSet: j, Policy: ck.Model.Policy(q, j), PodSets: s.Demand.PodSets}
	if l.HasPlan() && l.Policy != settings.Greedy && s.Entry.IsUnjudged {
		before := ck.Model.Progress(j, q)
		assumeSucceeded(j, before, s.Index)
		after := before.With(j.UsageByHold(s.Index, s.Entry.Usage, s.Reservation.Parts))
		if refusal := ck.unsafeAfter(l, before, after, nil); refusal != nil {
			ck.reject(l, refusal)
			return refusal
		}
	}
	ck.Approve(s)
	return nil
}

// reject keeps the stage from being opened again before something changes: the other engine would choose the same quota.
func (ck Judge) reject(l *check.Candidate, refusal *decision.Refusal) {
	ck.forgetRejections(l.JobSet)
	if l.JobSet.Rejected == nil {
		l.JobSet.Rejected = map[int]decision.Refusal{}
	}
	l.JobSet.Rejected[l.Stage.Index] = *refusal
	ck.keepUnopened(l)
}

// forgetRejections forgets which stages were rejected if the JobSet has been woken since.
func (ck Judge) forgetRejections(j *model.JobSet) {
	if !ck.Model.Schedule.Unopened.Keeps(j) {
		j.Rejected = nil
	}
}

// unsafeAfter returns why the state after a stage has got quota is not safe, or nil. usage is what has to be free for the stage itself, or nothing
// if it is charged already.
func (ck Judge) unsafeAfter(l *check.Candidate, before, after *safety.Progress, usage quota.Usage) *decision.Refusal {
	if len(after.Ahead()) == 0 {
		return nil // the JobSet releases all its quota without asking for more
	}
	if blocked := ck.Model.Bank.Blocked(l.Claim(after), ck.Leavers(l)); len(blocked) > 0 {
		return ck.wouldDeadlock(l, blocked, usage)
	}
	if l.Policy != settings.Reserve {
		return nil
	}
	held := before.HeldNow()
	if usage == nil {
		held = after.HeldNow()
	}
	var lacks []string
	for i, peak := range after.Peaks() {
		short := ck.Lacks(l, peak.Without(held))
		if len(short) == 0 {
			return nil
		}
		if i == 0 {
			lacks = short
		}
	}
	return decision.NewRefusal(check.PeakFits, kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		"waits for quota in ClusterQueue %s: this stage and the stages that may hold quota at the same time need %s (policy Reserve)%s",
		l.Queue.Name, strings.Join(lacks, " and "), l.Overruled())
}

// wouldDeadlock names the JobSets that would wait for each other.
func (ck Judge) wouldDeadlock(l *check.Candidate, blocked []*safety.Claim, usage quota.Usage) *decision.Refusal {
	with := ""
	if others := ck.Others(l.JobSet.Owner, blocked); len(others) > 0 {
		with = " and " + strings.Join(others, ", ")
	}
	return &decision.Refusal{Check: check.StageUnsafe, Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota, Message: fmt.Sprintf(
		"stage %q with quota of ClusterQueue %s could deadlock this %s%s on quota for later stages: %s%s",
		l.JobSet.Plan.Stages[l.Stage.Index].Name, l.Queue.Name, l.JobSet.Owner.Kind, with, ck.LeftFor(l.Queue, blocked, usage), l.Overruled())}
}

// Unprotected returns why stages of a JobSet in a ClusterQueue of another engine could deadlock whatever this one answers, or nothing.
func (ck Judge) Unprotected(j *model.JobSet, q *model.ClusterQueue) string {
	switch {
	case ck.Model.Policy(q, j) == settings.Greedy:
	case !q.IsJudged(ck.Model.Checks):
		return fmt.Sprintf("ClusterQueue %s has no AdmissionCheck with controllerName %s for all of its flavors: add one to spec.admissionChecksStrategy",
			q.Name, apis.StageSafetyController)
	case q.Strategy == queue.Strict:
		return fmt.Sprintf("queueingStrategy StrictFIFO of ClusterQueue %s could keep a later stage behind a quota Workload that waits for its JobSet: "+
			"set queueingStrategy: BestEffortFIFO", q.Name)
	}
	return ""
}

// Approve counts a reservation as held by its JobSet.
func (ck Judge) Approve(s *model.Stage) {
	s.IsApproved, s.ApprovedAt = true, s.ReservedAt
	ck.Model.Refresh(s)
}

// Disapprove undoes Approve, unless an observation has confirmed it.
func (ck Judge) Disapprove(s *model.Stage) {
	if s.IsApproved {
		s.IsApproved = false
		ck.Model.Refresh(s)
	}
}

// keepUnopened makes Woken return the JobSet of a candidate once a claim becomes smaller, quota that the candidate waits for is released, or its
// LocalQueue changes.
func (ck Judge) keepUnopened(l *check.Candidate) {
	tree := l.Queue.CohortTree
	topics := []model.OpeningTopic{{Tree: tree, ID: model.AnyClaim}, {LocalQueue: l.Stage.LocalQueue.Key}}
	for _, wait := range l.Waits {
		topics = append(topics, model.OpeningTopic{Tree: tree, ID: wait.Topic})
	}
	ck.Model.Schedule.Unopened.Keep(l.JobSet, topics...)
}

// AwaitQueue makes Woken return a JobSet once its LocalQueue or any ClusterQueue changes.
func (ck Judge) AwaitQueue(j *model.JobSet, localQueue types.NamespacedName) {
	ck.Model.Schedule.Unopened.Keep(j, model.OpeningTopic{LocalQueue: localQueue})
}

// Woken returns the owners of the JobSets that have been woken since the last call.
func (ck Judge) Woken() []decision.Owner {
	var owners []decision.Owner
	for j := range ck.Model.Schedule.Unopened.Woken() {
		owners = append(owners, j.Owner)
	}
	slices.SortFunc(owners, decision.Owner.Compare)
	return owners
}

// assumeSucceeded marks the Holds as finished that must have succeeded for a stage to open: their quota Workloads may not say so yet.
func assumeSucceeded(j *model.JobSet, c *safety.Progress, stage int) {
	for _, condition := range j.Plan.Stages[stage].After {
		if condition.Status != stageplan.Succeeded {
			continue
		}
		runs := map[int]bool{}
		for i, p := range j.Plan.Stages[condition.Stage].PodSets {
			h := j.PlanGraph.HoldOf(condition.Stage, i)
			runs[h] = runs[h] || !slices.Contains(condition.Targets, p.Name)
		}
		for h, isRunning := range runs {
			if !isRunning {
				c.Held[h], c.Finished[h] = nil, true
			}
		}
	}
}
