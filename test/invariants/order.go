package invariants

import (
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

// An order is what the ReplicatedJobs of a JobSet wait for, and which of that has happened.
type order struct {
	name     string
	replicas map[string]int
	// after has the start conditions of each ReplicatedJob.
	after map[string][]stageplan.Condition
	// jobs has the Jobs that have had a status, not all at the same time: the manager may be stricter. reached has the first resource version at which all Jobs
	// of a ReplicatedJob had reached it.
	jobs    map[milestone]map[types.UID]bool
	reached map[milestone]uint64
}

// A milestone is a status that a ReplicatedJob reaches in an attempt of its JobSet.
type milestone struct {
	attempt, replicatedJob string
	status                 stageplan.Status
}

// seeOrder records the order of a JobSet whose Jobs are all held when they are created. The plan of its first state counts.
func (a *Auditor) seeOrder(js *jobsetapi.JobSet) {
	o := a.orders[js.UID]
	if o == nil {
		isHeld := func(r jobsetapi.ReplicatedJob) bool {
			hold := r.Template.Labels[apis.HoldLabel]
			return hold == apis.HoldValue || hold == apis.HoldUnqueued
		}
		if slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return !isHeld(r) }) {
			return
		}
		plan, err := stageplan.NewUnqueued(&js.Spec)
		if err != nil {
			return
		}
		o = &order{
			name: js.Namespace + "/" + js.Name, replicas: map[string]int{}, after: map[string][]stageplan.Condition{},
			jobs: map[milestone]map[types.UID]bool{}, reached: map[milestone]uint64{},
		}
		for i := range plan.Stages {
			for _, name := range plan.Stages[i].ReplicatedJobs {
				o.after[name] = plan.Stages[i].After
			}
		}
		a.orders[js.UID] = o
	}
	for i := range js.Spec.ReplicatedJobs {
		o.replicas[js.Spec.ReplicatedJobs[i].Name] = int(js.Spec.ReplicatedJobs[i].Replicas)
	}
}

// seeProgress records that a Job of a JobSet is ready, or has succeeded.
func (a *Auditor) seeProgress(job *batchv1.Job, now moment) {
	o := a.orders[types.UID(job.Labels[jobset.JobSetUIDKey])]
	if o == nil {
		return
	}
	note := func(status stageplan.Status) {
		m := milestone{job.Labels[constants.RestartsKey], job.Labels[jobset.ReplicatedJobNameKey], status}
		if o.jobs[m] == nil {
			o.jobs[m] = map[types.UID]bool{}
		}
		o.jobs[m][job.UID] = true
		if o.reached[m] == 0 && len(o.jobs[m]) >= o.replicas[m.replicatedJob] {
			o.reached[m] = now.earliest
		}
	}
	switch {
	case childjob.IsFinished(job, batchv1.JobComplete):
		note(stageplan.Succeeded)
		note(stageplan.Ready)
	case childjob.IsReady(job):
		note(stageplan.Ready)
	}
}

// misordered returns the Jobs of JobSets whose first pods were there before what their ReplicatedJob waits for.
func (a *Auditor) misordered() []string {
	first := map[types.UID]*life{}
	for _, l := range a.pods {
		if a.orders[types.UID(l.jobSet)] != nil && (first[l.job] == nil || l.span.from < first[l.job].span.from) {
			first[l.job] = l
		}
	}
	var found []string
	for _, uid := range slices.Sorted(maps.Keys(first)) {
		l := first[uid]
		o := a.orders[types.UID(l.jobSet)]
		for _, c := range o.after[l.replicatedJob] {
			for _, target := range c.Targets {
				at := o.reached[milestone{l.pod.Labels[constants.RestartsKey], target, c.Status}]
				if o.replicas[target] > 0 && (at == 0 || at > l.span.from) && !a.mayHaveMissed(l) {
					found = append(found, fmt.Sprintf("order: pod %s of JobSet %s was there at %d, before %s was %s, at %d", l.name, o.name, l.span.from, target, c.Status, at))
				}
			}
		}
	}
	return found
}

// mayHaveMissed reports whether something could have happened before a pod without being watched. What was there at first was listed.
func (a *Auditor) mayHaveMissed(l *life) bool {
	return slices.ContainsFunc(a.gaps, func(gap span) bool {
		return gap.covers(span{l.span.from, l.span.from}) || gap.from > 1 && gap.from <= l.span.from
	})
}
