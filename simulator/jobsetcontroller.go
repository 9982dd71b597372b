package simulator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

// This file plays the JobSet controller, as far as it matters for quota: it creates, suspends and deletes child Jobs, and restarts and ends
// JobSets. The admission policies keep its writes from starting held Jobs, so it never resumes one.

// controlJobSet reconciles a JobSet as the JobSet controller does.
func (s *simulation) controlJobSet(js *jobsetapi.JobSet) {
	current, previous := s.childJobs(js)
	if js.Status.TerminalState != "" {
		s.deleteActive(current)
		return
	}
	s.deleteActive(previous)
	if failed := slices.IndexFunc(current, isFailed); failed >= 0 {
		s.applyFailurePolicy(js, current[failed])
		return
	}
	if s.isComplete(js, current) {
		s.endJobSet(js, jobset.JobSetCompleted, "AllJobsCompleted", "jobset completed successfully")
		return
	}
	s.createJobs(js, current)
	for _, job := range current {
		s.resizeJob(js, job)
		if ptr.Deref(js.Spec.Suspend, false) && !ptr.Deref(job.Spec.Suspend, false) && !childjob.IsFinished(job, batchv1.JobComplete) {
			after := job.DeepCopy()
			after.Spec.Suspend = new(true)
			s.putJob(after)
		}
	}
}

func isFailed(job *batchv1.Job) bool { return childjob.IsFinished(job, batchv1.JobFailed) }

// childJobs returns the existing Jobs of a JobSet: those of its current attempt, and those of earlier attempts.
func (s *simulation) childJobs(js *jobsetapi.JobSet) (current, previous []*batchv1.Job) {
	for _, job := range s.objects.jobsOf(js.UID) {
		if job.Labels[constants.RestartsKey] == strconv.Itoa(int(js.Status.Restarts)) {
			current = append(current, job)
		} else {
			previous = append(previous, job)
		}
	}
	return current, previous
}

// createJobs creates the Jobs that are missing, and that the start conditions of JobSet and ReplicatedJobs allow to be created.
func (s *simulation) createJobs(js *jobsetapi.JobSet, current []*batchv1.Job) {
	suspended := ptr.Deref(js.Spec.Suspend, false)
	inOrder := js.Spec.StartupPolicy != nil && js.Spec.StartupPolicy.StartupPolicyOrder == jobset.InOrder
	for i := range js.Spec.ReplicatedJobs {
		r := &js.Spec.ReplicatedJobs[i]
		if slices.ContainsFunc(r.DependsOn, func(d jobset.DependsOn) bool {
			return !hasReached(current, d.Name, d.Status == jobset.DependencyComplete)
		}) {
			continue
		}
		if !suspended && inOrder && hasReached(current, r.Name, false) {
			continue
		}
		s.createJob(js, r)
		if !suspended && inOrder {
			return
		}
	}
}

// hasReached reports whether the Job of a ReplicatedJob is ready, or has succeeded.
func hasReached(jobs []*batchv1.Job, replicatedJob string, succeeded bool) bool {
	return slices.ContainsFunc(jobs, func(job *batchv1.Job) bool {
		return job.Labels[jobset.ReplicatedJobNameKey] == replicatedJob &&
			(childjob.IsFinished(job, batchv1.JobComplete) || !succeeded && childjob.IsReady(job))
	})
}

// createJob creates the one Job of a ReplicatedJob, held, unless a Job of its name exists.
func (s *simulation) createJob(js *jobsetapi.JobSet, r *jobsetapi.ReplicatedJob) {
	name := js.Name + "-" + r.Name + "-0"
	if slices.ContainsFunc(s.objects.jobsOf(js.UID), func(job *batchv1.Job) bool { return job.Name == name }) {
		return
	}
	labels := map[string]string{
		jobset.JobSetNameKey: js.Name, jobset.JobSetUIDKey: string(js.UID), jobset.ReplicatedJobNameKey: r.Name, jobset.JobIndexKey: "0",
		constants.RestartsKey: strconv.Itoa(int(js.Status.Restarts)), apis.HoldLabel: apis.HoldValue,
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: js.Namespace, Name: name, Labels: labels, Annotations: maps.Clone(r.Template.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobset.GroupVersion.WithKind("JobSet"))},
		},
		Spec: *r.Template.Spec.DeepCopy(),
	}
	job.Spec.Suspend = new(true)
	s.putJob(job)
}

// resizeJob gives a Job the number of pods that the JobSet asks for. An admission policy turns the write into a no-op for a running Job that
// would get more pods.
func (s *simulation) resizeJob(js *jobsetapi.JobSet, job *batchv1.Job) {
	i := slices.IndexFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return r.Name == job.Labels[jobset.ReplicatedJobNameKey] })
	if i < 0 || !childjob.IsHeld(job) && !childjob.IsRunning(job) {
		return
	}
	want := *js.Spec.ReplicatedJobs[i].Template.Spec.Parallelism
	if now := childjob.PodsAtOnce(job); want == now || want > now && childjob.IsRunning(job) {
		return
	}
	if childjob.IsRunning(job) {
		s.say("resize %s/%s pods=%d", js.Name, job.Labels[jobset.ReplicatedJobNameKey], want)
	}
	s.putJob(childjob.Resized(job, want))
}

// isComplete reports whether the success policy of a JobSet is satisfied.
func (s *simulation) isComplete(js *jobsetapi.JobSet, current []*batchv1.Job) bool {
	policy := jobset.SuccessPolicy{Operator: jobset.OperatorAll}
	if js.Spec.SuccessPolicy != nil {
		policy = *js.Spec.SuccessPolicy
	}
	expected, succeeded := 0, 0
	for i := range js.Spec.ReplicatedJobs {
		if name := js.Spec.ReplicatedJobs[i].Name; len(policy.TargetReplicatedJobs) == 0 || slices.Contains(policy.TargetReplicatedJobs, name) {
			expected++
			if hasReached(current, name, true) {
				succeeded++
			}
		}
	}
	return succeeded > 0 && (policy.Operator == jobset.OperatorAny || succeeded == expected)
}

// applyFailurePolicy restarts a JobSet of which a Job has failed, or ends it.
func (s *simulation) applyFailurePolicy(js *jobsetapi.JobSet, failed *batchv1.Job) {
	if js.Spec.FailurePolicy == nil || js.Status.Restarts >= js.Spec.FailurePolicy.MaxRestarts {
		s.say("fail %s", s.subjectOfJob(failed))
		s.endJobSet(js, jobset.JobSetFailed, "FailedJobs", fmt.Sprintf("jobset failed due to one or more job failures (first failed job: %s)", failed.Name))
		return
	}
	s.say("restart %s", js.Name)
	after := js.DeepCopy()
	after.Status.Restarts++
	s.putJobSet(after)
	for _, job := range s.objects.jobsOf(js.UID) {
		s.deleteJob(job)
	}
}

// endJobSet records that a JobSet has succeeded or failed, and ends the Jobs that still run.
func (s *simulation) endJobSet(js *jobsetapi.JobSet, condition jobset.JobSetConditionType, reason, message string) {
	if condition == jobset.JobSetCompleted && js.Spec.SuccessPolicy != nil {
		s.say("complete %s", js.Name)
	}
	after := js.DeepCopy()
	after.Status.TerminalState = string(condition)
	apimeta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{
		Type: string(condition), Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: s.timestamp(),
	})
	s.putJobSet(after)
	s.deleteActive(s.objects.jobsOf(js.UID))
}

// deleteActive deletes the Jobs that have not finished, as foreground deletion does: each disappears when its pods have terminated.
func (s *simulation) deleteActive(jobs []*batchv1.Job) {
	for _, job := range jobs {
		if !childjob.IsFinished(job, batchv1.JobComplete) && !isFailed(job) {
			s.deleteJob(job)
		}
	}
}

// deleteJob deletes a Job in the foreground.
func (s *simulation) deleteJob(job *batchv1.Job) {
	if !job.DeletionTimestamp.IsZero() {
		return
	}
	after := job.DeepCopy()
	after.DeletionTimestamp = new(s.timestamp())
	after.Finalizers = append(after.Finalizers, metav1.FinalizerDeleteDependents)
	s.putJob(after)
}

// subjectOfJob returns the name of a Job's stage in the timeline.
func (s *simulation) subjectOfJob(job *batchv1.Job) string {
	j := s.jobOf(job)
	return j.Name + "/" + j.stageOf(job).Name
}

// jobOf returns the submission to which a Job belongs.
func (s *simulation) jobOf(job *batchv1.Job) *job { return s.jobs[job.Labels[jobset.JobSetNameKey]] }

// attemptOf returns the attempt of its JobSet to which a Job belongs, counted from 0.
func attemptOf(job *batchv1.Job) int {
	attempt, _ := strconv.Atoi(job.Labels[constants.RestartsKey])
	return attempt
}

// stageOf returns the stage to which a Job belongs.
func (j *job) stageOf(job *batchv1.Job) *stageplan.Stage {
	i := slices.IndexFunc(j.Plan.Stages, func(st stageplan.Stage) bool {
		return slices.Contains(st.ReplicatedJobs, job.Labels[jobset.ReplicatedJobNameKey])
	})
	return &j.Plan.Stages[i]
}

// putJobSet writes a JobSet. A write that changes nothing is not observed by anyone.
func (s *simulation) putJobSet(js *jobsetapi.JobSet) {
	key := types.NamespacedName{Namespace: js.Namespace, Name: js.Name}
	if before := s.objects.jobSets[key]; before != nil && equality.Semantic.DeepEqual(before, js) {
		return
	}
	s.objects.stamp(js, s.time())
	s.objects.jobSets[key] = js
	s.touch(js.Namespace, js.Name)
}
