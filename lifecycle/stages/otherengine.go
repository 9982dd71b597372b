package stages

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// This file has what differs for a JobSet whose quota Workloads another engine admits. That engine may reserve quota for any stage that is
// open, so a stage opens only when Tranche's engine finds the state safe with it. A reservation may be taken back before the stage is admitted,
// for instance because an AdmissionCheck asks for a retry. Then no pod of the stage runs, and the other stages go on:
//
//	launcher(runs)   workers(open, QuotaReserved, Evicted)
//	   workers gets a bar, and releases its quota
//	launcher(runs)   workers(gated) until the state is safe with it

// Opening returns the names of the stages that would open now, if they were safe: their start conditions are met, and they are gated or have
// no quota Workload yet.
func Opening(s *jobsetstate.Snapshot) []string {
	if s.JobSet == nil || s.Plan == nil || s.IsUnqueued {
		return nil
	}
	asked := *s
	asked.Unsafe = nil
	stages, _ := stagesOf(&asked)
	var names []string
	for i := range stages {
		if st := &stages[i]; st.open && isUnopened(st) {
			names = append(names, st.Name)
		}
	}
	return names
}

// finalizerOf returns the finalizer of a new quota Workload.
func finalizerOf(s *jobsetstate.Snapshot) string {
	if s.OtherEngine {
		return apis.QuotaInUseFinalizer
	}
	return kueue.ResourceInUseFinalizerName
}

// isUnopened reports whether a stage has not been opened yet in its current attempt.
func isUnopened(st *stage) bool {
	return st.workload == nil || quotaworkload.HasGate(st.workload, apis.StageGate) || st.stale
}

// awaitSafety closes a stage that must not open yet, and one that loses its reservation.
func (st *stage) awaitSafety(s *jobsetstate.Snapshot) {
	if !s.OtherEngine {
		return
	}
	if st.open && isUnopened(st) && !st.succeeded() {
		st.unsafe = s.Unsafe[st.Name]
		if left, why := pauseOf(s, st.workload); left > 0 {
			st.unsafe = why
		}
	}
	st.loses = st.loses || keepsQuotaClosed(st)
	st.open = st.open && st.unsafe == "" && !st.loses
}

// keepsQuotaClosed reports whether a stage holds quota although its start conditions are not met, as after a restart of its JobSet, and has no pods. The
// stages that have to run before may need that quota, and where another engine admits, no deadlock recovery evicts the JobSet:
//
//	prepare(finished)   train(runs)
//	   the JobSet restarts
//	prepare(open)       train(closed) releases its quota when its pods have terminated
func keepsQuotaClosed(st *stage) bool {
	mayStart := func(job *batchv1.Job) bool { return !childjob.IsHeld(job) || childjob.HasPods(job) }
	return st.workload != nil && !st.open && !st.stops && !st.decided && !st.hasPods && st.holdsQuota() &&
		!quotaworkload.IsTrue(st.workload, kueue.WorkloadFinished) && !slices.ContainsFunc(st.jobs, mayStart)
}

// pauseOf returns how much longer a quota Workload stays out of its queue because AdmissionChecks have rejected its reservations again and again, and why.
func pauseOf(s *jobsetstate.Snapshot, workload *kueue.Workload) (left time.Duration, why string) {
	if !s.OtherEngine || workload == nil {
		return 0, ""
	}
	return workloadstatus.Pause(workload, s.Now)
}

// endPauses requests a reconcile when the first quota Workload of a stage may ask for quota again.
func (w *Step) endPauses(s *jobsetstate.Snapshot, st *stage) {
	for _, workload := range append(slices.Clone(st.growths), st.workload) {
		left, _ := pauseOf(s, workload)
		w.RequeueWithin(max(0, left))
	}
}

// losesReservation reports whether another engine takes back the quota that it has reserved for a stage, but not admitted. A deactivation ends the
// whole JobSet.
func losesReservation(s *jobsetstate.Snapshot, st *stage) bool {
	return s.OtherEngine && st.isEvicted() && !quotaworkload.IsTrue(st.workload, kueue.WorkloadAdmitted) && !isDeactivated(st.workload) &&
		!st.hasPods && !slices.ContainsFunc(st.jobs, childjob.HasPods)
}

// giveBack gates a stage that loses its reservation, and then releases the reservation.
func (w *Step) giveBack(s *jobsetstate.Snapshot, st *stage) {
	if after := st.adjusted(s); after != nil {
		w.Change(st.workload, after)
		return
	}
	w.Do(quotastep.Release, st.workload)
}

// newPodSet returns a pod set of a new quota Workload of the stage.
func (st *stage) newPodSet(s *jobsetstate.Snapshot, i int) kueue.PodSet {
	planned := &st.PodSets[i]
	podSet := kueue.PodSet{
		Name:            kueue.NewPodSetReference(planned.Name),
		Template:        *planned.Template.DeepCopy(),
		Count:           planned.Count,
		TopologyRequest: workloadstatus.TopologyRequest(planned.Template),
	}
	if s.OtherEngine {
		// Annotations that cannot be read are refused before: see jobsetstate.Misuse.
		podSet.TopologyRequest, _ = workloadstatus.JobSetTopology(planned.Template, st.tallies[planned.Name].replicas)
	}
	return podSet
}
