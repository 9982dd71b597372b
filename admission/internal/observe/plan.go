package observe

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/internal/demand"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/safety"
)

func (o *Observer) dropIfForgotten(j *model.JobSet) {
	if !j.IsKnown() && len(j.Members) == 0 {
		o.m.Timers.Drop(&j.Timer)
		delete(o.m.JobSets, j.UID)
	}
}

func (ev PlanObserved) apply(o *Observer) {
	switch {
	case ev.Plan == nil:
		o.losePlan(ev.UID)
	case !o.tombstones.Has(ev.UID):
		o.adoptPlan(o.m.JobSet(ev.UID), ev)
	}
}

func (ev PlanGone) apply(o *Observer) {
	o.tombstones.Insert(ev.UID)
	o.losePlan(ev.UID)
}

// adoptPlan recomputes all that depends on the plan, and on what the API server adds to the pods of the namespace.
func (o *Observer) adoptPlan(j *model.JobSet, ev PlanObserved) {
	if !j.CheckpointedAt.Equal(ev.CheckpointedAt) {
		j.CheckpointedAt = ev.CheckpointedAt
		o.m.RenewEvictionUnitsOf(j)
	}
	stages, whole := o.m.Demand.DemandsOf(ev.Owner.Key.Namespace, ev.Plan)
	if j.IsKnown() && j.Demand.Key == whole.Key && j.Policy == ev.StageAdmission && j.Submitted.Equal(ev.Submitted) {
		return
	}
	before := append(j.Stages, j.Demand)
	j.Owner, j.Submitted, j.Policy, j.Plan = ev.Owner, ev.Submitted, ev.StageAdmission, ev.Plan
	j.PeakCheck, j.SizeHint = model.PeakCheck{}, demand.SizeHint{}
	j.Demand, j.Stages, j.Problem, j.PlanGraph = o.m.Demand.InternDemand(whole), nil, "", safety.NewPlanGraph(ev.Plan)
	for _, d := range stages {
		j.Stages = append(j.Stages, o.m.Demand.InternDemand(d))
		if j.Problem == "" {
			j.Problem = d.Problem
		}
	}
	for _, d := range before {
		o.m.Demand.ReleaseDemand(d)
	}
	j.Epoch++
	o.m.UpdateJobSet(j)
}

func (o *Observer) losePlan(uid types.UID) {
	j := o.m.JobSets[uid]
	if j == nil {
		return
	}
	for _, d := range append(j.Stages, j.Demand) {
		o.m.Demand.ReleaseDemand(d)
	}
	j.Plan, j.PlanGraph, j.Demand, j.Stages = nil, nil, nil, nil
	o.m.UpdateJobSet(j)
	o.m.Schedule.Unopened.Forget(j)
	o.dropIfForgotten(j)
}
