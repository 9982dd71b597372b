package replay

import (
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// An Execution is the time for which the pods of a Job of a JobSet run. In a JobSet that is admitted as a whole they run from when the stages before
// them have reached what they wait for.
type Execution struct {
	Job
	// Started is when the pods start, Ready when they are ready, or zero if they are not before their end, and Ended when they end or are stopped.
	Started, Ready, Ended time.Time
}

// begin returns the Execution of a Job whose pods start after a lag, and that nothing stops before its end.
func begin(job Job, at time.Time, starts lag, took *Course) Execution {
	e := Execution{Job: job, Started: at.Add(starts.after)}
	if took.GetsReady {
		e.Ready = e.Started.Add(took.Ready)
	}
	if took.Ends {
		e.Ended = e.Started.Add(took.Run)
	}
	return e
}

// execute adds an Execution. The JobSet has restarted if it is one of a later attempt: then those of earlier attempts have been stopped.
func (r *Result) execute(e *Execution) {
	for i := range r.Executions {
		if r.Executions[i].Attempt < e.Attempt {
			r.Executions[i].stop(e.Started)
		}
	}
	r.Executions = append(r.Executions, *e)
}

// stop ends what a quota Workload with these pod sets still runs: it no longer holds quota.
func (r *Result) stop(podSets []kueue.PodSetReference, now time.Time) {
	r.Executions = slices.DeleteFunc(r.Executions, func(e Execution) bool {
		return slices.Contains(podSets, kueue.NewPodSetReference(e.ReplicatedJob)) && !e.Started.Before(now)
	})
	for i := range r.Executions {
		if slices.Contains(podSets, kueue.NewPodSetReference(r.Executions[i].ReplicatedJob)) {
			r.Executions[i].stop(now)
		}
	}
}

func (e *Execution) stop(now time.Time) {
	if e.Ended.IsZero() || e.Ended.After(now) {
		e.Ended = now
	}
	if e.Ready.After(e.Ended) {
		e.Ready = time.Time{}
	}
}
