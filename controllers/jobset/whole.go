package jobset

import (
	"context"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// choosePlan returns the plan that admits all stages together if another engine admits, and nothing protects the JobSet from a deadlock with its
// stages. A JobSet that has quota Workloads keeps the plan that they were made for.
func (r *Reconciler) choosePlan(ctx context.Context, s *jobsetstate.Snapshot, plan *stageplan.Plan) (*stageplan.Plan, error) {
	if r.config.Safety == nil || s.IsUnqueued || !plan.HoldsAndWaits() || !startsInOrder(s.JobSet) {
		return plan, nil
	}
	whole, err := stageplan.Whole(plan)
	if err != nil {
		return plan, nil //nolint:nilerr // then its stages stay closed, with the reason
	}
	if len(s.Owned.Workloads) > 0 {
		if isWhole(s, whole) {
			return whole, nil
		}
		return plan, nil
	}
	if s.Whole, err = r.config.Safety.Unprotected(ctx, s.JobSet); err != nil || s.Whole == "" {
		return plan, err
	}
	return whole, nil
}

// isWhole reports whether a quota Workload of the JobSet has all of its pod sets.
func isWhole(s *jobsetstate.Snapshot, whole *stageplan.Plan) bool {
	for _, w := range s.Owned.Workloads {
		if w.Labels[apis.GrowthLabel] == "" && len(w.Spec.PodSets) == len(whole.Stages[0].PodSets) {
			return true
		}
	}
	return false
}

// startsInOrder reports whether the JobSet controller itself starts the ReplicatedJobs in the order of the stages, as it does for dependsOn. For InOrder
// it creates the Jobs of all of them while the JobSet is suspended, and those of one stage are released together.
func startsInOrder(js *jobsetapi.JobSet) bool {
	return js.Spec.StartupPolicy == nil || js.Spec.StartupPolicy.StartupPolicyOrder != jobset.InOrder && len(js.Spec.StartupPolicy.Rules) == 0
}
