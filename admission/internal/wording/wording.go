// Package wording has the names and amounts in messages for the owners of stages.
package wording

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// MostNamed limits the JobSets, or combinations of flavors, that a message names.
const MostNamed = 4

// A Wording words what a Model has.
type Wording struct{ Model *model.Model }

// NameFor returns the name of another stage for the owner of a stage. Objects of other namespaces are not disclosed.
func (w Wording) NameFor(reader, other *model.Stage) string {
	j := w.Model.JobSets[other.OwnerUID]
	isJobSet := j != nil && j.IsKnown() && j.Owner.Kind == decision.JobSetOwner
	switch isForeign := other.Key.Namespace != reader.Key.Namespace; {
	case isJobSet && isForeign:
		return "a JobSet of another namespace"
	case isForeign:
		return "a quota Workload of another namespace"
	case isJobSet && len(j.Plan.Stages) > 1 && other.Index >= 0 && other.Index < len(j.Plan.Stages):
		return fmt.Sprintf("stage %q of JobSet %q", j.Plan.Stages[other.Index].Name, j.Owner.Key.Name)
	case isJobSet:
		return fmt.Sprintf("JobSet %q", j.Owner.Key.Name)
	}
	return fmt.Sprintf("quota Workload %q", other.Key.Name)
}

// Others names the other owners of the namespace among some claims, with their kind if it is another one than its own, and counts those
// of other namespaces, which are not disclosed.
func (w Wording) Others(own decision.Owner, claims []*safety.Claim) []string {
	const most = 3
	var others []string
	strangers := 0
	for _, c := range claims {
		owner, exists := w.OwnerOf(c)
		switch {
		case !exists || owner == own:
		case owner.Key.Namespace != own.Key.Namespace:
			strangers++
		case owner.Kind != own.Kind:
			others = append(others, fmt.Sprintf("%s %s", owner.Kind, owner.Key))
		default:
			others = append(others, owner.Key.String())
		}
	}
	slices.Sort(others)
	if len(others) > most {
		others = append(others[:most], fmt.Sprintf("%d more", len(others)-most))
	}
	switch {
	case strangers == 1:
		others = append(others, "1 of another namespace")
	case strangers > 1:
		others = append(others, fmt.Sprintf("%d of other namespaces", strangers))
	}
	return others
}

// LeftFor describes how much would stay free of the resource that a blocked JobSet needs most.
func (w Wording) LeftFor(q *model.ClusterQueue, blocked []*safety.Claim, usage quota.Usage) string {
	for _, c := range blocked {
		for _, peak := range c.Peaks {
			for fr, more := range w.Model.Tree.Index.ByName(peak.Without(c.Held)) {
				id := w.Model.Tree.Index.ID(fr)
				if left := q.Node.Available(id).Minus(usage.Of(id)); more > left {
					return fmt.Sprintf("%s of %s %s of flavor %s would stay free, and up to %s more may be needed at once",
						max(left, 0).Format(fr.Resource), q.Node.Capacity(id).Format(fr.Resource), fr.Resource, fr.Flavor, more.Format(fr.Resource))
				}
			}
		}
	}
	return "a later stage would have too little quota of its flavors"
}

// AboveMost returns which amounts of a usage exceed the capacity of the ClusterQueue.
func (w Wording) AboveMost(q *model.ClusterQueue, usage quota.Usage) []string {
	if q.WithinCapacity(usage) {
		return nil
	}
	var above []string
	for fr, a := range w.Model.Tree.Index.ByName(usage) {
		if most := q.Node.Capacity(w.Model.Tree.Index.ID(fr)); a > most {
			above = append(above, fmt.Sprintf("%s %s of flavor %s, but the quota is %s", a.Format(fr.Resource), fr.Resource, fr.Flavor, most.Format(fr.Resource)))
		}
	}
	return above
}

// List formats amounts.
func (w Wording) List(u quota.Usage) string {
	var parts []string
	for fr, a := range w.Model.Tree.Index.ByName(u) {
		parts = append(parts, fmt.Sprintf("%s %s of flavor %s", a.Format(fr.Resource), fr.Resource, fr.Flavor))
	}
	return strings.Join(parts, " and ")
}

// HoldersInDeadlock describes what a JobSet holds and needs, and what the others hold. Objects of other namespaces are not disclosed.
func (w Wording) HoldersInDeadlock(j *model.JobSet, needs string) []string {
	own := "this JobSet needs " + needs
	var parts []string
	strangers, theirs := 0, quota.Usage{}
	for _, c := range j.Deadlock {
		switch owner, exists := w.OwnerOf(c); {
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
	if len(parts) > MostNamed {
		parts = append(parts[:MostNamed], fmt.Sprintf("%d more JobSets", len(parts)-MostNamed))
	}
	switch {
	case strangers == 1:
		parts = append(parts, "a JobSet of another namespace holds "+w.listOrNothing(theirs))
	case strangers > 1:
		parts = append(parts, fmt.Sprintf("%d JobSets of other namespaces hold %s", strangers, w.listOrNothing(theirs)))
	}
	return append([]string{own}, parts...)
}

func (w Wording) listOrNothing(u quota.Usage) string {
	if len(u) == 0 {
		return "no quota"
	}
	return w.List(u)
}

// Needs names ClusterQueues as the subject of what they use, or reserve for their own stages.
func Needs(queues []*model.ClusterQueue) string {
	if len(queues) == 1 {
		return "ClusterQueue " + queues[0].Name + " needs"
	}
	var names []string
	for _, q := range queues {
		names = append(names, q.Name)
	}
	if len(names) > MostNamed {
		names = append(names[:MostNamed], fmt.Sprintf("%d more", len(names)-MostNamed))
	}
	return "ClusterQueues " + strings.Join(names, ", ") + " need"
}

// MinimumRuntime says until when the next stage runs that may be preempted then, or nothing if there is none.
func MinimumRuntime(until time.Time) string {
	if until.IsZero() {
		return ""
	}
	return "; stages that it may preempt run for their minimum runtime first, the next until " + until.UTC().Format(time.RFC3339)
}

// OwnerOf returns the owner of a claim, and whether it still exists: a recorded claim can outlive it until the next scheduling cycle.
func (w Wording) OwnerOf(c *safety.Claim) (owner decision.Owner, exists bool) {
	j := w.Model.JobSets[c.OwnerUID]
	if j == nil {
		return decision.Owner{}, false
	}
	return j.Owner, true
}

// Notice says until when the last victim of a stage has notice, or nothing if none has.
func (w Wording) Notice(preemptor *model.Stage) string {
	var last time.Time
	for s, ends := range w.Model.Notices.All() {
		if n := s.CurrentNotice(); n != nil && !s.IsEvicting() && n.Preemption.PreemptorUID == preemptor.UID && ends.After(last) {
			last = ends
		}
	}
	if last.IsZero() {
		return ""
	}
	return "; they have notice until " + last.UTC().Format(time.RFC3339)
}
