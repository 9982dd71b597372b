package soak_test

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
)

// ofQueuedJobs selects the Jobs that are queued by themselves.
func ofQueuedJobs() client.MatchingLabels {
	return client.MatchingLabels{apis.HoldLabel: apis.HoldQueued}
}

// newJob makes a Job that is queued by itself: elastic, or perhaps admitted with fewer pods.
func (s *soak) newJob(i int) *batchv1.Job {
	r := s.newReplicatedJob("main", nominal)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenantName(tenantOf(i)), Name: fmt.Sprintf("job-%03d", i), Labels: map[string]string{apis.QueueLabel: "queue"}, Annotations: map[string]string{},
	}}
	job.Spec = r.Template.Spec
	if s.random.IntN(5) == 0 {
		job.Labels[apis.PriorityClassLabel] = "urgent"
	}
	switch {
	case isElastic(r):
		job.Annotations[apis.ElasticJobAnnotation] = "true"
	case *job.Spec.Parallelism > 1 && s.random.IntN(2) == 0:
		job.Annotations[apis.MinParallelismAnnotation] = "1"
	}
	return job
}

func (s *soak) submitJob(job *batchv1.Job) bool {
	if err := s.admin.Create(s.t.Context(), job); err != nil {
		s.log("Job %s is not accepted: %v", job.Name, err)
		return false
	}
	s.jobs = append(s.jobs, client.ObjectKeyFromObject(job))
	return true
}

// pickJob chooses a queued Job that has not finished and to which something can be done, or nil.
func (s *soak) pickJob(can func(*batchv1.Job) bool) (*batchv1.Job, error) {
	var list batchv1.JobList
	if err := s.admin.List(s.t.Context(), &list, s.namespace(), ofQueuedJobs()); err != nil {
		return nil, err
	}
	return pick(s, slices.DeleteFunc(list.Items, func(job batchv1.Job) bool { return isComplete(&job) || !job.DeletionTimestamp.IsZero() || !can(&job) })), nil
}

// isSuspended reports whether its user has suspended a queued Job.
func isSuspended(job *batchv1.Job) bool { return job.Annotations[apis.SuspendedAnnotation] != "" }

// setJobSuspend suspends or resumes a queued Job, as its user.
func (s *soak) setJobSuspend(k kind) (string, error) {
	job, err := s.pickJob(func(job *batchv1.Job) bool {
		if k == resumeQueuedJob {
			return isSuspended(job)
		}
		return !ptr.Deref(job.Spec.Suspend, false) // held Jobs look as if they were suspended
	})
	if job == nil {
		return "", err
	}
	return client.ObjectKeyFromObject(job).String(), s.suspendJob(s.t.Context(), job, k)
}

func (s *soak) suspendJob(ctx context.Context, job *batchv1.Job, k kind) error {
	patch := fmt.Sprintf(`{"spec":{"suspend":%t}}`, k == suspendQueuedJob)
	return s.admin.Patch(ctx, job, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// resizeJob makes an elastic Job that runs larger or smaller, as its user. All of its pods still fit in the quota of its tenant.
func (s *soak) resizeJob() (string, error) {
	job, err := s.pickJob(func(job *batchv1.Job) bool {
		return job.Annotations[apis.ElasticJobAnnotation] == "true" && !ptr.Deref(job.Spec.Suspend, false)
	})
	if job == nil {
		return "", err
	}
	pods := int32(1 + s.random.IntN(nominal))
	if pods == *job.Spec.Parallelism {
		return "", nil
	}
	what := fmt.Sprintf("%s from %d to %d pods", client.ObjectKeyFromObject(job), *job.Spec.Parallelism, pods)
	before := job.DeepCopy()
	job.Spec.Parallelism, job.Spec.Completions = &pods, &pods
	return what, s.admin.Patch(s.t.Context(), job, client.MergeFrom(before))
}

func (s *soak) deleteQueuedJob() (string, error) {
	key := pick(s, s.jobs)
	if key == nil || s.deleted[*key] {
		return "", nil
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := s.admin.Delete(s.t.Context(), job, client.PropagationPolicy("Background")); client.IgnoreNotFound(err) != nil {
		return key.String(), err
	}
	s.deleted[*key] = true
	return key.String(), nil
}

// resumeJobs resumes all queued Jobs that their users have suspended.
func (s *soak) resumeJobs(ctx context.Context) error {
	var list batchv1.JobList
	if err := s.admin.List(ctx, &list, ofQueuedJobs()); err != nil {
		return err
	}
	for i := range list.Items {
		if job := &list.Items[i]; isSuspended(job) && !isComplete(job) {
			if err := s.suspendJob(ctx, job, resumeQueuedJob); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}

// expectJobs checks that no queued Job is gone that was not deleted, and that none has failed.
func (s *soak) expectJobs() {
	s.t.Helper()
	for _, key := range s.jobs {
		if s.deleted[key] {
			continue
		}
		var job batchv1.Job
		if err := s.admin.Get(s.t.Context(), key, &job); err != nil {
			s.t.Errorf("read queued Job %s: %v", key, err)
		}
		for _, c := range job.Status.Conditions {
			if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
				s.t.Errorf("queued Job %s has failed: %s", key, c.Message)
			}
		}
	}
}
