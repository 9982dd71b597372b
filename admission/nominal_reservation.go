package admission

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// The head of a ClusterQueue with StrictFIFO that has a right to nominal quota, and may not take all of it back from its borrowers, keeps
// what its ClusterQueue does not use of it: otherwise a stream of small borrowers could starve it. The reservation is one like that of a
// preemptor, and keeps away borrowers only: a stage that stays within the nominal quota of its own ClusterQueue passes it. So does a stage that
// its JobSet has to run before it gives back what it holds: stage safety has promised that quota.

// nominalReservation returns what is reserved for a stage that waits for quota, or nothing: of the first flavors with which it would have no
// more than the nominal quota of its ClusterQueue, or of a Cohort below the root. What fits is reserved with the rest. A stage that is admitted
// together with others keeps nothing: it needs quota of all their ClusterQueues at once.
func (e *Engine) nominalReservation(l *look) quota.Usage {
	if !l.isShort || !l.q.mayKeepNominal() || l.s.membership != nil {
		return nil
	}
	var reserved quota.Usage
	e.tree.Later(func() bool {
		if l.s.pledgedIn == l.q {
			l.q.node.Release(l.s.pledge)
		}
		for choice := range flavor.Choices(l.items, flavor.MaxChoices) {
			if usage, ok := l.q.entitledTo(choice.Usage(l.items)); ok {
				reserved = usage
				break
			}
		}
		return true
	})
	return reserved
}

// mayKeepNominal reports whether the head of a ClusterQueue keeps nominal quota from borrowers, because it may not take all of it back.
func (q *clusterQueue) mayKeepNominal() bool {
	return q.strategy == queue.Strict && q.preemption.ReclaimWithinCohort != kueue.PreemptionPolicyAny && q.node.Parent() != nil
}

// entitledTo returns the part of a usage that a ClusterQueue need not borrow, or from no farther than a Cohort below the root. It is not ok if
// some of the usage is not available and would have to be borrowed from farther away.
func (q *clusterQueue) entitledTo(usage quota.Usage) (part quota.Usage, ok bool) {
	for _, c := range usage {
		nominal := q.node.Quota(c.ID).Nominal
		switch unused := max(0, nominal.Minus(q.node.Used(c.ID))); {
		case c.Amount <= nominal:
			part.Add(c.ID, min(c.Amount, unused))
		case q.node.Level(c.ID, c.Amount) < q.node.Root().Height():
			part.Add(c.ID, c.Amount)
		case c.Amount <= q.node.Available(c.ID):
			part.Add(c.ID, unused)
		default:
			return nil, false
		}
	}
	return part, true
}

// keepNominal reserves nominal quota for a stage that waits for it, and reports whether there is any to reserve.
func (e *Engine) keepNominal(l *look) bool {
	reserved := e.nominalReservation(l)
	if len(reserved) == 0 {
		return false
	}
	if !l.s.keepsNominal || l.s.pledgedIn != l.q || !l.s.pledge.Equal(reserved) {
		e.pledge(l.s, l.q, reserved)
		l.s.keepsNominal = true
		l.q.group.keepers[l.s] = struct{}{}
		e.enqueue(l.s)
	}
	return true
}

// keptNominal are the stages that keep nominal quota, and do not keep it from a stage: those of other ClusterQueues if it stays within nominal
// quota itself, and all if its JobSet has to run it before it gives back what it holds, as the keepers may wait for that. Those that yield
// anyway are left out. The one that comes last is first.
func (l *look) keptNominal(yielding []*stage) []*stage {
	var kept []*stage
	for s := range l.q.group.keepers {
		isOwn := s.pledgedIn == l.q
		isBehind := isOwn && (s == l.s || s.ticket == nil || !s.ticket.Precedes(l.s.ticket))
		if s.ticket != nil && !isBehind && (l.s.ticket.Passes || !isOwn) && !slices.Contains(yielding, s) {
			kept = append(kept, s)
		}
	}
	slices.SortFunc(kept, comparePledged)
	return kept
}
