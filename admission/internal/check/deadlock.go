package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/wording"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/apis"
)

// asksAtHome reports whether a stage waits in the ClusterQueue in which its JobSet holds quota. If an administrator has moved its LocalQueue, the
// stage waits in another ClusterQueue.
func (l *Candidate) asksAtHome() bool {
	return l.JobSet != nil && l.JobSet.ClaimQueue == l.Queue && !l.Stage.IsGrowth
}

// MayBeDeadlocked reports whether a candidate was refused under policy Greedy because it waits for quota of the ClusterQueue in which its JobSet holds some.
func (l *Candidate) MayBeDeadlocked() bool { return l.mayBeDeadlocked }

// suspectDeadlock notes that of a candidate.
func (l *Candidate) suspectDeadlock() {
	if l.asksAtHome() && l.JobSet.Claim != nil && l.JobSet.Claim.Mode == safety.Unguarded {
		l.mayBeDeadlocked = true
		l.wait(l.JobSet.Topic, 0)
	}
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
		if text := ck.List(usage); !slices.Contains(needs, text) && len(needs) < wording.MostNamed {
			needs = append(needs, text)
		}
	}
	parts := ck.HoldersInDeadlock(l.JobSet, strings.Join(needs, ", or "))
	return &decision.Refusal{
		Check: QuotaIsFree, Reason: apis.DeadlockedReason, Message: "Deadlocked: " + fmt.Sprintf(what, l.Queue.Name, strings.Join(parts, "; ")),
	}
}
