package check

import (
	"fmt"
	"iter"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/backfill"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/wording"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// A stage that has waited for quota for as long as its ClusterQueue says is due: quota is reserved for the first of them, and the others overtake it only if
// they do not delay it (package backfill).

// AwaitsDue reports whether a candidate that was refused gets a reservation when it is due, and when that is.
func (l *Candidate) AwaitsDue() (due time.Time, ok bool) {
	return l.DueAt, l.reserves && (l.awaitsQuota || l.Preempts())
}

// IsWithheld reports whether a candidate is not due, although it has waited for long enough, because lenders use what it would have to borrow.
func (l *Candidate) IsWithheld() bool { return l.isWithheld }

// Delays reports whether a candidate was refused because it would delay a due stage.
func (l *Candidate) Delays() bool { return l.delays }

// MayPassWithShorterLimit reports whether a candidate was refused because it would delay a due stage, in the one way or the other of Check.
func (l *Candidate) MayPassWithShorterLimit() bool { return l.delays || l.delaysOtherwise }

// setDue notes when the stage of a candidate is due, if its ClusterQueue reserves quota. Of a co-admission group all members have to be due, so that IsDue means
// that one may be.
func setDue(ck *Checker, l *Candidate) {
	setting, other := ck.m.Config.ReservationOf(&l.Queue.Spec), l.Queue.Due
	l.reserves = setting.IsEnabled && l.Queue.Strategy == queue.BestEffort
	l.DueAt = l.Stage.Element.Since.Add(setting.After)
	if l.Stage.CoAdmissionGroup() != nil {
		l.reserves = l.reserves && !l.Queue.IsUsageBased && l.Queue.Decides()
	}
	l.IsDue = l.reserves && !l.DueAt.After(ck.m.Now) && (other == nil || other.Stage == l.Stage || backfill.HasPrecedence(l.Stage, other))
}

// DueNeed returns what has to be available for a stage that is due: its usage, or the peak of its hold segment. It is one of these, the first that is not withheld:
//   - that of the first choice of flavors within the nominal quota of its ClusterQueue,
//   - that of the first other choice,
//   - the same for the fewest pods with which the stage starts.
//
// So the reservation is the same after a restart. If all are withheld, it returns what is withheld.
func DueNeed(ck *Checker, l *Candidate) (quota.Usage, *backfill.Withheld) {
	need, w := selectNeed(ck, l)
	if w == nil {
		return need, nil
	}
	whole := l.Items
	defer func() { l.Items = whole }()
	if ck.mayFitInPart(l) {
		if part, withheld := selectNeed(ck, l); withheld == nil {
			return part, nil
		}
	}
	return need, w
}

// selectNeed returns the first need that is not withheld from a stage, those within nominal quota first, or else the first one that lenders withhold.
func selectNeed(ck *Checker, l *Candidate) (quota.Usage, *backfill.Withheld) {
	var need quota.Usage
	var withheld *backfill.Withheld
	for one := range needsOf(l.Queue, l.Items, func(choice flavor.Choice) []quota.Usage { return peaksOf(ck, l, choice) }) {
		w := backfill.WithheldFrom(ck.m, []model.Due{{Stage: l.Stage, Need: one}})
		if w == nil {
			return one, nil
		}
		if withheld == nil || len(withheld.Lenders) == 0 && len(w.Lenders) > 0 {
			need, withheld = one, w
		}
	}
	return need, withheld
}

// needsOf yields what has to be available for the choices of flavors: first what is within the nominal quota of a ClusterQueue, and then the rest.
func needsOf(q *model.ClusterQueue, items []flavor.Item, needs func(flavor.Choice) []quota.Usage) iter.Seq[quota.Usage] {
	return func(yield func(quota.Usage) bool) {
		var beyond []quota.Usage
		for choice := range flavor.Choices(items, flavor.MaxChoices) {
			for _, need := range needs(choice) {
				if backfill.ExceedsNominal(q, need) {
					beyond = append(beyond, need)
				} else if !yield(need) {
					return
				}
			}
		}
		for _, need := range beyond {
			if !yield(need) {
				return
			}
		}
	}
}

// peaksOf returns alternatives for the most that the JobSet of a stage comes to hold in addition before it releases quota, if the stage is admitted with a
// choice.
func peaksOf(ck *Checker, l *Candidate, choice flavor.Choice) []quota.Usage {
	usage := choice.Usage(l.Items)
	if !l.HasPlan() || l.Stage.IsGrowth {
		return []quota.Usage{usage}
	}
	before := ck.m.Progress(l.JobSet, l.Queue)
	after := l.Admitted(before, choice)
	if len(after.Ahead()) == 0 {
		return []quota.Usage{usage}
	}
	held := before.HeldNow()
	peaks := after.Peaks()
	for i, peak := range peaks {
		peaks[i] = peak.Without(held)
	}
	return peaks
}

// Delayed returns the due stage that a candidate might delay, or nil.
func Delayed(ck *Checker, l *Candidate) *model.Due {
	if len(l.Queue.CohortTree.DueQueues) == 0 || l.Choice == nil {
		return nil
	}
	e := backfill.Entrant{Stage: l.Stage, Queue: l.Queue, Peaks: peaksOf(ck, l, l.Choice), Victims: l.Victims, Yielding: l.yielding}
	e.IsCharged = len(l.Victims)+len(l.yielding)+len(l.Reservers) == 0
	holdsOn := l.HasPlan() && !l.Stage.IsGrowth && len(l.Admitted(ck.m.Progress(l.JobSet, l.Queue), l.Choice).Ahead()) > 0
	if l.Stage.TimeLimit > 0 && !holdsOn && !l.Preempts() && len(l.Queue.Checks) == 0 {
		e.End = ck.m.Now.Add(l.Stage.TimeLimit)
	}
	return e.Delayed(ck.m)
}

// delaysNone selects the first choice of flavors with which a stage delays no due stage.
func delaysNone(ck *Checker, l *Candidate) *decision.Refusal {
	due := Delayed(ck, l)
	if due == nil {
		return nil
	}
	waitUntilOver(l, due)
	if !l.Preempts() {
		first := l.Choice
		for choice := range ck.fitting(l) {
			if l.choose(choice); slices.Equal(choice, first) {
				continue
			}
			if other := Delayed(ck, l); other != nil {
				waitUntilOver(l, other)
			} else if ck.Unsafe(l, choice) == nil {
				return nil
			}
		}
		l.choose(first)
	}
	waitForDue(ck, l, due)
	return delaying(ck, l, due)
}

// waitUntilOver makes a stage that would delay a due stage wait until that is due no longer, or may be delayed.
func waitUntilOver(l *Candidate, due *model.Due) {
	l.wait(due.Stage.QueuedIn.DueTopic, 0)
}

// waitForDue makes a stage that would delay a due stage wait until quota is released that it could use, too.
func waitForDue(ck *Checker, l *Candidate, due *model.Due) {
	l.Effect, l.awaitsQuota, l.delays = BlocksOthers, true, true
	l.wait(model.OwnClaims, 0)
	onlyBeside := due.Stage.QueuedIn == l.Queue && l.Stage.TimeLimit == 0 && !l.Preempts() && !l.awaitsAnyNews()
	for choice := range flavor.Choices(l.Items, flavor.MaxChoices) {
		if onlyBeside && waitsBeside(ck, l, choice) {
			continue
		}
		usage := choice.Usage(l.Items)
		for _, c := range usage {
			l.WaitFor(c.ID, c.Amount)
		}
		// The rest of the peak need not be free, but what is used of it counts.
		for _, peak := range peaksOf(ck, l, choice) {
			for _, c := range peak.Without(usage) {
				if usage.Of(c.ID) == 0 {
					l.wait(c.ID, anyNews)
				}
			}
		}
	}
}

// waitsBeside makes a stage without a time limit wait until its ClusterQueue has enough of a flavor and resource left beside the due stage. It is false if
// there is enough of all. It must be called as if the reservation of the due stage were released.
func waitsBeside(ck *Checker, l *Candidate, choice flavor.Choice) bool {
	for _, peak := range peaksOf(ck, l, choice) {
		i := slices.IndexFunc(peak, func(c quota.Charge) bool {
			return c.Amount > 0 && l.Queue.Due.Need.Of(c.ID) > 0 && c.Amount > backfill.LeftBeside(ck.m, l.Queue, c.ID, 0)
		})
		if i < 0 {
			return false
		}
		l.wait(model.BesideDue(peak[i].ID), int64(peak[i].Amount))
	}
	return true
}

// delaying refuses a stage that would delay a due stage.
func delaying(ck *Checker, l *Candidate, due *model.Due) *decision.Refusal {
	return decision.NewRefusal(DelaysNone, kueue.WorkloadQuotaReservedReasonWaitingForQuota, "fits in ClusterQueue %s, but would delay %s, %s",
		l.Queue.Name, ck.NameFor(l.Stage, due.Stage), expectation(ck, due))
}

// expectation describes a due stage for others.
func expectation(ck *Checker, due *model.Due) string {
	if start, ok := backfill.Expected(ck.m, due.Stage.QueuedIn); ok {
		return "which starts by " + start.UTC().Format(time.RFC3339)
	}
	return "which has been due since " + due.At.UTC().Format(time.RFC3339)
}

// AddReservation adds to the refusal of a due stage, or of a member of a due co-admission group, what is reserved for it. It contains no time that changes
// while the stage only waits.
func AddReservation(ck *Checker, l *Candidate, r *decision.Refusal) {
	due := l.Queue.Due
	if due == nil || !backfill.IsFor(due, l.Stage) || !l.awaitsQuota {
		return
	}
	l.wait(l.Queue.DueTopic, 0) // for its message: its start may be known later
	beneficiary := "it"
	if l.Stage.CoAdmissionGroup() != nil {
		beneficiary = "the gangs that are admitted together, in ClusterQueue " + l.Queue.Name
	}
	r.Message += fmt.Sprintf("; due since %s: quota that is released is kept for %s, up to %s", due.At.UTC().Format(time.RFC3339), beneficiary, ck.List(due.Need))
	if start, ok := backfill.Expected(ck.m, l.Queue); ok && r.Check != DelaysNone {
		r.Message += "; it starts by " + start.UTC().Format(time.RFC3339)
	}
}

// NoteWithheld notes what is withheld from a refused stage that would be due otherwise, and adds it to the refusal.
func NoteWithheld(ck *Checker, l *Candidate, r *decision.Refusal) {
	if due := l.Queue.Due; r != nil && l.IsDue && l.awaitsQuota && (due == nil || due.Stage != l.Stage) {
		_, w := DueNeed(ck, l)
		l.isWithheld = w != nil
		addWithheld(ck, l, r, l.DueAt, w)
	}
}

// addWithheld adds what is withheld from a stage to its refusal. The stage is checked again when any of that is released, and when one of the lenders no longer
// reserves quota for another stage.
func addWithheld(ck *Checker, l *Candidate, r *decision.Refusal, due time.Time, w *backfill.Withheld) {
	if w == nil {
		return
	}
	for _, c := range w.Lacks {
		l.wait(c.ID, anyNews)
	}
	for _, q := range w.Lenders {
		if q.CohortTree == l.Queue.CohortTree && q.Due != nil {
			l.wait(q.DueTopic, 0)
		}
	}
	since := "; due since " + due.UTC().Format(time.RFC3339) + ", but others overtake it"
	switch {
	case len(w.Lenders) == 0:
	case w.IsBehind:
		l.wait(model.AnyClaim, 0)
		r.Message += fmt.Sprintf("%s while a JobSet in ClusterQueue %s waits for nominal quota that %s itself", since, l.Queue.Name, wording.Needs(w.Lenders))
	default:
		r.Message += fmt.Sprintf("%s, and quota is kept for it only once %s %s less of nominal quota", since, wording.Needs(w.Lenders), ck.List(w.Lacks))
	}
}
