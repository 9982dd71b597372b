package stageplan

import "slices"

// HoldsAndWaits reports whether a JobSet may wait for quota of a stage while it holds quota of another.
func (p *Plan) HoldsAndWaits() bool {
	return slices.ContainsFunc(p.HoldSegments(), func(segment []int) bool { return len(segment) > 1 })
}

// Whole returns the plan of one stage that has all ReplicatedJobs of a plan: the JobSet controller still starts them in their order.
func Whole(p *Plan) (*Plan, error) {
	all := Stage{}
	for i := range p.Stages {
		all.ReplicatedJobs = append(all.ReplicatedJobs, p.Stages[i].ReplicatedJobs...)
		all.PodSets = append(all.PodSets, p.Stages[i].PodSets...)
	}
	if n := len(all.ReplicatedJobs); n > MaxReplicatedJobs {
		return nil, Problems{}.addf(replicatedJobsField, "has %d entries, and at most %d can be admitted together", n, MaxReplicatedJobs)
	}
	whole := &Plan{Stages: []Stage{all}}
	nameStages(whole.Stages)
	return whole, nil
}
