package preempt

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// fair preempts from the side with the highest share.
func (s *search) fair() Result {
	if !s.mayTry() {
		return Result{Outcome: NeedsBorrowing}
	}
	s.cursors = s.cursors[:0]
	// Shares are compared as if the request had been admitted.
	s.node.Charge(s.request.Usage)
	r := s.buildShareTree()
	if r.isEmpty() {
		return Result{Outcome: NoCandidates}
	}
	if !s.fairEnough(r) {
		return Result{Outcome: NotEnough}
	}
	victims, fits := s.takeFirst(r)
	if !fits && len(s.strategies) > 1 {
		victims, fits = s.takeSecond(r, victims)
	}
	if !fits {
		return Result{Outcome: NotEnough, IsByShares: true}
	}
	result := s.result(victims, s.fitsCharged, s.staysFair)
	if slices.ContainsFunc(result.Victims, s.takesBack) {
		return Result{Outcome: NotEnough, IsByShares: true}
	}
	return result
}

// takesBack reports whether a victim of fair sharing could reclaim its quota from the request, which is charged, once it queues again: it fits into the
// quota of its own ClusterQueue, and the request borrows that. The two would take turns.
func (s *search) takesBack(v Victim) bool {
	queue := v.Holder.queue
	reclaims := Request{Priority: v.Holder.Priority}
	if v.strategy == "" || !reclaims.isAllowed(queue.Preemption.ReclaimWithinCohort, &Holder{Priority: s.request.Priority}) {
		return false
	}
	missing := slices.DeleteFunc(v.Holder.Usage.Clone(), func(c quota.Charge) bool { return c.Amount <= queue.node.Available(c.ID) })
	return len(missing) > 0 && s.tree.WhatIf(func() bool {
		queue.node.Charge(v.Holder.Usage)
		return !slices.ContainsFunc(missing, func(c quota.Charge) bool { return !s.borrowsFrom(queue.node, c.ID) })
	})
}

// borrowsFrom reports whether the request, but not another ClusterQueue, uses more than its own quota, as do all Cohorts above it below the lowest one
// that they share.
func (s *search) borrowsFrom(other *quota.Node, id quota.ID) bool {
	own, theirs := s.sides(other)
	for n := s.node; n != own.Parent(); n = n.Parent() {
		if n.Excess(id, 0) <= 0 {
			return false
		}
	}
	for n := other; n != theirs.Parent(); n = n.Parent() {
		if n.Excess(id, 0) > 0 {
			return false
		}
	}
	return true
}

// fitsCharged reports whether the request, which is charged, fits.
func (s *search) fitsCharged() bool {
	s.node.Release(s.request.Usage)
	fits := s.fits(mayBorrow)
	s.node.Charge(s.request.Usage)
	return fits
}

// fairEnough is like enough, with the request not charged.
func (s *search) fairEnough(r *shareTree) bool {
	return s.tree.WhatIf(func() bool {
		s.node.Release(s.request.Usage)
		return s.enough(r.candidateStreams)
	})
}

// takeFirst selects Holders of the own Queue, and of others by the first strategy.
func (s *search) takeFirst(r *shareTree) (victims []Victim, fits bool) {
	withinQuota := !s.isOver(s.node)
	for c := r.highest(); c != nil; c = r.highest() {
		var v Victim
		switch {
		case c.node == s.node:
			v = Victim{Holder: c.head(), Reason: kueue.InClusterQueueReason}
			c.candidateStream.next(s)
		case withinQuota:
			v = Victim{Holder: c.head(), Reason: kueue.InCohortReclamationReason}
			c.candidateStream.next(s)
		default:
			v = s.firstThatMeets(c)
		}
		if v.Holder != nil && !spent(s.taken, v.Holder, v.Reason) {
			v.Holder.queue.node.Release(v.Holder.Usage)
			victims = append(victims, v)
			if s.fitsCharged() {
				return victims, true
			}
		}
		r.place(c)
	}
	return victims, false
}

// firstThatMeets returns the first Holder of a ClusterQueue that meets the first strategy, and leaves those before it to the second one.
func (s *search) firstThatMeets(c *shareNode) Victim {
	var failed *Holder
	for h := c.head(); h != nil; h = c.head() {
		c.candidateStream.next(s)
		if spent(s.taken, h, kueue.InCohortFairSharingReason) {
			continue
		}
		// A Holder with the same usage fails for the same reason.
		if failed == nil || !failed.Usage.Equal(h.Usage) {
			if s.isMet(s.strategies[0], h) {
				return Victim{Holder: h, Reason: kueue.InCohortFairSharingReason, strategy: s.strategies[0]}
			}
			failed = h
		}
		if c.left == nil {
			c.left = h
		}
	}
	return Victim{}
}

// takeSecond selects at most one more Holder of each ClusterQueue, by the second strategy.
func (s *search) takeSecond(r *shareTree, victims []Victim) ([]Victim, bool) {
	r.retry()
	for c := r.highest(); c != nil; c = r.highest() {
		if h := c.left; s.isMet(LessThanInitialShare, h) {
			h.queue.node.Release(h.Usage)
			victims = append(victims, Victim{Holder: h, Reason: kueue.InCohortFairSharingReason, strategy: LessThanInitialShare})
			if s.fitsCharged() {
				return victims, true
			}
		}
		c.left = nil
		r.place(c)
	}
	return victims, false
}

// staysFair reports whether all victims except the spared one, which is charged again, would be preempted without it. Only a Holder that is
// closer to the request than another victim can make a difference: it belongs to the side that is compared with that victim.
func (s *search) staysFair(spared int, victims []Victim) bool {
	distance := s.distance(victims[spared].Holder)
	matters := false
	for _, v := range victims {
		matters = matters || v.strategy != "" && s.distance(v.Holder) > distance
	}
	if !matters {
		return true
	}
	return s.tree.WhatIf(func() bool {
		for i, v := range victims {
			if i != spared {
				v.Holder.queue.node.Charge(v.Holder.Usage)
			}
		}
		for i, v := range victims {
			if i == spared {
				continue
			}
			if v.strategy != "" && !s.isMet(v.strategy, v.Holder) {
				return false
			}
			v.Holder.queue.node.Release(v.Holder.Usage)
		}
		return true
	})
}

// distance returns how far above the request the lowest common node with a Holder is.
func (s *search) distance(h *Holder) int {
	d := 0
	for n := s.node; !n.IsAbove(h.queue.node); n = n.Parent() {
		d++
	}
	return d
}
