package report

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/apis/visibility"
)

// A shortageFinder is where a usage does not fit: a node in one of the trees, and the holders of what is charged in that tree.
type shortageFinder struct {
	tree *quota.Tree
	node *quota.Node
	// holdings returns the holders below a node. It is nil if nothing is charged.
	holdings func(id quota.ID, under *quota.Node) []holding
	// charge, if it is not nil, charges the preemption reservations, as if preemptors held them beside their victims.
	charge func()
}

// A holding is the amount that one holder is charged of one FlavorResource at one node.
type holding struct {
	visibility.Holder
	node   *quota.Node
	amount quota.Amount
}

// shortageFinder returns where a stage asks for quota, among all holders that count.
func (rp *Reporter) shortageFinder(l *check.Candidate, counts func(*model.Stage) bool) *shortageFinder {
	return &shortageFinder{tree: rp.m.Tree, node: l.Queue.Node, holdings: func(id quota.ID, under *quota.Node) []holding {
		return rp.holdings(l, id, under, counts)
	}, charge: func() {
		for q := range l.Queue.CohortTree.PreemptorQueues {
			for s := range q.Preemptors {
				if l.IsHeldUpBy(s) {
					q.Node.Charge(s.PreemptReserved)
				}
			}
		}
	}}
}

func anyStage(*model.Stage) bool { return true }

// shortage returns why an amount is not available, and the holders that could release it.
func (at *shortageFinder) shortage(fr quota.FlavorResource, id quota.ID, amount quota.Amount) (s visibility.Shortage) {
	at.tree.WhatIf(func() bool {
		if at.charge != nil {
			at.charge()
		}
		s = at.shortageNow(fr, id, amount)
		return true
	})
	return s
}

func (at *shortageFinder) shortageNow(fr quota.FlavorResource, id quota.ID, amount quota.Amount) visibility.Shortage {
	bottleneck, _ := at.node.Bottleneck(id, amount)
	s := visibility.Shortage{
		Flavor: fr.Flavor, Resource: fr.Resource,
		Needed:     amount.Quantity(fr.Resource),
		Free:       max(0, at.node.Available(id)).Quantity(fr.Resource),
		Missing:    bottleneck.Missing.Quantity(fr.Resource),
		Constraint: constraintOf(&bottleneck, fr),
	}
	if at.holdings != nil {
		at.name(&s, id, &bottleneck)
	}
	return s
}

func constraintOf(b *quota.Bottleneck, fr quota.FlavorResource) visibility.Constraint {
	c := visibility.Constraint{Kind: visibility.Cohort, Name: b.Node.Name, Limit: b.Limit, Amount: b.Amount.Quantity(fr.Resource)}
	if b.Node.IsClusterQueue() {
		c.Kind = visibility.ClusterQueue
	}
	return c
}

// name names the largest holders. It simulates that they release their quota, one after the other, until nothing is missing. It leaves out
// holders whose quota no other ClusterQueue could use.
func (at *shortageFinder) name(s *visibility.Shortage, id quota.ID, b *quota.Bottleneck) {
	const most = 5
	missing := b.Missing
	candidates := at.holdings(id, b.Under)
	slices.SortFunc(candidates, compareHoldings)
	at.tree.WhatIf(func() bool {
		for i := range candidates {
			h := &candidates[i]
			before := b.Under.Used(id)
			h.node.Release(quota.Usage{{ID: id, Amount: h.amount}})
			freed := before.Minus(b.Under.Used(id))
			if freed <= 0 {
				continue
			}
			if len(s.Holders) < most {
				h.Amount = freed.Quantity(s.Resource)
				s.Holders = append(s.Holders, h.Holder)
			} else {
				s.MoreHolders++
			}
			if missing -= min(freed, missing); missing == 0 {
				return true
			}
		}
		return true
	})
	if missing > 0 {
		q := missing.Quantity(s.Resource)
		s.Unreleasable = &q
	}
}

// compareHoldings orders the largest first.
func compareHoldings(a, b holding) int {
	return cmp.Or(
		cmp.Compare(b.amount, a.amount), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		cmp.Compare(a.Kind, b.Kind), strings.Compare(a.ClusterQueue, b.ClusterQueue),
	)
}

// holdings returns the charges below a node of others than the stage's own JobSet or gang, by JobSet, gang or quota Workload, in no order.
func (rp *Reporter) holdings(l *check.Candidate, id quota.ID, under *quota.Node, counts func(*model.Stage) bool) []holding {
	var all []holding
	for _, q := range l.Queue.CohortTree.Queues {
		if !under.IsAbove(q.Node) {
			continue
		}
		byHolder := map[types.UID]*holding{}
		for _, s := range q.Charged.All {
			if a := s.Entry.Usage.Of(id); a > 0 && counts(s) && (s.OwnerUID == "" || s.OwnerUID != l.Stage.OwnerUID) {
				h := rp.holding(byHolder, s, q)
				h.amount = h.amount.Plus(a)
				h.addEviction(s)
			}
		}
		rp.addKept(byHolder, l, q, id)
		for _, h := range byHolder {
			all = append(all, *h)
		}
	}
	return all
}

// addEviction adds the eviction of a stage of the holder, or when its notice ends.
func (h *holding) addEviction(s *model.Stage) {
	h.Leaving = h.Leaving || s.IsEvicting()
	if n := s.CurrentNotice(); n != nil && !s.IsEvicting() && (h.RunsUntil == nil || h.RunsUntil.Before(n.Ends)) {
		h.RunsUntil = new(n.Ends.UTC())
	}
}

// addKept adds the reservations: for later stages, and for preemptors that wait until their victims have left.
func (rp *Reporter) addKept(byHolder map[types.UID]*holding, l *check.Candidate, q *model.ClusterQueue, id quota.ID) {
	if q.AdvanceReserved.Of(id) == 0 && len(q.Preemptors) == 0 {
		return
	}
	add := func(s *model.Stage, a quota.Amount) {
		h := rp.holding(byHolder, s, q)
		h.amount, h.Kept = h.amount.Plus(a), true
	}
	for j := range q.PeakReservers {
		if a := j.PeakReserved.Of(id); a > 0 && j.UID != l.Stage.OwnerUID {
			for _, s := range j.Members {
				add(s, a)
				break
			}
		}
	}
	for s := range q.Preemptors {
		if a := s.PreemptReserved.Of(id); a > 0 && l.IsHeldUpBy(s) {
			add(s, a)
		}
	}
}

// holding returns that of the owner of a stage's plan, or of the stage if it has none.
func (rp *Reporter) holding(byHolder map[types.UID]*holding, s *model.Stage, q *model.ClusterQueue) *holding {
	uid, kind, key := s.UID, visibility.Workload, s.Key
	if j := rp.m.JobSets[s.OwnerUID]; j != nil && j.IsKnown() {
		uid, kind, key = j.UID, holderKind(j.Owner.Kind), j.Owner.Key
	}
	h := byHolder[uid]
	if h == nil {
		h = &holding{node: q.Node, Holder: visibility.Holder{
			Kind: kind, ClusterQueue: q.Name, Reference: visibility.Reference{Namespace: key.Namespace, Name: key.Name},
		}}
		byHolder[uid] = h
	}
	return h
}

func holderKind(kind decision.OwnerKind) visibility.HolderKind {
	if kind == decision.GangOwner {
		return visibility.Gang
	}
	return visibility.JobSet
}

// claimed returns the holdings of all claims except two: stuck, which cannot be met, and own, that of the JobSet of the stage.
func (rp *Reporter) claimed(claims []*safety.Claim, own, stuck *safety.Claim, id quota.ID, under *quota.Node) []holding {
	var all []holding
	for _, c := range claims {
		owner, exists := rp.check.OwnerOf(c)
		if a := c.Held.Of(id); exists && a > 0 && c != own && c != stuck && under.IsAbove(c.Node) {
			all = append(all, holding{node: c.Node, amount: a, Holder: visibility.Holder{
				Kind: holderKind(owner.Kind), ClusterQueue: c.Node.Name, Reference: visibility.Reference{Namespace: owner.Key.Namespace, Name: owner.Key.Name},
			}})
		}
	}
	return all
}
