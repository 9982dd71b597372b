// Package jobcontrollers plays the controllers that are not part of Tranche: those of JobSets, of Jobs and of jobs of other kinds.
package jobcontrollers

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

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

// runPods starts and stops pods until the Job has as many as it asks for. Pods that terminate count as well, unless the Job replaces them early.
func (jc *JobController) runPods(job *batchv1.Job, p *cluster.PodSet) {
	want, now := wantedPods(job, p), p.Count(cluster.IsAny)
	if !childjob.ReplacesEarly(job) {
		want = max(min(want, now), want-p.Terminating)
	}
	switch {
	case now < want:
		jc.StartPods(p, want-now, jc.behaviorOf(job, p, want-now, jc.Now))
	case now > want:
		jc.StopPods(p, want, jc.OwnerOfJob(job).StopAfter, func() { jc.PodsChanged(job) })
	}
}

// wantedPods returns how many pods a Job has to have, with those that have succeeded. A Job that runs its pods in several rounds replaces these.
func wantedPods(job *batchv1.Job, p *cluster.PodSet) int32 {
	atOnce, completions := childjob.PodsAtOnce(job), ptr.Deref(job.Spec.Completions, 0)
	if completions <= atOnce {
		return atOnce
	}
	return min(completions, p.Count(cluster.HasSucceeded)+atOnce)
}

// completions returns how many pods of a Job have to succeed.
func completions(job *batchv1.Job) int32 {
	return max(childjob.PodsAtOnce(job), ptr.Deref(job.Spec.Completions, 0))
}

// behaviorOf returns what a number of pods do that a Job starts, or has started at this time.
func (jc *JobController) behaviorOf(job *batchv1.Job, p *cluster.PodSet, count int32, started time.Duration) cluster.Behavior {
	c := jc.Course.OfJob(jc.OwnerOfJob(job), job, started)
	c.Rest = max(0, completions(job)-p.Count(cluster.IsAny)-count)
	c.Changed, c.HasFailed = func() { jc.PodsChanged(job) }, func() { jc.Fail(job) }
	return c
}

// Continue plans what the pods of a Job do that exist when the run begins.
func (jc *JobController) Continue(job *batchv1.Job) {
	p := jc.PodsOf(job)
	rest := max(0, completions(job)-p.Count(cluster.IsAny))
	for _, b := range p.Batches {
		if cluster.IsRunning(b) {
			c := jc.behaviorOf(job, p, 0, b.Started)
			c.Rest, rest = rest, 0
			jc.PlanPods(p, b, c)
		}
	}
	if p.Terminating > 0 {
		jc.PlanTermination(p, func() { jc.PodsChanged(job) })
	}
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
		if childjob.IsEnding(after) || p.HaveSucceeded() && p.Count(cluster.IsAny) >= completions(after) {
			status.CompletionTime = new(jc.Timestamp())
			cluster.SetJobCondition(after, batchv1.JobComplete, corev1.ConditionTrue)
		}
	}
	return after
}

// Succeed lets all pods of a running Job succeed, with those that it would start later.
func (jc *JobController) Succeed(job *batchv1.Job) {
	p := jc.PodsOf(job)
	p.Set(true)
	p.Batches[0].Count += max(0, completions(job)-p.Count(cluster.IsAny))
	jc.PodsChanged(job)
}
