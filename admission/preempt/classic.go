package preempt

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A rank is a class of candidates in classic preemption. The lower one is preempted first.
type rank int

const (
	// byAdvantage: the request is closer to the quota that the candidate uses.
	byAdvantage rank = iota
	byPriority
	ofOwnQueue
)

// classic preempts to reclaim quota of a ClusterQueue or Cohort, and by priority.
func (s *search) classic() Result {
	if !s.mayTry() {
		return Result{Outcome: NeedsBorrowing}
	}
	if s.sparesAll() {
		if s.hasCandidate(s.node.Root(), s.node) {
			return Result{Outcome: NotEnough}
		}
		return Result{Outcome: NoCandidates}
	}
	candidates := s.candidates()
	if len(candidates) == 0 {
		return Result{Outcome: NoCandidates}
	}
	if !s.enough(candidates) {
		return Result{Outcome: NotEnough}
	}
	attempts := s.attempts(candidates)
	for i, b := range attempts {
		if i > 0 {
			candidates = s.candidates()
		}
		var result Result
		if s.tree.WhatIf(func() bool {
			victims, fits := s.take(candidates, b)
			if fits {
				result = s.result(victims, func() bool { return s.fits(b) }, nil)
			}
			return fits
		}) {
			return result
		}
	}
	return Result{Outcome: NotEnough}
}

// sparesAll reports whether no attempt can take a Holder, without opening the streams of other Queues: the own Queue has no candidate, and the request
// would make every node below the root borrow, so that others could only be taken without borrowing.
func (s *search) sparesAll() bool {
	if s.mayPreemptWhileBorrowing() || s.node.Parent() == nil || !s.reclaims() {
		return false
	}
	rest := s.short.Clone()
	for n := s.node; n.Parent() != nil; n = n.Parent() {
		if !exceeds(n, rest) {
			return false
		}
		for i, c := range rest {
			rest[i].Amount = n.PassedOn(c.ID, c.Amount)
		}
	}
	s.cursors = s.cursors[:0]
	own := s.open(s.request.Queue, s.request.Queue.Preemption.WithinClusterQueue)
	return own.head == nil
}

// hasCandidate reports whether there is a candidate below a Cohort, except in one Queue.
func (s *search) hasCandidate(cohort, except *quota.Node) bool {
	offers := func(n *quota.Node) bool { return n != except && s.offers(n, except) }
	for _, c := range s.short {
		if slices.ContainsFunc(s.overQuota(cohort, c.ID), offers) {
			return true
		}
	}
	// collect skips only subtrees without the request.
	n := except
	for n != nil && n.Parent() != cohort {
		n = n.Parent()
	}
	return n != nil && offers(n)
}

// offers reports whether there is a candidate in a Queue, or below a Cohort except in one Queue.
func (s *search) offers(n, except *quota.Node) bool {
	q := s.queues[n]
	if q == nil {
		return s.hasCandidate(n, except)
	}
	s.cursors = s.cursors[:0]
	st := s.open(q, s.reclaimPolicy())
	return st.head != nil
}

// mayTry reports whether there can be a right to preempt for all missing quota: the ClusterQueue has as much nominal quota, a Cohort below the
// root still has it unused, or the request may preempt while it borrows.
func (s *search) mayTry() bool {
	if s.mayPreemptWhileBorrowing() || len(s.strategies) > 0 && s.reclaims() {
		return true
	}
	for _, c := range s.short {
		if c.Amount > s.node.Quota(c.ID).Nominal && !hasRoomBelowRoot(s.node, c.ID, c.Amount) {
			return false
		}
	}
	return true
}

func (s *search) mayPreemptWhileBorrowing() bool {
	b := s.request.Queue.Preemption.BorrowWithinCohort
	return b != nil && b.Policy != kueue.BorrowWithinCohortPolicyNever && b.Policy != ""
}

func (s *search) reclaims() bool {
	policy := s.reclaimPolicy()
	return policy != kueue.PreemptionPolicyNever && policy != ""
}

// reclaimPolicy returns which Holders of other Queues may be preempted.
func (s *search) reclaimPolicy() kueue.PreemptionPolicy {
	if s.request.staysIn {
		return kueue.PreemptionPolicyNever
	}
	return s.request.Queue.Preemption.ReclaimWithinCohort
}

func hasRoomBelowRoot(n *quota.Node, id quota.ID, a quota.Amount) bool {
	for ; n.Parent() != nil; n = n.Parent() {
		if n.Excess(id, a) <= 0 {
			return true
		}
		a = n.PassedOn(id, a)
	}
	return false
}

// attempts returns in which order to try with and without borrowing. Without it there are more candidates.
func (s *search) attempts(candidates []candidateStream) []borrowing {
	first := ofOwnQueue
	for i := range candidates {
		first = min(first, candidates[i].rank)
	}
	switch whileBorrowing := s.mayPreemptWhileBorrowing(); {
	case first == ofOwnQueue, !whileBorrowing && !s.isUnderNominal():
		return []borrowing{mayBorrow}
	case !whileBorrowing && first != byAdvantage:
		return []borrowing{mayNotBorrow, mayBorrow}
	}
	return []borrowing{mayBorrow, mayNotBorrow}
}

func (s *search) isUnderNominal() bool {
	for _, c := range s.short {
		if s.node.Used(c.ID) >= s.node.Quota(c.ID).Nominal {
			return false
		}
	}
	return true
}

// candidates returns the streams that have a head.
func (s *search) candidates() []candidateStream {
	s.cursors = s.cursors[:0]
	all := s.candidateStreams[:0]
	if s.node.Parent() != nil && s.reclaims() {
		rest := s.short.Clone()
		reached := byPriority
		for n := s.node; n.Parent() != nil; n = n.Parent() {
			if !exceeds(n, rest) {
				reached = byAdvantage
			}
			for i, c := range rest {
				rest[i].Amount = n.PassedOn(c.ID, c.Amount)
			}
			all = s.collect(all, n.Parent(), n, candidateStream{shared: n.Parent(), rank: reached})
		}
	}
	if own := s.open(s.request.Queue, s.request.Queue.Preemption.WithinClusterQueue); own.head != nil {
		own.rank = ofOwnQueue
		all = append(all, own)
	}
	s.candidateStreams = all
	return all
}

// collect adds the streams below a Cohort, except those below one child. It skips nodes that are within their quota.
func (s *search) collect(all []candidateStream, cohort, except *quota.Node, like candidateStream) []candidateStream {
	for _, n := range cohort.Children() {
		if n == except || !s.isOver(n) {
			continue
		}
		if q := s.queues[n]; q == nil {
			all = s.collect(all, n, nil, like)
		} else if st := s.open(q, s.reclaimPolicy()); st.head != nil {
			st.shared, st.rank = like.shared, like.rank
			all = append(all, st)
		}
	}
	return all
}

func exceeds(n *quota.Node, u quota.Usage) bool {
	for _, c := range u {
		if n.Excess(c.ID, c.Amount) > 0 {
			return true
		}
	}
	return false
}

// take selects one candidate after the other until the request fits.
func (s *search) take(candidates []candidateStream, b borrowing) ([]Victim, bool) {
	h := &s.heap
	h.Members = h.Members[:0]
	for i := range candidates {
		candidates[i].index = i
		h.Members = append(h.Members, &candidates[i])
	}
	h.Sort()
	var victims []Victim
	for h.Len() > 0 {
		st := h.First()
		reason := s.reason(st, b)
		if reason == "" {
			h.Drop(st)
			continue
		}
		if v := st.head; !spent(s.taken, v, reason) {
			st.queue.node.Release(v.Usage)
			victims = append(victims, Victim{Holder: v, Reason: reason})
			if s.fits(b) {
				return victims, true
			}
		}
		if st.next(s); st.head == nil {
			h.Drop(st)
		} else {
			h.Fix(st)
		}
	}
	return nil, false
}

// reason returns the reason for which the head of a stream may be preempted. If it may not, no Holder after it may either.
func (s *search) reason(st *candidateStream, b borrowing) string {
	if st.rank == ofOwnQueue {
		return kueue.InClusterQueueReason
	}
	for n := st.queue.node; n != st.shared; n = n.Parent() {
		if !s.isOver(n) {
			return ""
		}
	}
	switch {
	case st.rank == byAdvantage:
		return kueue.InCohortReclamationReason
	case s.mayPreemptWhileBorrowing() && s.isBelowThreshold(st.head):
		return kueue.InCohortReclaimWhileBorrowingReason
	case b == mayNotBorrow:
		return kueue.InCohortReclamationReason
	}
	return ""
}

func (s *search) isBelowThreshold(h *Holder) bool {
	threshold := s.request.Queue.Preemption.BorrowWithinCohort.MaxPriorityThreshold
	return h.Priority < s.request.Priority && (threshold == nil || h.Priority <= int64(*threshold))
}

// Precedes compares the ranks, and then the heads.
func (st *candidateStream) Precedes(other *candidateStream) bool {
	if st.rank != other.rank {
		return st.rank < other.rank
	}
	return st.head.compareNow(other.head) < 0
}

// Place is for package ranking.
func (st *candidateStream) Place() *int { return &st.index }
