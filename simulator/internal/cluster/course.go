package cluster

import (
	"cmp"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A Course determines how long pods take.
type Course interface {
	// OfJob returns how the pods behave that a Job of a JobSet, or a queued Job, has started at a time, which may be before the run began.
	OfJob(j *UserJob, job *batchv1.Job, started time.Duration) Behavior
	// OfPodSet does the same for a pod set of a job that is no JobSet.
	OfPodSet(j *UserJob, podSet string, started time.Duration) Behavior
}

// AsSubmitted is the Course that each submission asks for.
type AsSubmitted struct{}

// OfJob returns what the submission says about the ReplicatedJob, or about the pod set of a queued Job.
func (AsSubmitted) OfJob(j *UserJob, job *batchv1.Job, _ time.Duration) Behavior {
	return j.behavior(cmp.Or(job.Labels[jobset.ReplicatedJobNameKey], string(kueue.DefaultPodSetName)), AttemptOf(job))
}

// OfPodSet returns what the submission says about the pod set.
func (AsSubmitted) OfPodSet(j *UserJob, podSet string, _ time.Duration) Behavior {
	return j.behavior(podSet, 0)
}

func (j *UserJob) behavior(name string, attempt int) Behavior {
	b := Behavior{Fails: j.Fails(name, attempt)}
	b.ReadyAfter, b.GetsReady = j.ReadyAfter(name)
	b.Runs, b.Ends = j.RunTime(name)
	return b
}
