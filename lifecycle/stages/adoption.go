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
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

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
		w.Do(quotastep.Create, adoption.Marked(newWorkload(s, st)))
		return
	case !workload.DeletionTimestamp.IsZero():
		w.removeFinalizer(workload)
	case quotaworkload.IsTrue(workload, kueue.WorkloadFinished):
		w.Do(quotastep.Reopen, workload)
	case quotaworkload.HoldsQuota(workload) && quotaworkload.IsTrue(workload, kueue.WorkloadEvicted):
		eviction := workloadstatus.EvictionOf(workload)
		w.Stop = &StopJobSet{cmp.Or(eviction.Message, eviction.Reason, kueue.WorkloadEvicted), ptr.Deref(workload.Spec.Active, true)}
	case !adoption.IsMarked(workload) || !quotaworkload.HoldsQuota(workload):
		w.AdmitAsItIs(s.Target, workload)
	case quotaworkload.HasGate(workload, apis.AdoptionGate):
		after := workload.DeepCopy()
		quotaworkload.SetGates(after, slices.DeleteFunc(quotaworkload.Gates(workload), func(gate string) bool { return gate == apis.AdoptionGate }))
		w.Change(workload, after)
	default:
		w.NoteStarted = !jobsetstate.IsStarted(s.JobSet)
		w.ReportReadiness(workload, st.isSteady())
	}
	if quotaworkload.HoldsQuota(workload) {
		w.Conditions = jobsetstatus.JobSetProgress(s.JobSet, summary(s, stages))
	}
}

// ranBefore reports whether Jobs of a stage that holds no quota were started while no admission policy was in force: Tranche was removed and installed
// again. Such a stage is charged as it is, like a JobSet that ran before, and the stages that have not started are held again.
func ranBefore(s *jobsetstate.Snapshot, st *stage) bool {
	return s.StartedTarget != nil && !st.stale && !st.holdsQuota() && slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool { return s.StartedBefore[job.Name] })
}
