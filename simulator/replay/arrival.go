package replay

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// An Arrival is a job that is submitted.
type Arrival struct {
	// At is when it is submitted.
	At time.Time
	// JobSet is the JobSet, or nil for a job of another kind, which has Workload as its quota Workload.
	JobSet   *jobsetapi.JobSet
	Workload *kueue.Workload
	// Deleted is when its user deletes it before it has finished, or zero.
	Deleted time.Time
	// Jobs has how long the child Jobs of the JobSet take. Attempts are counted from 0: one that is missing takes as long as the last one before it that
	// is known. A Job that is not known is ready at once and never ends.
	Jobs map[Job]Course
	// Run is how long the pods of the job of another kind take, or zero if they never end.
	Run time.Duration
}

// A Job identifies a child Job of a JobSet.
type Job struct {
	ReplicatedJob string
	Index         int
	Attempt       int
}

// A Course is how long after its start a Job is ready and ends.
type Course struct {
	Ready, Run time.Duration
	// GetsReady is false if it is never ready before it ends, and Ends if it never ends.
	GetsReady, Ends bool
	// Fails is true if it fails at its end.
	Fails bool
}

// Key returns the namespace and name of a job.
func (a *Arrival) Key() types.NamespacedName {
	if a.JobSet != nil {
		return types.NamespacedName{Namespace: a.JobSet.Namespace, Name: a.JobSet.Name}
	}
	return types.NamespacedName{Namespace: a.Workload.Namespace, Name: a.Workload.Name}
}

// jobs returns how many child Jobs a JobSet has.
func (a *Arrival) jobs() int {
	sum := 0
	for i := range a.JobSet.Spec.ReplicatedJobs {
		sum += int(a.JobSet.Spec.ReplicatedJobs[i].Replicas)
	}
	return sum
}

// courseOf returns the Course of a Job in an attempt.
func (a *Arrival) courseOf(job Job) Course {
	for ; job.Attempt >= 0; job.Attempt-- {
		if c, isKnown := a.Jobs[job]; isKnown {
			return c
		}
	}
	return Course{GetsReady: true}
}

// whole returns the JobSet without its stages: all ReplicatedJobs start together.
func whole(js *jobsetapi.JobSet) *jobsetapi.JobSet {
	all := js.DeepCopy()
	all.Spec.StartupPolicy = nil
	for i := range all.Spec.ReplicatedJobs {
		all.Spec.ReplicatedJobs[i].DependsOn = nil
	}
	return all
}

// A lag is how long after the start of a JobSet a ReplicatedJob can start if no stage waits for quota. It never starts if isNever is true.
type lag struct {
	after   time.Duration
	isNever bool
}

// lags returns the lag of each ReplicatedJob of a JobSet in an attempt. They are zero if the plan is wrong: then the JobSet is refused.
func (a *Arrival) lags(attempt int) map[string]lag {
	plan, err := stageplan.New(&a.JobSet.Spec)
	if err != nil {
		return nil
	}
	replicas := map[string]int32{}
	for i := range a.JobSet.Spec.ReplicatedJobs {
		replicas[a.JobSet.Spec.ReplicatedJobs[i].Name] = a.JobSet.Spec.ReplicatedJobs[i].Replicas
	}
	all := map[string]lag{}
	for i := range plan.Stages {
		opens := lag{}
		for _, condition := range plan.Stages[i].After {
			for _, target := range condition.Targets {
				opens = later(opens, a.reached(target, int(replicas[target]), attempt, all[target], condition.Status))
			}
		}
		for _, name := range plan.Stages[i].ReplicatedJobs {
			all[name] = opens
		}
	}
	return all
}

// reached returns when all Jobs of a ReplicatedJob that starts with a lag have a status.
func (a *Arrival) reached(replicatedJob string, replicas, attempt int, starts lag, status stageplan.Status) lag {
	at := starts
	for index := range replicas {
		c := a.courseOf(Job{replicatedJob, index, attempt})
		one := lag{after: starts.after + c.Run, isNever: starts.isNever || !c.Ends || c.Fails}
		if status == stageplan.Ready && c.GetsReady {
			one = lag{after: starts.after + c.Ready, isNever: starts.isNever}
		}
		at = later(at, one)
	}
	return at
}

// Alone returns how long the JobSet takes in its first attempt if no stage waits for quota. It does not count what never ends.
func (a *Arrival) Alone() time.Duration {
	all := time.Duration(0)
	lags := a.lags(0)
	for i := range a.JobSet.Spec.ReplicatedJobs {
		job := &a.JobSet.Spec.ReplicatedJobs[i]
		for index := range int(job.Replicas) {
			all = max(all, lags[job.Name].after+a.courseOf(Job{job.Name, index, 0}).Run)
		}
	}
	return all
}

func later(a, b lag) lag {
	return lag{after: max(a.after, b.after), isNever: a.isNever || b.isNever}
}

// IsStaged reports whether the ReplicatedJobs of a JobSet start one after the other.
func IsStaged(js *jobsetapi.JobSet) bool {
	return js.Spec.StartupPolicy != nil && (js.Spec.StartupPolicy.StartupPolicyOrder == jobset.InOrder || len(js.Spec.StartupPolicy.Rules) > 0) ||
		slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return len(r.DependsOn) > 0 })
}
