package jobset

import (
	"context"
	"slices"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// choosePlan returns the plan that admits all stages together if another engine admits, and nothing protects the JobSet from a deadlock with its
// stages. A JobSet that has quota Workloads keeps the plan that they were made for. Until the queues of another JobSet are known it has no plan, and
// the reason becomes s.Refusal.
func (r *Reconciler) choosePlan(ctx context.Context, s *jobsetstate.Snapshot, plan *stageplan.Plan) (*stageplan.Plan, error) {
	if r.config.Safety == nil || s.IsUnqueued || !plan.HoldsAndWaits() {
		return plan, nil
	}
	if len(s.Owned.Workloads) > 0 {
		return keptPlan(plan, s.Owned.Workloads), nil
	}
	// The protection depends on the stage admission that the JobSet asks for, and the engine wakes only JobSets that it knows.
	r.config.Runner.Observe(observation(s.JobSet, plan))
	protection, err := r.config.Safety.Protection(ctx, s.JobSet)
	if err != nil {
		return nil, err
	}
	return firstPlan(s, plan, protection), nil
}

// firstPlan returns the plan of a JobSet without quota Workloads.
func firstPlan(s *jobsetstate.Snapshot, plan *stageplan.Plan, protection admission.Protection) *stageplan.Plan {
	s.Refusal = protection.Missing
	if protection.Lacks == "" || !startsInOrder(s.JobSet) {
		return plan
	}
	whole, err := stageplan.Whole(plan)
	if err != nil {
		return plan // its stages stay closed, with the reason
	}
	s.Whole = protection.Lacks
	return whole
}

// keptPlan returns the plan for which the quota Workloads of a JobSet were made: that of its stages, or the one that admits all stages together.
func keptPlan(plan *stageplan.Plan, workloads []*kueue.Workload) *stageplan.Plan {
	whole, err := stageplan.Whole(plan)
	if err == nil && slices.ContainsFunc(workloads, func(w *kueue.Workload) bool { return isWhole(w, whole) }) {
		return whole
	}
	return plan
}

// isWhole reports whether a quota Workload of a JobSet has all of its pod sets.
func isWhole(w *kueue.Workload, whole *stageplan.Plan) bool {
	return w.Labels[apis.StageIndexLabel] != "" && w.Labels[apis.GrowthLabel] == "" && len(w.Spec.PodSets) == len(whole.Stages[0].PodSets)
}

// startsInOrder reports whether the JobSet controller itself starts the ReplicatedJobs in the order of the stages, as it does for dependsOn. For InOrder
// it creates the Jobs of all of them while the JobSet is suspended, and those of one stage are released together.
func startsInOrder(js *jobsetapi.JobSet) bool {
	return js.Spec.StartupPolicy == nil || js.Spec.StartupPolicy.StartupPolicyOrder != jobset.InOrder && len(js.Spec.StartupPolicy.Rules) == 0
}
