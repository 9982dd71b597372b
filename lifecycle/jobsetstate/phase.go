package jobsetstate

import (
	"encoding/json"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// OutcomeOf reports whether a JobSet has finished, and returns the Finished condition of its quota Workloads.
func OutcomeOf(js *jobsetapi.JobSet) (over bool, finished metav1.Condition) {
	finished = metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}
	for _, condition := range js.Status.Conditions {
		switch {
		case condition.Status != metav1.ConditionTrue:
		case condition.Type == string(jobset.JobSetCompleted):
			finished.Reason, finished.Message = kueue.WorkloadFinishedReasonSucceeded, condition.Message
			return true, finished
		case condition.Type == string(jobset.JobSetFailed):
			finished.Reason, finished.Message = kueue.WorkloadFinishedReasonFailed, condition.Message
			return true, finished
		}
	}
	return false, finished
}

// IsStarted reports whether the manager has started a JobSet. From then on a suspension is requested by the user.
func IsStarted(js *jobsetapi.JobSet) bool {
	_, started := js.Annotations[apis.StartedAnnotation]
	return started
}

// IsSuspendedByUser reports whether the user has suspended the JobSet. Every queued JobSet is also created suspended; that does not count.
func IsSuspendedByUser(js *jobsetapi.JobSet) bool {
	return IsStarted(js) && ptr.Deref(js.Spec.Suspend, false)
}

// AttemptOf returns the current attempt of a JobSet, as the labels of its Jobs have it.
func AttemptOf(js *jobsetapi.JobSet) string { return strconv.Itoa(int(js.Status.Restarts)) }

// IsPaused reports whether the manager has suspended a JobSet without a queue until Jobs that start together exist.
func IsPaused(js *jobsetapi.JobSet) bool {
	_, paused := js.Annotations[apis.PausedAnnotation]
	return paused
}

// FinishedStages returns the stages that the JobSet names as succeeded in its current attempt.
func FinishedStages(js *jobsetapi.JobSet) []string {
	var finished apis.FinishedStages
	// The manager did not write an annotation that cannot be parsed.
	if json.Unmarshal([]byte(js.Annotations[apis.FinishedStagesAnnotation]), &finished) != nil || finished.Attempt != js.Status.Restarts {
		return nil
	}
	return finished.Stages
}

// FirstJobOf returns a Job of a stage for its Events.
func (s *Snapshot) FirstJobOf(stage string) *batchv1.Job {
	for i := range s.Plan.Stages {
		if s.Plan.Stages[i].Name != stage {
			continue
		}
		for _, job := range s.Owned.Jobs {
			if slices.Contains(s.Plan.Stages[i].ReplicatedJobs, ReplicatedJobOf(job)) {
				return job
			}
		}
	}
	return nil
}
