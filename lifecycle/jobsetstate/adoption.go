package jobsetstate

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

// UnguardedJobs returns the Jobs of a JobSet that the admission policies do not guard yet: those that need another label, because the JobSet was there
// when Tranche was installed, and those that run and replace pods early, because a version of the manager released them that did not set the field.
func UnguardedJobs(s *Snapshot) []*batchv1.Job {
	return slices.DeleteFunc(slices.Clone(s.Owned.Jobs), func(job *batchv1.Job) bool {
		isOver := childjob.IsFinished(job, batchv1.JobComplete) || childjob.IsFinished(job, batchv1.JobFailed)
		return isOver || !job.DeletionTimestamp.IsZero() || !needsLabel(s, job) && !needsLateReplacement(job)
	})
}

// needsLabel reports whether a Job needs another label. While a JobSet runs that was there when Tranche was installed, its Jobs are not held: one that its
// controller resumes later, in its startup order, is labelled only then, because only the manager can resume a Job with the label. When the JobSet
// waits, and from then on, all of them are held.
func needsLabel(s *Snapshot, job *batchv1.Job) bool {
	if !wasThereBefore(s) {
		return false
	}
	label, wanted := job.Labels[apis.HoldLabel], holdOfJobs(s.JobSet)
	isOther := label == "" || label == apis.HoldAdopted && wanted == apis.HoldValue
	return isOther && (wanted != apis.HoldAdopted || !ptr.Deref(job.Spec.Suspend, false))
}

func needsLateReplacement(job *batchv1.Job) bool {
	label := job.Labels[apis.HoldLabel]
	return (label == apis.HoldValue || label == apis.HoldAdopted) && childjob.IsRunning(job) && childjob.ReplacesEarly(job)
}

// wasThereBefore reports whether a JobSet was there when Tranche was installed.
func wasThereBefore(s *Snapshot) bool { return s.Target != nil || IsMarked(s.JobSet) }

// Guarded returns a copy of a Job that ran before Tranche was installed, with what lets the admission policies guard it.
func Guarded(s *Snapshot, job *batchv1.Job) *batchv1.Job {
	after := childjob.ReplacingLate(job)
	if needsLabel(s, job) {
		metav1.SetMetaDataLabel(&after.ObjectMeta, apis.HoldLabel, holdOfJobs(s.JobSet))
	}
	return after
}

// RunningUnpaid returns the Jobs that run although the quota Workload with their pods holds no quota.
func RunningUnpaid(s *Snapshot) []*batchv1.Job {
	paid := map[kueue.PodSetReference]bool{}
	for _, workload := range s.Owned.Workloads {
		for i := range workload.Spec.PodSets {
			name := workload.Spec.PodSets[i].Name
			paid[name] = paid[name] || quotaworkload.HoldsQuota(workload)
		}
	}
	var all []*batchv1.Job
	for _, job := range s.Owned.Jobs {
		if childjob.IsRunning(job) && !paid[kueue.NewPodSetReference(ReplicatedJobOf(job))] {
			all = append(all, job)
		}
	}
	return all
}

// holdOfJobs returns the value of apis.HoldLabel for the Jobs of a JobSet that was there when Tranche was installed.
func holdOfJobs(js *jobsetapi.JobSet) string {
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
