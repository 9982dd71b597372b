package stages

import (
	"cmp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// An AdmitWorkload admits a quota Workload, whatever the quota.
type AdmitWorkload struct {
	Workload  *kueue.Workload
	Admission *kueue.Admission
}

// A JobSet that ran when Tranche was installed has one quota Workload for all of its Jobs, which are not held:
//
//	runs  ->  quota Workload created, gated  ->  admitted to what its pods use  ->  no longer gated  ->  finished with the JobSet
//	evicted by an administrator, or suspended by its user: suspended  ->  no pod left: quota Workload deleted
//
// A suspended one is not resumed: its Jobs would not wait for quota.

// adopt takes the next step of a JobSet that ran when Tranche was installed.
func (w *Step) adopt(s *jobsetstate.Snapshot) {
	w.Conditions = s.JobSet.Status.Conditions
	stages, _ := stagesOf(s)
	st := &stages[0]
	if over, outcome := jobsetstate.OutcomeOf(s.JobSet); over {
		w.wrapUp(st, outcome)
		return
	}
	workload := st.workload
	switch {
	case workload == nil:
		w.CreateWorkloads = append(w.CreateWorkloads, adoption.Marked(newWorkload(s, st)))
		return
	case !workload.DeletionTimestamp.IsZero():
		w.removeFinalizer(workload)
	case quotaworkload.IsTrue(workload, kueue.WorkloadFinished):
		w.Reopen = append(w.Reopen, workload)
	case quotaworkload.HoldsQuota(workload) && quotaworkload.IsTrue(workload, kueue.WorkloadEvicted):
		eviction := workloadstatus.EvictionOf(workload)
		w.Stop = cmp.Or(eviction.Message, eviction.Reason, kueue.WorkloadEvicted)
	case !adoption.IsMarked(workload):
		w.ChangeWorkloads = append(w.ChangeWorkloads, ChangeWorkload{workload, adoption.Marked(workload), false})
	case !quotaworkload.HoldsQuota(workload):
		w.AdmitWorkload = &AdmitWorkload{workload, s.Target.Admission(workload)}
	case slices.Contains(quotaworkload.Gates(workload), apis.AdoptionGate):
		after := workload.DeepCopy()
		quotaworkload.SetGates(after, slices.DeleteFunc(quotaworkload.Gates(workload), func(gate string) bool { return gate == apis.AdoptionGate }))
		w.ChangeWorkloads = append(w.ChangeWorkloads, ChangeWorkload{workload, after, false})
	default:
		w.reportReadiness(st, workload, st.isSteady())
	}
	if quotaworkload.HoldsQuota(workload) {
		w.Conditions = jobsetstatus.JobSetProgress(s.JobSet, summary(s, stages))
	}
}

// markJobs labels the Jobs of a JobSet that was there when Tranche was installed, so that the admission policies guard them, also those that its
// controller creates later. They are not held: one that its controller resumes later, in its startup order, is marked only then, because only
// the manager can resume a Job with the label.
func (w *Step) markJobs(s *jobsetstate.Snapshot) {
	for _, job := range s.Owned.Jobs {
		if ptr.Deref(job.Spec.Suspend, false) && !ptr.Deref(s.JobSet.Spec.Suspend, false) {
			continue
		}
		if job.Labels[apis.HoldLabel] == "" && job.DeletionTimestamp.IsZero() && !childjob.IsFinished(job, batchv1.JobComplete) && !childjob.IsFinished(job, batchv1.JobFailed) {
			w.MarkJobs = append(w.MarkJobs, job)
		}
	}
}

// NotResumable returns why a JobSet that was suspended when Tranche was installed cannot be queued, or "".
func NotResumable(s *jobsetstate.Snapshot) string {
	if over, _ := jobsetstate.OutcomeOf(s.JobSet); over || !ptr.Deref(s.JobSet.Spec.Suspend, false) {
		return ""
	}
	return "the JobSet was created before Tranche's admission policies were in force and is suspended: its Jobs are not held, so that it cannot be queued; " +
		"delete it and submit it again"
}
