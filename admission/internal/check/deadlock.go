package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/apis"
)

// asksAtHome reports whether a stage waits in the ClusterQueue in which its JobSet holds quota. If an administrator has moved its LocalQueue, the
// stage waits in another ClusterQueue.
func (l *Candidate) asksAtHome() bool {
	return l.JobSet != nil && l.JobSet.ClaimQueue == l.Queue && !l.Stage.IsGrowth
}

// suspectDeadlock notes a stage under policy Greedy that waits for quota of the ClusterQueue in which its JobSet holds some.
func (ck *Checker) suspectDeadlock(l *Candidate) {
	if !l.asksAtHome() || l.JobSet.Claim == nil || l.JobSet.Claim.Mode != safety.Unguarded {
		return
	}
	ck.Suspects[l.JobSet] = struct{}{}
	l.wait(l.JobSet.Topic, 0)
}

// deadlockRefusal returns which JobSets wait for each other, and what they hold, or nil if the JobSet is in no deadlock. It does not mention the
// free quota, which changes while the deadlock stays.
func (ck *Checker) deadlockRefusal(l *Candidate) *decision.Refusal {
	if !l.asksAtHome() || len(l.JobSet.Deadlock) == 0 {
		return nil
	}
	what := "this JobSet waits in ClusterQueue %s for quota that it holds itself (policy Greedy), and cannot continue: %s; suspend or delete it"
	if len(l.JobSet.Deadlock) > 1 {
		what = "JobSets in ClusterQueue %s or its Cohort hold quota and wait for each other (policy Greedy), and none can continue: %s; suspend or delete one of them"
	}
	var needs []string
	for _, usage := range Choices(l.Items) {
		if text := ck.List(usage); !slices.Contains(needs, text) && len(needs) < mostNamed {
			needs = append(needs, text)
		}
	}
	parts := ck.holdersInDeadlock(l.JobSet, strings.Join(needs, ", or "))
	return &decision.Refusal{
		Check: QuotaIsFree, Reason: apis.DeadlockedReason, Message: "Deadlocked: " + fmt.Sprintf(what, l.Queue.Name, strings.Join(parts, "; ")),
	}
}

// mostNamed limits the JobSets, or combinations of flavors, that a message names.
const mostNamed = 4

// holdersInDeadlock describes what a JobSet holds and needs, and what the others hold. Objects of other namespaces are not disclosed.
func (w wording) holdersInDeadlock(j *model.JobSet, needs string) []string {
	own := "this JobSet needs " + needs
	var parts []string
	strangers, theirs := 0, quota.Usage{}
	for _, c := range j.Deadlock {
		switch owner, exists := w.m.OwnerOf(c); {
		case !exists:
		case c.OwnerUID == j.UID:
			own = fmt.Sprintf("this JobSet holds %s and needs %s", w.listOrNothing(c.Held), needs)
		case owner.Key.Namespace == j.Owner.Key.Namespace:
			parts = append(parts, fmt.Sprintf("JobSet %q holds %s", owner.Key.Name, w.listOrNothing(c.Held)))
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
		parts = append(parts, "a JobSet of another namespace holds "+w.listOrNothing(theirs))
	case strangers > 1:
		parts = append(parts, fmt.Sprintf("%d JobSets of other namespaces hold %s", strangers, w.listOrNothing(theirs)))
	}
	return append([]string{own}, parts...)
}

func (w wording) listOrNothing(u quota.Usage) string {
	if len(u) == 0 {
		return "no quota"
	}
	return w.List(u)
}
