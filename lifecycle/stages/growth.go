package stages

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// ResizeJobs has the new sizes of the running Jobs of a stage whose number of admitted pods has changed.
type ResizeJobs struct {
	Stage string
	// Before and After have the same Jobs at the same index.
	Before, After []*batchv1.Job
}

// holding returns the growths that hold quota.
func holding(growths []*kueue.Workload) []*kueue.Workload {
	return slices.DeleteFunc(slices.Clone(growths), func(growth *kueue.Workload) bool { return !quotaworkload.HoldsQuota(growth) })
}

// mayGrow reports whether a stage holds quota and keeps it. A stage that does not queues for all of its pods.
func (st *stage) mayGrow(s *jobsetstate.Snapshot) bool {
	w := st.workload
	return w != nil && w.DeletionTimestamp.IsZero() && st.holdsQuota() && !st.mustRelease && !quotaworkload.IsTrue(w, kueue.WorkloadFinished) &&
		!st.succeeded() && !jobsetstate.IsSuspendedByUser(s.JobSet) && !st.lacksQuota(s)
}

// reconcileGrowths reconciles the growths of one stage of a JobSet that has not finished.
func (w *Step) reconcileGrowths(s *jobsetstate.Snapshot, st *stage, e *eviction) {
	if !st.mayGrow(s) {
		w.dropGrowths(st)
		e.complete = e.complete && len(st.growths) == 0
		return
	}
	for k, growth := range st.growths {
		w.AwaitsEngine = w.AwaitsEngine || quotaworkload.IsTrue(growth, kueue.WorkloadAdmitted) && !s.Charged[growth.UID]
		switch {
		case !growth.DeletionTimestamp.IsZero():
			if !quotaworkload.HoldsQuota(growth) || st.isSettledWhole(s) {
				w.removeFinalizer(growth)
			}
		case quotaworkload.IsTrue(growth, kueue.WorkloadFinished) || !pays(st.sizes, k):
			if !quotaworkload.HoldsQuota(growth) || st.isSettledWhole(s) {
				w.Do(quotastep.Delete, growth)
			}
		default:
			w.reconcileGrowth(s, st, k)
		}
	}
	if !st.mayRun(s) || st.decided {
		return
	}
	w.resizeStage(s, st)
	if growth := newGrowth(s, st); growth != nil {
		w.Do(quotastep.Grow, growth)
	}
}

// dropGrowths deletes the growths of a stage that is about to release its quota: pending growths at once, the others when no pod of the
// stage is left.
func (w *Step) dropGrowths(st *stage) {
	for _, growth := range st.growths {
		if !quotaworkload.HoldsQuota(growth) || !st.hasPods {
			w.Do(quotastep.Delete, growth)
		}
	}
}

// pays reports whether a growth pays, or asks, for pods that the JobSet still wants.
func pays(sizes []elastic.Size, growth int) bool {
	return slices.ContainsFunc(sizes, func(z elastic.Size) bool { return z.Growths[growth] > 0 })
}

// reconcileGrowth reconciles a growth that the JobSet still wants.
func (w *Step) reconcileGrowth(s *jobsetstate.Snapshot, st *stage, k int) {
	growth := st.growths[k]
	spoken := quotastep.ReportsReadiness(growth)
	if st.open && quotaworkload.HasGate(growth, apis.StageGate) && quotaworkload.HoldsQuota(growth) && !spoken {
		w.Progress(growth, workloadstatus.PodsNotStarted(), nil)
		return
	}
	w.Change(growth, st.adjustedGrowth(s, k))
	if !quotaworkload.HoldsQuota(growth) {
		return
	}
	pods := st.reclaimableOf(s, growth, func(z elastic.Size) int32 { return z.Growths[k] })
	if said := growth.Status.ReclaimablePods; !quotaworkload.Covers(said, pods) && quotaworkload.Covers(pods, said) {
		w.Reclaim(growth, pods)
		w.givesUpPods = true
	}
	switch {
	case quotaworkload.IsTrue(growth, kueue.WorkloadEvicted):
		if st.isSettledWhole(s) {
			w.Do(quotastep.Release, growth)
		}
	case !st.open && spoken:
		w.Progress(growth, metav1.Condition{}, nil)
	case st.mayRun(s) && s.MayUse(growth):
		w.ReportReadiness(growth, st.isGrown())
	}
}

// isGrown reports whether all pods with admitted quota are ready or have succeeded.
func (st *stage) isGrown() bool {
	return st.all(stageplan.Ready) && !slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool {
		return childjob.IsRunning(job) && childjob.PodsAtOnce(job) < st.sizes[st.podSetOf(job)].Now
	})
}

func (st *stage) podSetOf(job *batchv1.Job) int {
	return slices.Index(st.ReplicatedJobs, jobsetstate.ReplicatedJobOf(job))
}

// adjustedGrowth returns a growth as it should be, or nil if it is so already. A growth without quota asks for the pods that are missing
// now.
func (st *stage) adjustedGrowth(s *jobsetstate.Snapshot, k int) *kueue.Workload {
	return st.adjust(s, st.growths[k], func(after *kueue.Workload) {
		if left, _ := pauseOf(s, after); left > 0 && st.open {
			addGate(after, apis.StageGate)
		}
		if !quotaworkload.HoldsQuota(after) && len(after.Status.ReclaimablePods) == 0 {
			after.Spec.PodSets = st.podSetsOf(s, func(z elastic.Size) int32 { return z.Growths[k] })
		}
	})
}

// podSetsOf returns pod sets with the number of pods that more returns for each Job.
func (st *stage) podSetsOf(s *jobsetstate.Snapshot, more func(elastic.Size) int32) []kueue.PodSet {
	var all []kueue.PodSet
	for i, z := range st.sizes {
		if pods := more(z); pods > 0 {
			podSet := st.newPodSet(s, i)
			podSet.Count = pods * z.Live
			all = append(all, podSet)
		}
	}
	return all
}

// newGrowth returns a quota Workload for the pods that no quota Workload pays for, or nil if there are none.
func newGrowth(s *jobsetstate.Snapshot, st *stage) *kueue.Workload {
	podSets := st.podSetsOf(s, func(z elastic.Size) int32 { return z.Missing })
	if len(podSets) == 0 {
		return nil
	}
	number := 1
	for _, growth := range st.growths {
		number = max(number, jobsetstate.GrowthNumber(growth)+1)
	}
	workload := newWorkload(s, st)
	workload.Name = jobsetstate.WorkloadName(s.JobSet, s.Plan, st.index, number)
	workload.Labels[apis.GrowthLabel] = strconv.Itoa(number)
	workload.Annotations[apis.FlavorsAnnotation] = elastic.Flavors(st.workload)
	workload.Spec.PodSets = podSets
	// The execution time of the stage is limited by its own quota Workload.
	workload.Spec.MaximumExecutionTimeSeconds = nil
	return workload
}

// resizeStage sizes the running Jobs of a stage to its admitted quota: it enlarges them when a growth was admitted, and shrinks them when a
// growth must go. A Job that was made smaller is enlarged when the pods that it lost have terminated: the Job controller replaces them at once.
func (w *Step) resizeStage(s *jobsetstate.Snapshot, st *stage) {
	g := ResizeJobs{Stage: st.Name}
	for _, job := range st.jobs {
		podSet := st.podSetOf(job)
		now := st.sizes[podSet].Now
		if !childjob.IsRunning(job) || !childjob.IsIndexed(&job.Spec) || !st.isScaled(s.JobSet, podSet) || childjob.PodsAtOnce(job) == now {
			continue
		}
		if childjob.PodsAtOnce(job) < now {
			if hasPodFrom(s, childjob.PodsAtOnce(job), func(pod *corev1.Pod) bool { return pod.Labels[batchv1.JobNameLabel] == job.Name }) {
				continue
			}
			if err := childjob.Honors(job, st.growthUpdates(s, podSet)...); err != nil {
				w.Complaints = append(w.Complaints, err.Error())
				continue
			}
		}
		g.Before, g.After = append(g.Before, job), append(g.After, childjob.Resized(job, now))
	}
	if len(g.After) > 0 {
		w.ResizeJobs = append(w.ResizeJobs, g)
	}
}

// growthUpdates returns the pod set updates that Ready AdmissionChecks request for the growths of a stage.
func (st *stage) growthUpdates(s *jobsetstate.Snapshot, podSet int) []childjob.Update {
	var updates []childjob.Update
	for _, growth := range st.growths {
		if s.MayUse(growth) {
			updates = append(updates, childjob.UpdatesOf(growth, st.PodSets[podSet].Name)...)
		}
	}
	return updates
}
