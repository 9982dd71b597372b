package scope

import (
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/snapshot"
)

// Unshown returns why the running manager may report something else about the quota Workloads of a part of a snapshot than an engine does that has just
// read it, or "". The manager reserves quota in memory, and the objects of a snapshot do not show which: the engine that reads them reserves as after a
// restart. Where ClusterQueues of one Cohort compete, that can be for other stages.
func Unshown(part *snapshot.Snapshot) string {
	var members []*kueue.ClusterQueue
	for _, q := range part.ClusterQueues {
		if q.Spec.CohortName != "" {
			members = append(members, q)
		}
	}
	if len(members) < 2 {
		return ""
	}
	var reasons []string
	if reservesPeaks(part, members) {
		reasons = append(reasons, "for later stages of JobSets with the policy Reserve")
	}
	if slices.ContainsFunc(members, preempts) {
		reasons = append(reasons, "for stages that preempt others, until these have released theirs")
	}
	if slices.ContainsFunc(members, func(q *kueue.ClusterQueue) bool { return q.Spec.QueueingStrategy == kueue.StrictFIFO }) {
		reasons = append(reasons, "for the first of a StrictFIFO queue")
	}
	if len(reasons) == 0 {
		return ""
	}
	return fmt.Sprintf("amounts of free quota, and which check fails first, may differ from those of the running manager: it can hold quota of the Cohort back in "+
		"its memory, which no object shows, %s", strings.Join(reasons, ", or "))
}

// reservesPeaks reports whether a JobSet may have the policy Reserve.
func reservesPeaks(part *snapshot.Snapshot, members []*kueue.ClusterQueue) bool {
	isReserve := func(policy string) bool { return policy == admission.Reserve }
	return part.Configuration != nil && isReserve(string(part.Configuration.StageAdmission)) ||
		slices.ContainsFunc(members, func(q *kueue.ClusterQueue) bool { return isReserve(q.Annotations[apis.StageAdmissionAnnotation]) }) ||
		slices.ContainsFunc(part.JobSets, func(js *jobsetapi.JobSet) bool { return isReserve(js.Annotations[apis.StageAdmissionAnnotation]) })
}

// preempts reports whether a ClusterQueue has a preemption policy.
func preempts(q *kueue.ClusterQueue) bool {
	p := q.Spec.Preemption
	return p != nil && (isPolicy(p.WithinClusterQueue) || isPolicy(p.ReclaimWithinCohort))
}

func isPolicy(p kueue.PreemptionPolicy) bool { return p != "" && p != kueue.PreemptionPolicyNever }
