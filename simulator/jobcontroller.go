package simulator

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

// This file plays the Job controller: it creates and stops the pods of child Jobs, and writes what became of them into the Jobs.

// podsOf returns the pods of a Job.
func (s *simulation) podsOf(job *batchv1.Job) *pods {
	p := s.objects.pods[job.UID]
	if p == nil {
		p = &pods{}
		s.objects.pods[job.UID] = p
	}
	return p
}

// controlJob reconciles a Job as the Job controller does, and the garbage collector.
func (s *simulation) controlJob(job *batchv1.Job) {
	p := s.podsOf(job)
	switch {
	case !job.DeletionTimestamp.IsZero():
		s.stopPods(job, p)
		if p.terminating == 0 {
			s.dropJob(job)
			return
		}
	case childjob.IsFinished(job, batchv1.JobComplete) || isFailed(job):
		return
	case childjob.IsHeld(job):
		s.stopPods(job, p)
	case childjob.IsEnding(job):
	default:
		s.runPods(job, p)
	}
	s.putJob(s.withStatus(job, p))
}

// stopPods stops the running pods of a Job.
func (s *simulation) stopPods(job *batchv1.Job, p *pods) {
	if p.count(isRunning) > 0 {
		s.keep(p, 0, s.jobOf(job).StopAfter, func() { s.changed(job) })
	}
}

// runPods starts and stops pods until the Job has as many as it asks for.
func (s *simulation) runPods(job *batchv1.Job, p *pods) {
	want, now := childjob.PodsAtOnce(job), p.count(isAny)
	switch {
	case now < want:
		s.begin(p, want-now, s.behaviorOf(job))
	case now > want:
		s.keep(p, want, s.jobOf(job).StopAfter, func() { s.changed(job) })
	}
}

// behaviorOf returns what the pods of a Job do.
func (s *simulation) behaviorOf(job *batchv1.Job) behavior {
	j, name := s.jobOf(job), job.Labels[jobset.ReplicatedJobNameKey]
	c := behavior{changed: func() { s.changed(job) }, hasFailed: func() { s.failJob(job) }}
	c.readyAfter, c.getsReady = j.ReadyAfter(name)
	c.runs, c.ends = j.RunTime(name)
	c.fails = j.Fails(name, attemptOf(job))
	return c
}

// changed reconciles a Job whose pods have changed, if it still exists, and its JobSet, since the manager watches the pods.
func (s *simulation) changed(job *batchv1.Job) {
	if now := s.objects.job(job.UID); now != nil {
		s.dirtyJobs[now.UID] = true
		s.touch(now.Namespace, now.Labels[jobset.JobSetNameKey])
	}
}

// failJob lets a Job fail because one of its pods has failed: the others are stopped.
func (s *simulation) failJob(job *batchv1.Job) {
	now := s.objects.job(job.UID)
	if now == nil || !childjob.IsRunning(now) {
		return
	}
	p := s.podsOf(now)
	if i := slices.IndexFunc(p.batches, isRunning); i >= 0 {
		p.batches[i].count--
	}
	s.stopPods(now, p)
	after := s.withStatus(now, p)
	after.Status.Failed = 1
	setJobCondition(after, batchv1.JobFailed, corev1.ConditionTrue)
	s.putJob(after)
}

// withStatus returns a Job with the status that its pods cause.
func (s *simulation) withStatus(job *batchv1.Job, p *pods) *batchv1.Job {
	after := job.DeepCopy()
	status := &after.Status
	status.Active, status.Succeeded = p.count(isRunning), p.count(isSucceeded)
	status.Ready, status.Terminating = new(p.count(isReady)), new(p.terminating)
	isHeld := childjob.IsHeld(after)
	switch {
	case isHeld:
		status.StartTime = nil
		setJobCondition(after, batchv1.JobSuspended, corev1.ConditionTrue)
	case childjob.IsRunning(after):
		if status.StartTime == nil {
			status.StartTime = new(s.timestamp())
		}
		if slices.ContainsFunc(status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended }) {
			setJobCondition(after, batchv1.JobSuspended, corev1.ConditionFalse)
		}
		if childjob.IsEnding(after) || p.haveSucceeded() && p.count(isAny) >= childjob.PodsAtOnce(after) {
			status.CompletionTime = new(s.timestamp())
			setJobCondition(after, batchv1.JobComplete, corev1.ConditionTrue)
		}
	}
	return after
}

func setJobCondition(job *batchv1.Job, condition batchv1.JobConditionType, status corev1.ConditionStatus) {
	for i := range job.Status.Conditions {
		if c := &job.Status.Conditions[i]; c.Type == condition {
			c.Status = status
			return
		}
	}
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: condition, Status: status})
}

// putJob writes a Job. A write that changes nothing is not observed by anyone.
func (s *simulation) putJob(job *batchv1.Job) {
	if before := s.objects.job(job.UID); before != nil && equality.Semantic.DeepEqual(before, job) {
		return
	}
	s.objects.stamp(job, s.time())
	s.objects.putJob(job)
	s.dirtyJobs[job.UID] = true
	s.touch(job.Namespace, job.Labels[jobset.JobSetNameKey])
}

// dropJob removes a deleted Job whose pods have terminated.
func (s *simulation) dropJob(job *batchv1.Job) {
	s.objects.dropJob(job)
	s.touch(job.Namespace, job.Labels[jobset.JobSetNameKey])
}
