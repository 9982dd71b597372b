package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// admit charges a stage that has passed all checks.
func (e *Engine) admit(l *candidate) Decision {
	e.lastDecision++
	e.chargeEpoch++
	id, s := e.lastDecision, l.s
	e.inFlight[id] = s.key
	admit := Admit{ID: id, Stage: s.key, UID: s.uid, Admission: l.admission()}
	admit.Checks = l.q.checksFor(&admit.Admission)
	s.assumed = &assignment{decision: id, clusterQueue: l.q, usage: l.usage, parts: l.parts(l.choice), isAdmitted: len(admit.Checks) == 0}
	if l.j != nil {
		admit.JobSet, admit.StageName = l.j.key.Name, l.j.plan.Stages[s.index].Name
	}
	behind := e.pledgedBehind(l)
	e.releaseReservation(s)
	s.reservedAt = e.now
	e.refresh(s)
	e.dropPreemptReservations(behind)
	e.dropPeaks(l)
	return admit
}

// parts divides the charge of a choice among the pod sets.
func (l *candidate) parts(choice flavor.Choice) []podSetCharge {
	parts := make([]podSetCharge, len(l.podSets))
	for i := range parts {
		parts[i].podSet = l.podSets[i].Name
	}
	for i := range l.items {
		parts[l.items[i].PodSet].usage.AddAll(l.items[i].Options[choice[i]].Usage)
	}
	return parts
}

// admission returns the status.admission for the choice.
func (l *candidate) admission() kueue.Admission {
	a := kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(l.q.name)}
	podSets := l.podSets
	a.PodSetAssignments = make([]kueue.PodSetAssignment, len(podSets))
	for i := range podSets {
		count := podSets[i].Count
		a.PodSetAssignments[i] = kueue.PodSetAssignment{Name: kueue.PodSetReference(podSets[i].Name), Count: &count}
	}
	for i := range l.items {
		item, assignment := &l.items[i], &a.PodSetAssignments[l.items[i].PodSet]
		if assignment.Flavors == nil && len(item.Requests) > 0 {
			assignment.Flavors = make(map[corev1.ResourceName]kueue.ResourceFlavorReference, len(item.Requests))
			assignment.ResourceUsage = make(corev1.ResourceList, len(item.Requests))
		}
		for _, r := range item.Requests {
			assignment.Flavors[r.Resource] = item.Options[l.choice[i]].Flavor
			assignment.ResourceUsage[r.Resource] = r.Amount.Quantity(r.Resource)
		}
	}
	return a
}

// refuse parks a stage and its equivalence class, and emits the refusal for those of which it is not the last one emitted.
func (e *Engine) refuse(l *candidate, refusal *Refusal, decisions []Decision) []Decision {
	if l.groupCandidate != nil {
		return e.sleepTogether(l, decisions)
	}
	return e.putToSleep(l, refusal, decisions)
}

func (e *Engine) putToSleep(l *candidate, refusal *Refusal, decisions []Decision) []Decision {
	if !l.preempts() && !e.keepNominal(l) {
		e.cancelReservation(l.s)
	}
	var toTell []*stage
	l.q.pendingQueue.Announce(l.s.element, refusal.news())
	switch l.effect {
	case waitsForChange:
		toTell = l.q.pendingQueue.Park(l.s.element, l.waits)
	case holdsUpOthers:
		toTell = l.q.pendingQueue.Block(l.s.element, l.waits)
	case waitsBehind:
		toTell = l.q.pendingQueue.ParkBehind(l.s.element)
	}
	for _, wait := range l.waits {
		l.q.cohortTree.sleep(l.q, wait.Topic)
	}
	if !slices.Contains(toTell, l.s) {
		toTell = append(toTell, l.s)
	}
	for _, s := range toTell {
		if !s.lastRefusal.saysTheSameAs(refusal) {
			e.addKueueMessage(l, refusal)
			s.lastRefusal = *refusal
			decisions = append(decisions, Refuse{Stage: s.key, UID: s.uid, Refusal: *refusal, podSets: s.demand.podSets})
		}
	}
	return decisions
}

// news returns the text whose change is announced to all. A stage that waits for quota is notified once: the missing amounts change with every
// admission.
func (r Refusal) news() string {
	if r.Reason == kueue.WorkloadQuotaReservedReasonWaitingForQuota {
		return r.Reason
	}
	return r.Message
}

// An effect is what a refusal means for the pending queue.
type effect int

const (
	waitsForChange effect = iota
	holdsUpOthers
	waitsBehind
)

// A candidate is a candidate: one stage being checked, with the results of the checks so far.
type candidate struct {
	s      *stage
	q      *clusterQueue
	lq     *localQueue
	j      *jobSet
	policy string

	podSets []flavor.PodSet
	items   []flavor.Item
	// choice is the combination of flavors that has been chosen, usage its usage, and level how far up that has to borrow.
	choice flavor.Choice
	usage  quota.Usage
	level  int
	// victims have to leave before there is quota for it; awaits is true if all victims are already being evicted.
	victims []preempt.Victim
	awaits  bool
	// yielding are stages in other queues whose preemption reservations do not count for it.
	yielding []*stage
	// reservers are JobSets in other ClusterQueues whose peak reservations do not count for it.
	reservers []*jobSet
	// groupCandidate is set for a member of a co-admission group.
	groupCandidate *groupCandidate
	// isShort is true if there is not enough quota for it, now or after preemption.
	isShort bool
	// searched is the last search for victims.
	searched *search

	// effect is what a refusal means, and waits are the changes that make another check worthwhile.
	effect effect
	waits  []queue.Wait[quota.ID]
}

// preempts reports whether victims have to leave first.
func (l *candidate) preempts() bool { return len(l.victims) > 0 || l.awaits }

func (e *Engine) candidate(s *stage) *candidate {
	q, j := s.queuedIn, e.jobSets[s.owner]
	l := &candidate{s: s, q: q, lq: s.localQueue, j: j, policy: e.policy(q, j), podSets: s.demand.podSets}
	if s.coAdmissionGroup() != nil && spare(l.podSets) > 0 {
		// A gang that does not fit whole reserves nothing.
		l.podSets = slices.Clone(l.podSets)
		for i := range l.podSets {
			l.podSets[i].Min = 0
		}
	}
	if s.coAdmissionGroup() == nil && s.element.Passes {
		l.yielding = l.keptNominal(nil)
	}
	return l
}

// hasPlan reports whether the JobSet has more than one stage.
func (l *candidate) hasPlan() bool { return l.j != nil && len(l.j.plan.Stages) > 1 }
