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

// noteDeadlocks finds the JobSets under policy Greedy that wait for each other, and wakes the waiting stages of those that have come to do so, or
// no longer do: their messages change. It returns true if there are such stages. No JobSet is evicted.
func (e *Engine) noteDeadlocks() bool {
	if len(e.suspects)+len(e.deadlocked) == 0 {
		return false
	}
	groups := map[*group]struct{}{}
	for _, all := range []map[*jobSet]struct{}{e.suspects, e.deadlocked} {
		for j := range all {
			if j.home != nil {
				groups[j.home.group] = struct{}{}
			}
		}
	}
	now := map[*jobSet]struct{}{}
	for _, g := range slices.SortedFunc(maps.Keys(groups), compareGroups) {
		e.findDeadlock(g, now)
	}
	changed := false
	for j := range e.deadlocked {
		if _, still := now[j]; !still {
			changed = e.setDeadlock(j, nil) || changed
		}
	}
	clear(e.suspects)
	for j := range now {
		members := slices.SortedFunc(maps.Keys(now), compareJobSets)
		members = slices.DeleteFunc(members, func(other *jobSet) bool { return other == j || other.home.group != j.home.group })
		changed = e.setDeadlock(j, append([]*jobSet{j}, members...)) || changed
	}
	e.deadlocked = now
	return changed
}

// findDeadlock adds the JobSets of a group that wait for each other.
func (e *Engine) findDeadlock(g *group, to map[*jobSet]struct{}) {
	for _, c := range e.bank.Deadlocked(g.queues[0].bare.Root(), e.asks) {
		if c.Regard == safety.Unguarded {
			to[e.jobSets[c.Owner]] = struct{}{}
		}
	}
}

// asks returns what the stages of a JobSet need that wait for nothing but quota.
func (e *Engine) asks(c *safety.Claim) []quota.Usage {
	var needs []quota.Usage
	for _, s := range e.jobSets[c.Owner].members {
		if s.line != nil && s.told.Check == quotaIsFree && !s.isGrowth {
			needs = append(needs, choices(e.offer(s.shape, s.line).items)...)
		}
	}
	return needs
}

// setDeadlock notes who waits for each other, the JobSet first, and wakes its stages if that has changed.
func (e *Engine) setDeadlock(j *jobSet, members []*jobSet) bool {
	if slices.Equal(j.deadlock, members) {
		return false
	}
	j.deadlock = members
	if j.home == nil || j.home.group == nil {
		return false
	}
	e.wakeTopic(j.home.group, j.topic)
	return true
}

func compareJobSets(a, b *jobSet) int {
	return cmp.Or(compareKeys(a.key, b.key), cmp.Compare(a.uid, b.uid))
}

// suspectDeadlock notes a stage under policy Greedy that waits for quota while its JobSet holds some.
func (e *Engine) suspectDeadlock(l *look) {
	if l.j == nil || l.j.claim == nil || l.j.claim.Regard != safety.Unguarded || l.s.isGrowth {
		return
	}
	e.suspects[l.j] = struct{}{}
	l.waits = append(l.waits, queue.Wait[quota.ID]{Topic: l.j.topic})
}

// deadlockRefusal says which JobSets wait for each other, and what they hold, or is nil if the JobSet is in no deadlock.
func (e *Engine) deadlockRefusal(l *look, needs string) *Refusal {
	if l.j == nil || len(l.j.deadlock) == 0 || l.s.isGrowth {
		return nil
	}
	what := "this JobSet waits in ClusterQueue %s for quota that it holds itself (policy Greedy), and cannot continue: %s; suspend or delete it"
	if len(l.j.deadlock) > 1 {
		what = "JobSets in ClusterQueue %s or its Cohort hold quota and wait for each other (policy Greedy), and none can continue: %s; suspend or delete one of them"
	}
	parts := []string{fmt.Sprintf("this JobSet holds %s and needs %s", e.heldBy(l.j), needs)}
	parts = append(parts, e.othersInDeadlock(l.j)...)
	return &Refusal{
		Check: quotaIsFree, Reason: apis.DeadlockedReason, Message: "Deadlocked: " + fmt.Sprintf(what, l.q.name, strings.Join(parts, "; ")),
	}
}

// othersInDeadlock says what the others hold. What exists in other namespaces is not disclosed.
func (e *Engine) othersInDeadlock(j *jobSet) []string {
	const most = 4
	var parts []string
	strangers, theirs := 0, quota.Usage{}
	for _, other := range j.deadlock[1:] {
		switch {
		case other.claim == nil:
		case other.key.Namespace == j.key.Namespace:
			parts = append(parts, fmt.Sprintf("JobSet %q holds %s", other.key.Name, e.heldBy(other)))
		default:
			strangers++
			theirs.AddAll(other.claim.Held)
		}
	}
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("%d more JobSets", len(parts)-most))
	}
	switch {
	case strangers == 1:
		parts = append(parts, "a JobSet of another namespace holds "+e.listOrNothing(theirs))
	case strangers > 1:
		parts = append(parts, fmt.Sprintf("%d JobSets of other namespaces hold %s", strangers, e.listOrNothing(theirs)))
	}
	return parts
}

func (e *Engine) heldBy(j *jobSet) string {
	if j.claim == nil {
		return e.listOrNothing(nil)
	}
	return e.listOrNothing(j.claim.Held)
}

func (e *Engine) listOrNothing(u quota.Usage) string {
	if len(u) == 0 {
		return "no quota"
	}
	return e.list(u)
}
