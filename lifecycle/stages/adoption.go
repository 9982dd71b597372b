package stages

import (
	"cmp"
	"slices"

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

// A StopJobSet suspends a JobSet that ran when Tranche was installed.
type StopJobSet struct {
	Why string
	// Requeues is true if it is queued afterwards. Otherwise its user has to resume it.
	Requeues bool
}

// A JobSet that ran when Tranche was installed has one quota Workload for all of its Jobs, which are not held:
//
//	runs  ->  quota Workload created, gated  ->  admitted to what its pods use  ->  no longer gated  ->  finished with the JobSet
//	evicted, or suspended by its user: suspended
//
// One that is suspended, since then or from the beginning, is queued as all others:
//
//	suspended  ->  no pod left: quota Workload deleted, Jobs labelled  ->  pod templates marked, so that the policies hold all Jobs  ->  queued

// adopt takes the next step of a JobSet that was there when Tranche was installed.
func (w *Step) adopt(s *jobsetstate.Snapshot) {
	w.Conditions = s.JobSet.Status.Conditions
	if jobsetstate.IsWaiting(s.JobSet) {
		w.retire(s.Owned)
		// Jobs that the cache does not show yet are created suspended, and their resume writes the mark of the pod template.
		w.MarkTemplates = len(s.Owned.Workloads) == 0 && len(s.Owned.Pods) == 0 && !slices.ContainsFunc(s.Owned.Jobs, childjob.HasPods) && len(w.MarkJobs) == 0
		return
	}
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
		w.Stop = &StopJobSet{cmp.Or(eviction.Message, eviction.Reason, kueue.WorkloadEvicted), ptr.Deref(workload.Spec.Active, true)}
	case !adoption.IsMarked(workload):
		w.ChangeWorkloads = append(w.ChangeWorkloads, ChangeWorkload{workload, adoption.Marked(workload)})
	case !quotaworkload.HoldsQuota(workload):
		w.AdmitWorkload = &AdmitWorkload{workload, s.Target.Admission(workload)}
	case slices.Contains(quotaworkload.Gates(workload), apis.AdoptionGate):
		after := workload.DeepCopy()
		quotaworkload.SetGates(after, slices.DeleteFunc(quotaworkload.Gates(workload), func(gate string) bool { return gate == apis.AdoptionGate }))
		w.ChangeWorkloads = append(w.ChangeWorkloads, ChangeWorkload{workload, after})
	default:
		w.NoteStarted = !jobsetstate.IsStarted(s.JobSet)
		w.reportReadiness(st, workload, st.isSteady())
	}
	if quotaworkload.HoldsQuota(workload) {
		w.Conditions = jobsetstatus.JobSetProgress(s.JobSet, summary(s, stages))
	}
}

// markJobs labels the Jobs of a JobSet that was there when Tranche was installed, so that the admission policies guard them, also those that its
// controller creates later.
func (w *Step) markJobs(s *jobsetstate.Snapshot) { w.MarkJobs = jobsetstate.UnmarkedJobs(s) }
