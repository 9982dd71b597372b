package preempt_test

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A twin follows the rules of doc.go with sorted slices. Before each question it recomputes the state without the Holders that have left.
type twin struct {
	*world
	r preempt.Request
	// short is the part of the request of which not enough is available.
	short quota.Usage
	gone  []*preempt.Holder
}

type candidate struct {
	*preempt.Holder
	queue *preempt.Queue
	lca   *quota.Node
	rank  int
}

type taken struct {
	candidate
	reason   string
	strategy preempt.Strategy
}

// in evaluates ask in the state without some Holders, with the request charged or not.
func in[T any](w *twin, without []taken, charged int, ask func() T) T {
	var answer T
	w.tree.WhatIf(func() bool {
		for _, h := range w.gone {
			h.Queue().Node().Release(h.Usage)
		}
		for _, h := range without {
			h.queue.Node().Release(h.Usage)
		}
		for range charged {
			w.r.Queue.Node().Charge(w.r.Usage)
		}
		answer = ask()
		return true
	})
	return answer
}

func (w *twin) find() ([]taken, preempt.Outcome) {
	n := w.r.Queue.Node()
	for _, c := range w.r.Usage {
		if c.Amount > n.Capacity(c.ID) {
			return nil, preempt.TooLarge
		}
	}
	if n.Fits(w.r.Usage) {
		return nil, preempt.Fits
	}
	for _, hs := range w.held {
		for _, h := range hs {
			if h.IsEvicting() && h.Queue().Node().Root() == n.Root() {
				w.gone = append(w.gone, h)
			}
		}
	}
	if w.fits(nil, false) {
		return nil, preempt.EvictionsPending
	}
	in(w, nil, 0, func() bool {
		for _, c := range w.r.Usage {
			if c.Amount > n.Available(c.ID) {
				w.short = append(w.short, c)
			}
		}
		return true
	})
	if !in(w, nil, 0, w.mayTry) {
		return nil, preempt.NeedsBorrowing
	}
	all := w.candidates()
	if len(all) == 0 {
		return nil, preempt.NoCandidates
	}
	victims := w.classic
	if len(w.strategies) > 0 {
		victims = w.fair
	}
	if found := victims(all); found != nil {
		return found, preempt.Found
	}
	return nil, preempt.NotEnough
}

func (w *twin) borrowsWhilePreempting() bool {
	b := w.r.Queue.Preemption.BorrowWithinCohort
	return b != nil && b.Policy == kueue.BorrowWithinCohortPolicyLowerPriority
}

func (w *twin) mayTry() bool {
	reclaim := w.r.Queue.Preemption.ReclaimWithinCohort
	if w.borrowsWhilePreempting() || len(w.strategies) > 0 && reclaim != "" && reclaim != kueue.PreemptionPolicyNever {
		return true
	}
	for _, c := range w.short {
		ok := c.Amount <= w.r.Queue.Node().Quota(c.ID).Nominal
		for n := w.r.Queue.Node(); n.Parent() != nil; n = n.Parent() {
			ok = ok || w.hasRoom(n, quota.Usage{c})
		}
		if !ok {
			return false
		}
	}
	return true
}

// hasRoom: the node would be within its quota of what is asked for if the request were admitted.
func (w *twin) hasRoom(n *quota.Node, u quota.Usage) bool {
	return w.tree.WhatIf(func() bool {
		w.r.Queue.Node().Charge(u)
		return !slices.ContainsFunc(u, func(c quota.Charge) bool { return n.Used(c.ID) > n.Subtree(c.ID) })
	})
}

func (w *twin) over(n *quota.Node) bool {
	return slices.ContainsFunc(w.short, func(c quota.Charge) bool { return n.Used(c.ID) > n.Subtree(c.ID) })
}

// borrowsAllTheWay: the ClusterQueue and all above it below the lca.
func (w *twin) borrowsAllTheWay(c candidate) bool {
	for n := c.queue.Node(); n != c.lca; n = n.Parent() {
		if !w.over(n) {
			return false
		}
	}
	return true
}

func (w *twin) candidates() []candidate {
	return in(w, nil, 0, func() (all []candidate) {
		own := w.r.Queue.Node()
		for q, hs := range w.held {
			if q.Node().Root() != own.Root() {
				continue
			}
			c := candidate{queue: q, lca: own, rank: 1}
			policy := w.r.Queue.Preemption.ReclaimWithinCohort
			if q == w.r.Queue {
				policy, c.rank = w.r.Queue.Preemption.WithinClusterQueue, 2
			}
			for ; !c.lca.IsAbove(q.Node()); c.lca = c.lca.Parent() {
				if w.hasRoom(c.lca, w.short) {
					c.rank = 0
				}
			}
			if q != w.r.Queue && !w.borrowsAllTheWay(c) {
				continue
			}
			for _, h := range hs {
				uses := slices.ContainsFunc(w.short, func(c quota.Charge) bool { return h.Usage.Of(c.ID) > 0 })
				newer := policy == kueue.PreemptionPolicyLowerOrNewerEqualPriority && h.Priority == w.r.Priority && h.Queued.After(w.r.Queued)
				lower := policy != "" && policy != kueue.PreemptionPolicyNever && h.Priority < w.r.Priority
				if c.Holder = h; uses && !h.IsEvicting() && (lower || newer || policy == kueue.PreemptionPolicyAny) && w.hasRunLongEnough(h) {
					all = append(all, c)
				}
			}
		}
		slices.SortFunc(all, w.compare)
		return all
	})
}

// hasRunLongEnough: for the minimum runtime of its ClusterQueue, or the request has waited as long for its own quota.
func (w *twin) hasRunLongEnough(h *preempt.Holder) bool {
	least := h.Queue().MinimumRuntime
	if h.Started.IsZero() || least == 0 || w.r.Now.Sub(h.Started) >= least {
		return true
	}
	return h.Queue() != w.r.Queue && w.hasRoom(w.r.Queue.Node(), w.short) && w.r.Now.Sub(w.r.Queued) >= least
}

func (w *twin) compare(c, o candidate) int {
	return cmp.Or(cmp.Compare(c.rank, o.rank), cmp.Compare(c.Priority, o.Priority), cmp.Compare(w.lost(c.Holder), w.lost(o.Holder)),
		o.Reserved.Compare(c.Reserved), cmp.Compare(c.UID, o.UID))
}

// lost is the accelerator-time since the last times from which a Holder can go on.
func (w *twin) lost(h *preempt.Holder) (sum float64) {
	for _, work := range h.Work {
		worked := w.r.Now.Sub(work.Since)
		if unsaved := w.r.Now.Sub(work.SavedAt); unsaved >= 0 {
			worked = min(worked, unsaved)
		}
		if w.finder.LeastWork {
			sum += float64(work.Accelerators) * worked.Seconds()
		}
	}
	return sum
}

func (w *twin) fits(without []taken, mustNotBorrow bool) bool {
	return in(w, without, 0, func() bool {
		n := w.r.Queue.Node()
		return n.Fits(w.r.Usage) && (!mustNotBorrow || !n.BorrowsAny(w.short))
	})
}

func (w *twin) spent(h *preempt.Holder, reason string) bool {
	limit := 3
	if reason == kueue.InCohortReclamationReason {
		limit = 4
	}
	return w.taken[[2]types.UID{w.r.UID, h.UID}] >= limit
}

func (w *twin) classic(all []candidate) []taken {
	underNominal := in(w, nil, 0, func() bool {
		return !slices.ContainsFunc(w.short, func(c quota.Charge) bool {
			return w.r.Queue.Node().Used(c.ID) >= w.r.Queue.Node().Quota(c.ID).Nominal
		})
	})
	attempts := []bool{false, true}
	switch best := all[0].rank; {
	case best == 2, !w.borrowsWhilePreempting() && !underNominal:
		attempts = []bool{false}
	case !w.borrowsWhilePreempting() && best != 0:
		attempts = []bool{true, false}
	}
	for _, mustNotBorrow := range attempts {
		var victims []taken
		for _, c := range all {
			reason := w.classicReason(c, mustNotBorrow)
			if reason == "" || w.spent(c.Holder, reason) || c.rank < 2 && !in(w, victims, 0, func() bool { return w.borrowsAllTheWay(c) }) {
				continue
			}
			victims = append(victims, taken{candidate: c, reason: reason})
			if w.fits(victims, mustNotBorrow) {
				return w.spare(victims, func(v []taken) bool { return w.fits(v, mustNotBorrow) })
			}
		}
	}
	return nil
}

func (w *twin) classicReason(c candidate, mustNotBorrow bool) string {
	b := w.r.Queue.Preemption.BorrowWithinCohort
	switch {
	case c.rank == 2:
		return kueue.InClusterQueueReason
	case c.rank == 0:
		return kueue.InCohortReclamationReason
	case w.borrowsWhilePreempting() && c.Priority < w.r.Priority && (b.MaxPriorityThreshold == nil || c.Priority <= int64(*b.MaxPriorityThreshold)):
		return kueue.InCohortReclaimWhileBorrowingReason
	case mustNotBorrow:
		return kueue.InCohortReclamationReason
	}
	return ""
}

// spare drops the victims that can stay, from the last but one on.
func (w *twin) spare(victims []taken, good func([]taken) bool) []taken {
	for i := len(victims) - 2; i >= 0; i-- {
		if rest := slices.Delete(slices.Clone(victims), i, i+1); good(rest) {
			victims = rest
		}
	}
	return victims
}

func (w *twin) share(n *quota.Node) fairshare.Share {
	return fairshare.NewMeter(w.tree).Share(n, nil)
}

// childOf returns the child of a node that is, or is above, the other node.
func childOf(n, below *quota.Node) *quota.Node {
	for below.Parent() != n {
		below = below.Parent()
	}
	return below
}

func (w *twin) met(s preempt.Strategy, c candidate, victims []taken) bool {
	without := victims
	if s == preempt.LessThanOrEqualToFinalShare {
		without = append(slices.Clone(victims), taken{candidate: c})
	}
	return in(w, without, 1, func() bool {
		d := w.share(childOf(c.lca, w.r.Queue.Node())).Compare(w.share(childOf(c.lca, c.queue.Node())))
		return d < 0 || s == preempt.LessThanOrEqualToFinalShare && d == 0
	})
}

func (w *twin) fair(all []candidate) []taken {
	left := map[*preempt.Queue][]candidate{}
	for _, c := range all {
		left[c.queue] = append(left[c.queue], c)
	}
	withinQuota := in(w, nil, 1, func() bool { return !w.over(w.r.Queue.Node()) })
	var victims []taken
	retry := map[*preempt.Queue][]candidate{}
	for {
		q := in(w, victims, 1, func() *preempt.Queue { return w.highest(left) })
		if q == nil {
			break
		}
		v, found := w.nextOf(q, left, retry, victims, withinQuota)
		if !found || w.spent(v.Holder, v.reason) {
			continue
		}
		if victims = append(victims, v); w.fits(victims, false) {
			return w.spareFairly(victims)
		}
	}
	if len(w.strategies) < 2 {
		return nil
	}
	for {
		q := in(w, victims, 1, func() *preempt.Queue { return w.highest(retry) })
		if q == nil {
			return nil
		}
		c := retry[q][0]
		delete(retry, q)
		if !w.met(preempt.LessThanInitialShare, c, victims) {
			continue
		}
		v := taken{candidate: c, reason: kueue.InCohortFairSharingReason, strategy: preempt.LessThanInitialShare}
		if victims = append(victims, v); w.fits(victims, false) {
			return w.spareFairly(victims)
		}
	}
}

// spareFairly returns no victims if one of them would reclaim its quota.
func (w *twin) spareFairly(victims []taken) []taken {
	victims = w.spare(victims, w.isFair)
	for _, v := range victims {
		if v.strategy != "" && in(w, victims, 1, func() bool { return w.reclaims(v.candidate) }) {
			return nil
		}
	}
	return victims
}

// reclaims: the request is charged and has what the candidate misses, above its own quota, while the candidate would be within its own.
func (w *twin) reclaims(c candidate) bool {
	policy := c.queue.Preemption.ReclaimWithinCohort
	if policy != kueue.PreemptionPolicyAny && (policy != kueue.PreemptionPolicyLowerPriority || c.Priority <= w.r.Priority) || c.queue.Node().Fits(c.Usage) {
		return false
	}
	own := w.r.Queue.Node()
	for _, u := range c.Usage {
		if u.Amount <= c.queue.Node().Available(u.ID) {
			continue
		}
		for n := own; n != c.lca; n = n.Parent() {
			if n.Used(u.ID) <= n.Subtree(u.ID) {
				return false
			}
		}
		isOver := w.tree.WhatIf(func() bool {
			c.queue.Node().Charge(c.Usage)
			isOver := false
			for n := c.queue.Node(); n != c.lca; n = n.Parent() {
				isOver = isOver || n.Used(u.ID) > n.Subtree(u.ID)
			}
			return isOver
		})
		if isOver {
			return false
		}
	}
	return true
}

func (w *twin) nextOf(q *preempt.Queue, left, retry map[*preempt.Queue][]candidate, victims []taken, withinQuota bool) (taken, bool) {
	for len(left[q]) > 0 {
		c := left[q][0]
		left[q] = left[q][1:]
		switch {
		case q == w.r.Queue:
			return taken{candidate: c, reason: kueue.InClusterQueueReason}, true
		case withinQuota:
			return taken{candidate: c, reason: kueue.InCohortReclamationReason}, true
		case w.spent(c.Holder, kueue.InCohortFairSharingReason):
		case w.met(w.strategies[0], c, victims):
			return taken{candidate: c, reason: kueue.InCohortFairSharingReason, strategy: w.strategies[0]}, true
		default:
			retry[q] = append(retry[q], c)
		}
	}
	return taken{}, false
}

// isFair: the request fits without the victims, and they could be preempted one after the other.
func (w *twin) isFair(victims []taken) bool {
	for i, v := range victims {
		if v.strategy != "" && !w.met(v.strategy, v.candidate, victims[:i]) {
			return false
		}
	}
	return w.fits(victims, false)
}

// highest goes down from the root, in the state that it is called in.
func (w *twin) highest(left map[*preempt.Queue][]candidate) *preempt.Queue {
	of := map[*quota.Node]*preempt.Queue{}
	for q, cs := range left {
		if len(cs) > 0 {
			of[q.Node()] = q
		}
	}
	own := w.r.Queue.Node()
	var has func(n *quota.Node) bool
	has = func(n *quota.Node) bool {
		return (n.IsAbove(own) || w.over(n)) && (of[n] != nil || slices.ContainsFunc(n.Children(), has))
	}
	n := own.Root()
	if !has(n) {
		return nil
	}
	for of[n] == nil {
		var nodes []*quota.Node
		for _, c := range n.Children() {
			if has(c) {
				nodes = append(nodes, c)
			}
		}
		n = slices.MinFunc(nodes, func(a, b *quota.Node) int {
			if d := w.share(b).Compare(w.share(a)); d != 0 {
				return d
			}
			switch qa, qb := of[a], of[b]; {
			case qa == nil && qb == nil:
				return cmp.Compare(a.Name, b.Name)
			case qa == nil || qb != nil && b == own:
				return -1
			case qb == nil || a == own:
				return 1
			default:
				x, y := left[qa][0], left[qb][0]
				x.rank, y.rank = 0, 0
				return w.compare(x, y)
			}
		})
	}
	return of[n]
}
