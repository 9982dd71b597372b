package admission

import (
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// A groupCandidate is one check of a co-admission group: of all members that wait. Each is checked as if it were alone, and then all together. They use no
// quota that is reserved for preemptors, whatever its queue position, and preempt no stage.
type groupCandidate struct {
	coAdmissionGroup *coAdmissionGroup
	candidates       []*candidate
	// refusals has the refusal of each of candidates, or nil.
	refusals []*Refusal
	// position is the last of their queue positions.
	position queue.Position
	// isPart is true if other members hold quota already and have to release it if these are refused.
	isPart bool
}

// try checks a co-admission group.
func (e *Engine) try(b *coAdmissionGroup) *groupCandidate {
	g := &groupCandidate{coAdmissionGroup: b}
	for _, s := range b.sorted(isWaiting) {
		if s.queuedIn == nil {
			continue
		}
		if len(g.candidates) == 0 || g.position.Compare(s.element.Position) < 0 {
			g.position = s.element.Position
		}
		g.candidates = append(g.candidates, e.candidate(s))
	}
	g.refusals = make([]*Refusal, len(g.candidates))
	if e.refuseAsCoAdmissionGroup(g) {
		return g
	}
	for i, l := range g.candidates {
		g.refusals[i] = e.firstRefusal(l)
	}
	if g.isRefused() {
		e.refuseWithOthers(g)
		return g
	}
	if !e.pack(g) {
		e.refuseTogether(g)
		return g
	}
	for i, l := range g.candidates {
		g.refusals[i] = checksAreFew(e, l)
	}
	if g.isRefused() {
		e.refuseWithOthers(g)
	}
	return g
}

func (g *groupCandidate) isRefused() bool {
	return slices.ContainsFunc(g.refusals, func(r *Refusal) bool { return r != nil })
}

// refusalOf returns the refusal of one member, or nil.
func (g *groupCandidate) refusalOf(s *stage) *Refusal {
	if i := slices.IndexFunc(g.candidates, func(l *candidate) bool { return l.s == s }); i >= 0 {
		return g.refusals[i]
	}
	return nil
}

// The checks of co-admission groups.
const (
	gangsAreThere     = "GangsAreThere"
	gangsAgree        = "GangsAgree"
	gangsPassTogether = "GangsPassTogether"
)

// refuseAsCoAdmissionGroup refuses all members for problems of the group that do not depend on quota.
func (e *Engine) refuseAsCoAdmissionGroup(g *groupCandidate) bool {
	b := g.coAdmissionGroup
	isOfAPlan := b.has(func(s *stage) bool { return s.owner != "" })
	for i, l := range g.candidates {
		switch missing := b.missing(l.s); {
		case isOfAPlan:
			g.refusals[i] = misconfigured(gangsAgree, "one of the gangs that are admitted together is a stage of a plan, which cannot be")
		case b.sizes[0] > 0 || len(b.sizes) != 1 || b.sizes[len(b.members)] == 0 && len(b.members) > l.s.membership.size:
			g.refusals[i] = b.disagreement(l.s)
		case b.sizes[len(b.members)] == 0:
			g.refusals[i] = &Refusal{
				Check: gangsAreThere, Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
				Message: fmt.Sprintf("waits until all of the %d gangs that are admitted together ask for quota", l.s.membership.size),
			}
		case missing != nil:
			g.refusals[i] = missing
		}
	}
	g.isPart = b.isWhole() && b.counts[isHolding] > 0 && b.counts[isAssumed]+b.counts[isGoing] == 0
	return g.isRefused()
}

// disagreement returns the refusal for members that report different sizes, or a wrong one.
func (b *coAdmissionGroup) disagreement(s *stage) *Refusal {
	if b.sizes[0] > 0 {
		return misconfigured(gangsAgree, "from 1 to %d gangs can be admitted together, and at least one of these says another number", maxTogether)
	}
	if len(b.sizes) == 1 {
		return misconfigured(gangsAgree, "is one of more gangs than the %d that are to be admitted together", s.membership.size)
	}
	return misconfigured(gangsAgree, "says that %d gangs are admitted together, and at least one of them says another number", s.membership.size)
}

// missing returns a refusal because of a member that is not pending, or nil.
func (b *coAdmissionGroup) missing(s *stage) *Refusal {
	if b.counts[isGoing] > 0 {
		return &Refusal{
			Check: gangsAreThere, Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
			Message: "waits until the pods of the gangs have ended that are admitted together with it, and are evicted",
		}
	}
	closed := b.sorted(isClosed)
	if len(closed) == 0 {
		return nil
	}
	why := ""
	if other := closed[0]; other.key.Namespace == s.key.Namespace && other.closed != "" {
		why = ": " + other.closed
	}
	return &Refusal{
		Check: gangsAreThere, Reason: kueue.WorkloadAdmissionGated,
		Message: fmt.Sprintf("waits until %s, which is admitted together with it, asks for quota%s", s.nameOf(closed[0]), why),
	}
}

// nameOf returns the name of another stage for the owner of a stage. Objects of other namespaces are not disclosed.
func (s *stage) nameOf(other *stage) string {
	if other.key.Namespace == s.key.Namespace {
		return "gang " + other.key.Name
	}
	return "a gang of another namespace"
}

// refuseWithOthers refuses the members that pass because of the first that does not. If all obstacles are missing quota, all members block their
// queues. Otherwise none does: no queue waits for a member in another queue whose obstacle is not quota, or that is behind other stages.
func (e *Engine) refuseWithOthers(g *groupCandidate) {
	first, holdsUp := -1, true
	for i, l := range g.candidates {
		if g.refusals[i] != nil {
			holdsUp = holdsUp && l.effect == holdsUpOthers
			if first < 0 {
				first = i
			}
		}
	}
	if holdsUp && !e.fitsAtBest(g) {
		e.refuseForGood(g)
		return
	}
	refused := slices.Clone(g.refusals)
	for i, l := range g.candidates {
		switch {
		case holdsUp:
			l.effect = holdsUpOthers
		case l.effect == holdsUpOthers:
			l.effect = waitsForChange
		}
		if refused[i] == nil {
			g.refusals[i] = because(l.s, g.candidates[first], refused[first])
		}
	}
}

// because refuses a stage that passes because of another member that does not.
func because(s *stage, other *candidate, refusal *Refusal) *Refusal {
	message := fmt.Sprintf("waits for %s, which is admitted together with it", s.nameOf(other.s))
	switch {
	case other.s.key.Namespace != s.key.Namespace:
	case refusal.Reason == kueue.WorkloadQuotaReservedReasonWaitingForQuota:
		message += fmt.Sprintf(" and waits for quota in ClusterQueue %s", other.q.name)
	default:
		message += ": " + refusal.Message
	}
	return &Refusal{Check: gangsPassTogether, Reason: refusal.Reason, Message: message}
}

// refuseTogether refuses all members, if each would fit alone but not all together. Any release of quota that one of them could use wakes them.
func (e *Engine) refuseTogether(g *groupCandidate) {
	if !e.fitsAtBest(g) {
		e.refuseForGood(g)
		return
	}
	for i, l := range g.candidates {
		l.effect = holdsUpOthers
		for choice := range flavor.Choices(l.items, flavor.MaxChoices) {
			for _, c := range choice.Usage(l.items) {
				l.waitForNews(c.ID)
			}
		}
		g.refusals[i] = &Refusal{
			Check: gangsPassTogether, Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota,
			Message: fmt.Sprintf("waits for quota in ClusterQueue %s: it would fit alone, and not together with %s",
				l.q.name, otherGangs(len(g.coAdmissionGroup.members)-1)),
		}
	}
}

func otherGangs(n int) string {
	if n == 1 {
		return "the other gang that is admitted with it"
	}
	return fmt.Sprintf("the other %d gangs that are admitted with it", n)
}

// waitForNews notes an amount of which every change wakes the candidate.
func (l *candidate) waitForNews(id quota.ID) {
	for i := range l.waits {
		if l.waits[i].Topic == id {
			l.waits[i].Need = anyNews
			return
		}
	}
	l.waits = append(l.waits, queue.Wait[quota.ID]{Topic: id, Need: anyNews})
}

// refuseForGood refuses members that would not fit together even if nothing were charged.
func (e *Engine) refuseForGood(g *groupCandidate) {
	for i, l := range g.candidates {
		l.effect, l.waits = waitsForChange, nil
		g.refusals[i] = &Refusal{
			Check: withinLimits, Reason: kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
			Message: fmt.Sprintf("can never fit: the %d gangs that are admitted together need more at once than there is quota, in ClusterQueue %s or where the others queue",
				len(g.coAdmissionGroup.members), l.q.name),
		}
	}
}

// checkTogether is check for a member of a co-admission group.
func (e *Engine) checkTogether(l *candidate, b *coAdmissionGroup) *Refusal {
	g := e.try(b)
	for i, other := range g.candidates {
		if other.s == l.s {
			*l = *other
			g.candidates[i] = l
		}
	}
	l.groupCandidate = g
	return g.refusalOf(l.s)
}

// sleepTogether parks all refused members, each in its own queue, and emits their refusals. Members that hold quota without the others release
// it.
func (e *Engine) sleepTogether(l *candidate, decisions []Decision) []Decision {
	g := l.groupCandidate
	g.coAdmissionGroup.pause = pause{}
	for i, m := range g.candidates {
		m.waits = append(m.waits, queue.Wait[quota.ID]{Topic: g.coAdmissionGroup.topic})
		decisions = e.putToSleep(m, g.refusals[i], decisions)
		if m.q != l.q && m.q.pendingQueue.Next() != nil {
			e.scheduleCycle(m.q)
		}
	}
	if g.isPart {
		decisions = e.evictCoAdmissionGroup(g.coAdmissionGroup, decisions)
	}
	return decisions
}

// admitTogether admits all members.
func (e *Engine) admitTogether(g *groupCandidate, decisions []Decision) []Decision {
	g.coAdmissionGroup.pause = pause{}
	for _, l := range g.candidates {
		decisions = append(decisions, e.admit(l))
	}
	return decisions
}

// A pause pauses the queue of a member that would be admitted if all members of its group had their turn.
type pause struct{ rests, chargeEpoch uint64 }

// isTurn reports whether no stage that is not parked precedes any of the members: in its queue, and in the queues that share quota with it. In
// the cohort tree of the candidate the contest ensures that. Until then the queue of the candidate is paused, at most until every queue is idle
// and no quota has been taken meanwhile: then the preceding stages are themselves on paused queues, and wait for one of these members.
func (e *Engine) isTurn(l *candidate) bool {
	g := l.groupCandidate
	p := &g.coAdmissionGroup.pause
	if p.rests > 0 && p.rests < e.rests && p.chargeEpoch == e.chargeEpoch {
		return true
	}
	for _, m := range g.candidates {
		if next := m.q.pendingQueue.Next(); next != nil && !g.comesBefore(next, m.q) {
			return false
		}
		if g := m.q.cohortTree; g == l.q.cohortTree || !g.isDirty {
			continue
		}
		for _, q := range m.q.cohortTree.awake {
			if next := q.pendingQueue.Next(); next != nil && q != m.q && next.Compare(m.s.element.Position) < 0 && !g.has(next.Member) {
				return false
			}
		}
	}
	return true
}

// has reports whether a stage is in the group candidate.
func (g *groupCandidate) has(s *stage) bool {
	return slices.ContainsFunc(g.candidates, func(l *candidate) bool { return l.s == s })
}

// comesBefore reports whether a member is this stage, or precedes it in its queue.
func (g *groupCandidate) comesBefore(other *element, q *clusterQueue) bool {
	return slices.ContainsFunc(g.candidates, func(l *candidate) bool {
		return l.q == q && (l.s.element == other || l.s.element.Precedes(other))
	})
}

// holdLine pauses a queue until every queue is idle, or a member of the group of its head is checked.
func (e *Engine) holdLine(l *candidate) {
	l.groupCandidate.coAdmissionGroup.pause = pause{e.rests, e.chargeEpoch}
	e.held = append(e.held, l.q)
}

// rest resumes the paused queues, once every queue is idle.
func (e *Engine) rest() {
	held := e.held
	e.held = nil
	e.rests++
	for _, q := range held {
		e.scheduleCycle(q)
	}
}

// A feasibility caches whether some demands fit together, each in its ClusterQueue, if nothing is charged.
type feasibility struct {
	revision      uint64
	queuedDemands []queuedDemand
	fits          bool
}

// A queuedDemand is a demand in a ClusterQueue.
type queuedDemand struct {
	demand *demand
	queue  *clusterQueue
}

// fitsAtBest reports whether all members, including those that hold quota already, would fit together if nothing were charged.
func (e *Engine) fitsAtBest(g *groupCandidate) bool {
	var queuedDemands []queuedDemand
	for _, l := range g.candidates {
		queuedDemands = append(queuedDemands, queuedDemand{l.s.demand, l.q})
	}
	for _, s := range g.coAdmissionGroup.sorted(isHolding) {
		queuedDemands = append(queuedDemands, queuedDemand{s.demand, s.entry.clusterQueue})
	}
	if f := &g.coAdmissionGroup.feasibility; f.revision != e.revision || !slices.Equal(f.queuedDemands, queuedDemands) {
		*f = feasibility{revision: e.revision, queuedDemands: queuedDemands, fits: e.packAtBest(queuedDemands)}
	}
	return g.coAdmissionGroup.feasibility.fits
}

func (e *Engine) packAtBest(queuedDemands []queuedDemand) bool {
	p := packing{tree: e.safetyTree, budget: flavor.MaxChoices*4 + len(queuedDemands)}
	for _, queuedDemand := range queuedDemands {
		p.parts = append(p.parts, part{node: queuedDemand.queue.bare, items: e.offer(queuedDemand.demand, queuedDemand.queue).items})
	}
	return e.safetyTree.WhatIf(func() bool {
		var emptied []*quota.Node
		for _, queuedDemand := range queuedDemands {
			root := queuedDemand.queue.bare.Root()
			if slices.Contains(emptied, root) {
				continue
			}
			emptied = append(emptied, root)
			for _, c := range e.bank.ClaimsUnderRoot(queuedDemand.queue.bare) {
				c.Node.Release(c.Held)
			}
		}
		return p.place(0)
	})
}

// pack selects a choice for each member with which all fit at once.
func (e *Engine) pack(g *groupCandidate) bool {
	p := packing{tree: e.tree, budget: flavor.MaxChoices*4 + len(g.candidates)}
	for _, l := range g.candidates {
		p.parts = append(p.parts, part{node: l.q.node, items: l.items, preferred: l.choice})
	}
	if !p.place(0) {
		return false
	}
	for i, l := range g.candidates {
		l.choose(p.parts[i].choice)
	}
	return true
}

// A packing is a search for choices of flavors with which several parts fit at once.
type packing struct {
	tree  *quota.Tree
	parts []part
	// budget is how many more choices may be tried.
	budget int
}

// A part is the demand in one ClusterQueue.
type part struct {
	node              *quota.Node
	items             []flavor.Item
	preferred, choice flavor.Choice
}

// place searches choices for the parts from the i-th on.
func (p *packing) place(i int) bool {
	if i == len(p.parts) {
		return true
	}
	part := &p.parts[i]
	if part.preferred != nil && p.tryChoice(i, part.preferred) {
		return true
	}
	for choice := range flavor.Choices(part.items, flavor.MaxChoices) {
		if p.budget <= 0 {
			return false
		}
		if !slices.Equal(choice, part.preferred) && p.tryChoice(i, choice) {
			return true
		}
	}
	return false
}

func (p *packing) tryChoice(i int, choice flavor.Choice) bool {
	p.budget--
	part := &p.parts[i]
	usage := choice.Usage(part.items)
	if !part.node.Fits(usage) {
		return false
	}
	part.choice = slices.Clone(choice)
	return p.tree.WhatIf(func() bool {
		part.node.Charge(usage)
		return p.place(i + 1)
	})
}

func compareCoAdmissionGroups(a, b *coAdmissionGroup) int { return strings.Compare(a.id, b.id) }
