// Package jobcontrollers plays the controllers that are not part of Tranche: those of JobSets, of Jobs and of jobs of other kinds.
package jobcontrollers

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// A JobController plays the Job controller and the garbage collector: it creates and stops the pods of child Jobs, and writes their states
// into the status of the Jobs.
type JobController struct{ *cluster.Cluster }

// Reconcile reconciles a Job as the Job controller does, and the garbage collector.
func (jc *JobController) Reconcile(job *batchv1.Job) {
	p := jc.PodsOf(job)
	switch {
	case !job.DeletionTimestamp.IsZero():
		jc.stopPods(job, p)
		if p.Terminating == 0 {
			jc.DropJob(job)
			return
		}
	case childjob.IsFinished(job, batchv1.JobComplete) || cluster.IsFailed(job):
		return
	case childjob.IsHeld(job):
		jc.stopPods(job, p)
	case childjob.IsEnding(job):
	default:
		jc.runPods(job, p)
	}
	jc.PutJob(jc.withStatus(job, p))
}

// stopPods stops the running pods of a Job.
func (jc *JobController) stopPods(job *batchv1.Job, p *cluster.PodSet) {
	if p.Count(cluster.IsRunning) > 0 {
		jc.StopPods(p, 0, jc.OwnerOfJob(job).StopAfter, func() { jc.PodsChanged(job) })
	}
}

// runPods starts and stops pods until the Job has as many as it asks for.
func (jc *JobController) runPods(job *batchv1.Job, p *cluster.PodSet) {
	want, now := childjob.PodsAtOnce(job), p.Count(cluster.IsAny)
	switch {
	case now < want:
		jc.StartPods(p, want-now, jc.behaviorOf(job))
	case now > want:
		jc.StopPods(p, want, jc.OwnerOfJob(job).StopAfter, func() { jc.PodsChanged(job) })
	}
}

// behaviorOf returns what the pods of a Job do.
func (jc *JobController) behaviorOf(job *batchv1.Job) cluster.Behavior {
	j, name := jc.OwnerOfJob(job), job.Labels[jobset.ReplicatedJobNameKey]
	c := cluster.Behavior{Changed: func() { jc.PodsChanged(job) }, HasFailed: func() { jc.Fail(job) }}
	c.ReadyAfter, c.GetsReady = j.ReadyAfter(name)
	c.Runs, c.Ends = j.RunTime(name)
	c.Fails = j.Fails(name, cluster.AttemptOf(job))
	return c
}

// Fail lets a Job fail because one of its pods has failed: the others are stopped.
func (jc *JobController) Fail(job *batchv1.Job) {
	now := jc.Jobs[job.UID]
	if now == nil || !childjob.IsRunning(now) {
		return
	}
	p := jc.PodsOf(now)
	if i := slices.IndexFunc(p.Batches, cluster.IsRunning); i >= 0 {
		p.Batches[i].Count--
	}
	jc.stopPods(now, p)
	after := jc.withStatus(now, p)
	after.Status.Failed = 1
	cluster.SetJobCondition(after, batchv1.JobFailed, corev1.ConditionTrue)
	jc.PutJob(after)
}

// withStatus returns a Job with the status that its pods cause.
func (jc *JobController) withStatus(job *batchv1.Job, p *cluster.PodSet) *batchv1.Job {
	after := job.DeepCopy()
	status := &after.Status
	status.Active, status.Succeeded = p.Count(cluster.IsRunning), p.Count(cluster.HasSucceeded)
	status.Ready, status.Terminating = new(p.Count(cluster.IsReady)), new(p.Terminating)
	isHeld := childjob.IsHeld(after)
	switch {
	case isHeld:
		status.StartTime = nil
		cluster.SetJobCondition(after, batchv1.JobSuspended, corev1.ConditionTrue)
	case childjob.IsRunning(after):
		if status.StartTime == nil {
			status.StartTime = new(jc.Timestamp())
		}
		if slices.ContainsFunc(status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended }) {
			cluster.SetJobCondition(after, batchv1.JobSuspended, corev1.ConditionFalse)
		}
		if childjob.IsEnding(after) || p.HaveSucceeded() && p.Count(cluster.IsAny) >= childjob.PodsAtOnce(after) {
			status.CompletionTime = new(jc.Timestamp())
			cluster.SetJobCondition(after, batchv1.JobComplete, corev1.ConditionTrue)
		}
	}
	return after
}
