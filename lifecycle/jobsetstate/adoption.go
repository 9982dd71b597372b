package jobsetstate

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

// UnmarkedJobs returns the Jobs of a JobSet that was there when Tranche was installed which need another label. While the JobSet runs, its Jobs are not
// held: one that its controller resumes later, in its startup order, is labelled only then, because only the manager can resume a Job with the label.
// When the JobSet waits, and from then on, all of them are held.
func UnmarkedJobs(s *Snapshot) []*batchv1.Job {
	var unmarked []*batchv1.Job
	wanted := HoldOfJobs(s.JobSet)
	for _, job := range s.Owned.Jobs {
		label := job.Labels[apis.HoldLabel]
		needsLabel := label == "" || label == apis.HoldAdopted && wanted == apis.HoldValue
		if !needsLabel || ptr.Deref(job.Spec.Suspend, false) && wanted == apis.HoldAdopted {
			continue
		}
		if job.DeletionTimestamp.IsZero() && !childjob.IsFinished(job, batchv1.JobComplete) && !childjob.IsFinished(job, batchv1.JobFailed) {
			unmarked = append(unmarked, job)
		}
	}
	return unmarked
}

// HoldOfJobs returns the value of apis.HoldLabel for the Jobs of such a JobSet.
func HoldOfJobs(js *jobsetapi.JobSet) string {
	if IsWaiting(js) || IsMarked(js) {
		return apis.HoldValue
	}
	return apis.HoldAdopted
}

// IsWaiting reports whether a JobSet is suspended and has not finished.
func IsWaiting(js *jobsetapi.JobSet) bool {
	over, _ := OutcomeOf(js)
	return !over && ptr.Deref(js.Spec.Suspend, false)
}
