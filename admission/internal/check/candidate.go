package check

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/queue"
)

// An Effect is what a refusal means for the pending queue.
type Effect int

// The effects of a refusal.
const (
	WaitsForChange Effect = iota
	BlocksOthers
	WaitsBehind
)

// A Candidate is a candidate: one stage being checked, with the results of the checks so far.
type Candidate struct {
	Stage  *model.Stage
	Queue  *model.ClusterQueue
	lq     *model.LocalQueue
	JobSet *model.JobSet
	// Policy is the stage-admission policy by which the stage is admitted.
	Policy string

	PodSets []flavor.PodSet
	Items   []flavor.Item
	// Choice is the combination of flavors that has been chosen, Usage its usage, and Level how far up that has to borrow.
	Choice flavor.Choice
	Usage  quota.Usage
	Level  int
	// Victims have to leave before there is quota for it; awaits is true if all victims are already being evicted.
	Victims []preempt.Victim
	awaits  bool
	// atOnce is what the victims release quota for, if that is more than Usage.
	atOnce quota.Usage
	// yielding are stages in other queues whose preemption reservations do not count for it.
	yielding []*model.Stage
	// Reservers are JobSets in other ClusterQueues whose peak reservations do not count for it.
	Reservers []*model.JobSet
	// GroupCandidate is set for a member of a co-admission group.
	GroupCandidate *GroupCandidate
	// awaitsQuota is true if it waits until quota is released, for itself or for later stages.
	awaitsQuota bool
	// DueAt is when the stage is due, and reserves is true if quota is reserved for the first due stage of its ClusterQueue; IsDue is true if it is that one.
	DueAt           time.Time
	reserves, IsDue bool
	// isWithheld is true if nothing is reserved for it although it is due, because lenders use what it would have to borrow.
	isWithheld bool
	// delays is true if it would delay a due stage, and delaysOtherwise if it would if it borrowed nothing, so that reservations of others yield.
	delays, delaysOtherwise bool
	// mayBeDeadlocked is MayBeDeadlocked.
	mayBeDeadlocked bool
	// searched is the last search for victims.
	searched *search
	// RetryAt is when the next stage that it may preempt has run for its minimum runtime. It is zero if there is none.
	RetryAt time.Time

	// Effect is what a refusal means, and Waits are the changes that make another check worthwhile.
	Effect Effect
	Waits  []queue.Wait[quota.ID]
}

// Overruled returns a remark if a JobSet asks for a laxer policy than the one by which it is admitted, and nothing otherwise. A gang asks for none.
func (l *Candidate) Overruled() string {
	j := l.JobSet
	if j == nil || j.Owner.Kind != decision.JobSetOwner {
		return ""
	}
	if asked := settings.Strictness(j.Policy); asked < 0 || asked >= settings.Strictness(l.Policy) {
		return ""
	}
	return fmt.Sprintf("; its annotation %s is %s, but policy %s of ClusterQueue %s is stricter and stands",
		apis.StageAdmissionAnnotation, j.Policy, l.Policy, l.Queue.Name)
}

// Parts divides the charge of a choice among the pod sets.
func (l *Candidate) Parts(choice flavor.Choice) []model.PodSetCharge {
	parts := make([]model.PodSetCharge, len(l.PodSets))
	for i := range parts {
		parts[i].PodSet = l.PodSets[i].Name
	}
	for i := range l.Items {
		parts[l.Items[i].PodSet].Usage.AddAll(l.Items[i].Options[choice[i]].Usage)
	}
	return parts
}

// Admission returns the status.admission for the choice.
func (l *Candidate) Admission() kueue.Admission {
	a := kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(l.Queue.Name)}
	podSets := l.PodSets
	a.PodSetAssignments = make([]kueue.PodSetAssignment, len(podSets))
	for i := range podSets {
		count := podSets[i].Count
		a.PodSetAssignments[i] = kueue.PodSetAssignment{Name: kueue.PodSetReference(podSets[i].Name), Count: &count}
	}
	for i := range l.Items {
		item, assignment := &l.Items[i], &a.PodSetAssignments[l.Items[i].PodSet]
		if assignment.Flavors == nil && len(item.Requests) > 0 {
			assignment.Flavors = make(map[corev1.ResourceName]kueue.ResourceFlavorReference, len(item.Requests))
			assignment.ResourceUsage = make(corev1.ResourceList, len(item.Requests))
		}
		for _, r := range item.Requests {
			assignment.Flavors[r.Resource] = item.Options[l.Choice[i]].Flavor
			assignment.ResourceUsage[r.Resource] = r.Amount.Quantity(r.Resource)
		}
	}
	return a
}

// Preempts reports whether victims have to leave first.
func (l *Candidate) Preempts() bool { return len(l.Victims) > 0 || l.awaits }

// Candidate returns the candidate for a stage.
func (ck *Checker) Candidate(s *model.Stage) *Candidate {
	q, j := s.QueuedIn, ck.m.JobSets[s.OwnerUID]
	l := &Candidate{Stage: s, Queue: q, lq: s.LocalQueue, JobSet: j, Policy: ck.m.Policy(q, j), PodSets: s.Demand.PodSets}
	if s.CoAdmissionGroup() != nil && spare(l.PodSets) > 0 {
		// A gang that does not fit whole reserves nothing.
		l.PodSets = slices.Clone(l.PodSets)
		for i := range l.PodSets {
			l.PodSets[i].Min = 0
		}
	}
	setDue(ck, l)
	if s.Element.Passes() {
		l.yielding = l.nominalReservers(nil)
	}
	return l
}

// HasPlan reports whether the JobSet has more than one stage.
func (l *Candidate) HasPlan() bool { return l.JobSet != nil && len(l.JobSet.Plan.Stages) > 1 }

// Position returns the queue position of a candidate. A co-admission group has that of its last member.
func (l *Candidate) Position() queue.Position {
	if l.GroupCandidate != nil {
		return l.GroupCandidate.position
	}
	return l.Stage.Element.Position
}

// IsOnTheWayOut returns a predicate for stages that are being evicted, or have to be evicted for a stage.
func (l *Candidate) IsOnTheWayOut() func(*model.Stage) bool {
	return func(s *model.Stage) bool {
		return s.IsLeaving() || slices.ContainsFunc(l.Victims, func(v preempt.Victim) bool { return slices.Contains(model.EvictionUnitOf(v.Holder).Stages, s) })
	}
}
