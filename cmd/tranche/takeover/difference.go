package takeover

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A difference is what Tranche does otherwise than Kueue in ClusterQueues. A part of docs/migrate-from-kueue.md#different is about the mode Instead only.
type difference struct {
	text string
	// isFor reports whether it can show in a ClusterQueue. Without it, it can in all.
	isFor func(*kueue.ClusterQueue) bool
}

// allDifferences returns what can differ: first what is about the order and quota, then about preemption, and about single settings.
func allDifferences() []difference {
	return []difference{
		{text: "as many Workloads are admitted at once as fit, not one for each ClusterQueue in a cycle"},
		{text: "a Workload that was evicted keeps its place after preemption and the stop of a queue, and otherwise queues behind earlier ones; in Kueue it keeps its place " +
			"unless its pods were not ready in time or an AdmissionCheck failed"},
		{text: "a stage of a JobSet has the place of the JobSet's creation, and comes first at equal priority once the JobSet has begun; in Kueue it has the place of its " +
			"Workload's creation"},
		{text: "a Workload tries all flavors on each attempt, not those behind the last one"},
		{"pod sets whose flavors do not fit together get the first combination that fits, now or after preemption", choosesFlavors},
		{text: "fairSharing and admissionFairSharing do not apply; resources are those of Tranche's configuration; waitForPodsReady stays Kueue's"},
		{text: "why a Workload waits is in its condition tranche.dev/Waiting; Kueue writes that the ClusterQueue is inactive"},
		{"quota is reserved for a Workload that has waited for reservation.after of Tranche's configuration, if that is set: smaller ones no longer overtake it without end", isBestEffort},
		{"the quota of a preemptor is reserved until its victims have terminated, and the same Workload is not preempted without end", preempts},
		{"several Workloads of a ClusterQueue can preempt at the same time, and an admission that is not written yet is rolled back instead of preempted", preempts},
		{"a stage of a JobSet reclaims quota only if all that its JobSet may hold at once could be reclaimed", reclaims},
		{"a JobSet that has finished a stage is not preempted at equal priority, except by another one that has begun", preemptsEqual},
		{"the head of a StrictFIFO queue blocks no other if it can never fit, and does not keep quota that it would have to borrow", isStrict},
		{"nominal quota that the head of a StrictFIFO queue cannot surely reclaim is kept from Workloads that would borrow it, not from those after it", isStrict},
		{"quota that a lendingLimit excludes from lending is available to its owner also while the Cohort uses more than it has", limitsLending},
		{"AdmissionChecks for stage safety are Ready with the admission: stages are admitted only if that is safe", isChecked},
		{text: "more: docs/migrate-from-kueue.md#different"},
	}
}

// differences lists what Tranche does otherwise than Kueue in these ClusterQueues.
func (s *state) differences() []string {
	var lines []string
	for _, d := range allDifferences() {
		if d.isFor == nil || slices.ContainsFunc(s.names, func(name string) bool { return d.isFor(s.queues[name]) }) {
			lines = append(lines, d.text)
		}
	}
	return lines
}

func isStrict(q *kueue.ClusterQueue) bool { return q.Spec.QueueingStrategy == kueue.StrictFIFO }

func isBestEffort(q *kueue.ClusterQueue) bool { return !isStrict(q) }

func isChecked(q *kueue.ClusterQueue) bool { return q.Spec.AdmissionChecksStrategy != nil }

func preempts(q *kueue.ClusterQueue) bool {
	return reclaims(q) || q.Spec.Preemption != nil && isSet(q.Spec.Preemption.WithinClusterQueue)
}

func reclaims(q *kueue.ClusterQueue) bool {
	return q.Spec.Preemption != nil && isSet(q.Spec.Preemption.ReclaimWithinCohort)
}

func preemptsEqual(q *kueue.ClusterQueue) bool {
	return q.Spec.Preemption != nil && q.Spec.Preemption.WithinClusterQueue == kueue.PreemptionPolicyLowerOrNewerEqualPriority
}

// isSet reports whether a policy of preemption allows any victim.
func isSet(policy kueue.PreemptionPolicy) bool {
	return policy != "" && policy != kueue.PreemptionPolicyNever
}

func choosesFlavors(q *kueue.ClusterQueue) bool {
	return slices.ContainsFunc(q.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool { return len(g.Flavors) > 1 })
}

func limitsLending(q *kueue.ClusterQueue) bool {
	for i := range q.Spec.ResourceGroups {
		for k := range q.Spec.ResourceGroups[i].Flavors {
			of := q.Spec.ResourceGroups[i].Flavors[k].Resources
			if slices.ContainsFunc(of, func(r kueue.ResourceQuota) bool { return r.LendingLimit != nil }) {
				return true
			}
		}
	}
	return false
}
