package preempt

import (
	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A Strategy of fair sharing compares the share of the side of the request, including the request, with that of the side of a victim. The sides
// are the children of the lowest common Cohort. The names are those of Kueue's configuration.
type Strategy string

const (
	// LessThanOrEqualToFinalShare compares with the share of the victim's side without the victim.
	LessThanOrEqualToFinalShare Strategy = "LessThanOrEqualToFinalShare"
	// LessThanInitialShare compares with the share of the victim's side with the victim. As the second strategy it preempts at most one more
	// Holder of each ClusterQueue.
	LessThanInitialShare Strategy = "LessThanInitialShare"
)

// DefaultStrategies returns the strategies that are used if the configuration names none.
func DefaultStrategies() []Strategy {
	return []Strategy{LessThanOrEqualToFinalShare, LessThanInitialShare}
}

// sides returns the children of the lowest common Cohort of the request and another ClusterQueue.
func (s *search) sides(other *quota.Node) (own, theirs *quota.Node) {
	theirs = other
	for !theirs.Parent().IsAbove(s.node) {
		theirs = theirs.Parent()
	}
	own = s.node
	for own.Parent() != theirs.Parent() {
		own = own.Parent()
	}
	return own, theirs
}

func (s *search) share(n *quota.Node) fairshare.Share { return s.meter.Share(n, nil) }

// isMet reports whether a strategy allows preempting a Holder now.
func (s *search) isMet(strategy Strategy, h *Holder) bool {
	own, theirs := s.sides(h.queue.node)
	before := s.share(own).Compare(s.share(theirs))
	if strategy == LessThanInitialShare {
		return before < 0
	}
	// Without the Holder the other share is no higher.
	if before > 0 {
		return false
	}
	return s.tree.WhatIf(func() bool {
		h.queue.node.Release(h.Usage)
		return s.share(own).Compare(s.share(theirs)) <= 0
	})
}
