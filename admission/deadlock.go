package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/queue"
)

// noteDeadlocks finds the JobSets under policy Greedy that wait for each other, and wakes the waiting stages of JobSets that have entered or left
// a deadlock, since their messages change. It returns true if there are such stages. No JobSet is evicted.
func (e *Engine) noteDeadlocks() bool {
	if len(e.suspects)+len(e.deadlocked) == 0 {
		return false
	}
	groups := map[*cohortTree]struct{}{}
	for _, all := range []map[*jobSet]struct{}{e.suspects, e.deadlocked} {
		for j := range all {
			if j.claimQueue != nil {
				groups[j.claimQueue.cohortTree] = struct{}{}
			}
		}
	}
	clear(e.suspects)
	now, changed := map[*jobSet]struct{}{}, false
	for _, g := range slices.SortedFunc(maps.Keys(groups), compareGroups) {
		members := e.findDeadlock(g)
		for _, c := range members {
			j := e.jobSets[c.Owner]
			now[j] = struct{}{}
			changed = e.setDeadlock(j, members) || changed
		}
	}
	for j := range e.deadlocked {
		if _, still := now[j]; !still {
			changed = e.setDeadlock(j, nil) || changed
		}
	}
	e.deadlocked = now
	return changed
}

// findDeadlock returns the claims of the JobSets of a group that wait for each other, by name.
func (e *Engine) findDeadlock(g *cohortTree) []*safety.Claim {
	members := e.bank.Deadlocked(g.queues[0].bare.Root(), e.asks)
	members = slices.DeleteFunc(members, func(c *safety.Claim) bool { return c.Mode != safety.Unguarded })
	slices.SortFunc(members, func(a, b *safety.Claim) int {
		return cmp.Or(cmp.Compare(a.JobSet, b.JobSet), cmp.Compare(a.Owner, b.Owner))
	})
	return members
}

// asks returns the needs of the stages of a JobSet that only wait for quota of the ClusterQueue in which the JobSet holds quota.
func (e *Engine) asks(c *safety.Claim) []quota.Usage {
	var needs []quota.Usage
	j := e.jobSets[c.Owner]
	for _, s := range j.members {
		if s.queuedIn != nil && s.queuedIn == j.claimQueue && s.lastRefusal.Check == quotaIsFree && !s.isGrowth {
			needs = append(needs, choices(e.offer(s.demand, s.queuedIn).items)...)
		}
	}
	return needs
}

// setDeadlock records the claims that wait for each other, among them that of the JobSet, and wakes its stages if they have changed.
func (e *Engine) setDeadlock(j *jobSet, members []*safety.Claim) bool {
	if slices.Equal(j.deadlock, members) {
		return false
	}
	j.deadlock = members
	if j.claimQueue == nil || j.claimQueue.cohortTree == nil {
		return false
	}
	e.wakeTopic(j.claimQueue.cohortTree, j.topic)
	return true
}

// asksAtHome reports whether a stage waits in the ClusterQueue in which its JobSet holds quota. If an administrator has moved its LocalQueue, the
// stage waits in another ClusterQueue.
func (l *candidate) asksAtHome() bool { return l.j != nil && l.j.claimQueue == l.q && !l.s.isGrowth }

// suspectDeadlock notes a stage under policy Greedy that waits for quota of the ClusterQueue in which its JobSet holds some.
func (e *Engine) suspectDeadlock(l *candidate) {
	if !l.asksAtHome() || l.j.claim == nil || l.j.claim.Mode != safety.Unguarded {
		return
	}
	e.suspects[l.j] = struct{}{}
	l.waits = append(l.waits, queue.Wait[quota.ID]{Topic: l.j.topic})
}

// deadlockRefusal returns which JobSets wait for each other, and what they hold, or nil if the JobSet is in no deadlock. It does not mention the
// free quota, which changes while the deadlock stays.
func (e *Engine) deadlockRefusal(l *candidate) *Refusal {
	if !l.asksAtHome() || len(l.j.deadlock) == 0 {
		return nil
	}
	what := "this JobSet waits in ClusterQueue %s for quota that it holds itself (policy Greedy), and cannot continue: %s; suspend or delete it"
	if len(l.j.deadlock) > 1 {
		what = "JobSets in ClusterQueue %s or its Cohort hold quota and wait for each other (policy Greedy), and none can continue: %s; suspend or delete one of them"
	}
	var needs []string
	for _, usage := range choices(l.items) {
		if text := e.list(usage); !slices.Contains(needs, text) && len(needs) < mostNamed {
			needs = append(needs, text)
		}
	}
	parts := e.holdersInDeadlock(l.j, strings.Join(needs, ", or "))
	return &Refusal{
		Check: quotaIsFree, Reason: apis.DeadlockedReason, Message: "Deadlocked: " + fmt.Sprintf(what, l.q.name, strings.Join(parts, "; ")),
	}
}

// mostNamed limits the JobSets, or combinations of flavors, that a message names.
const mostNamed = 4

// holdersInDeadlock describes what a JobSet holds and needs, and what the others hold. Objects of other namespaces are not disclosed.
func (e *Engine) holdersInDeadlock(j *jobSet, needs string) []string {
	own := "this JobSet needs " + needs
	var parts []string
	strangers, theirs := 0, quota.Usage{}
	for _, c := range j.deadlock {
		namespace, name, _ := strings.Cut(c.JobSet, "/")
		switch {
		case c.Owner == j.uid:
			own = fmt.Sprintf("this JobSet holds %s and needs %s", e.listOrNothing(c.Held), needs)
		case namespace == j.key.Namespace:
			parts = append(parts, fmt.Sprintf("JobSet %q holds %s", name, e.listOrNothing(c.Held)))
		default:
			strangers++
			theirs.AddAll(c.Held)
		}
	}
	if len(parts) > mostNamed {
		parts = append(parts[:mostNamed], fmt.Sprintf("%d more JobSets", len(parts)-mostNamed))
	}
	switch {
	case strangers == 1:
		parts = append(parts, "a JobSet of another namespace holds "+e.listOrNothing(theirs))
	case strangers > 1:
		parts = append(parts, fmt.Sprintf("%d JobSets of other namespaces hold %s", strangers, e.listOrNothing(theirs)))
	}
	return append([]string{own}, parts...)
}

func (e *Engine) listOrNothing(u quota.Usage) string {
	if len(u) == 0 {
		return "no quota"
	}
	return e.list(u)
}
