package jobset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/childjob"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// grow has the new sizes of the running Jobs of a stage whose number of admitted pods has changed.
type grow struct {
	stage string
	// before and after have the same Jobs at the same index.
	before, after []*batchv1.Job
}

// growthNumber returns the number of a growth, or 0 for the quota Workload of a stage.
func growthNumber(workload *kueue.Workload) int {
	number, err := strconv.Atoi(workload.Labels[apis.GrowthLabel])
	if err != nil && workload.Labels[apis.GrowthLabel] != "" {
		return 1 // the admission policies reject this label, but it is not the quota Workload of a stage
	}
	return number
}

func sortGrowths(growths []*kueue.Workload) {
	slices.SortFunc(growths, func(a, b *kueue.Workload) int {
		return cmp.Or(cmp.Compare(growthNumber(a), growthNumber(b)), cmp.Compare(a.UID, b.UID))
	})
}

// holdingGrowths returns the growths that hold quota.
func (st *stage) holdingGrowths() []*kueue.Workload {
	return slices.DeleteFunc(slices.Clone(st.growths), func(growth *kueue.Workload) bool { return !quotaworkload.HoldsQuota(growth) })
}

// mayUse reports whether pods may run on the quota of a growth.
func (s *snapshot) mayUse(growth *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(growth) && quotaworkload.IsTrue(growth, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(growth, kueue.WorkloadEvicted) &&
		!quotaworkload.IsTrue(growth, kueue.WorkloadFinished) && growth.DeletionTimestamp.IsZero() && len(quotaworkload.Gates(growth)) == 0 && s.charged[growth.UID]
}

// mayGrow reports whether a stage holds quota and keeps it. A stage that does not queues for all of its pods.
func (st *stage) mayGrow(s *snapshot) bool {
	w := st.workload
	return w != nil && w.DeletionTimestamp.IsZero() && st.holdsQuota() && !st.mustRelease && !quotaworkload.IsTrue(w, kueue.WorkloadFinished) &&
		!st.succeeded() && !isSuspendedByUser(s.jobSet) && !st.lacksQuota(s)
}

// reconcileGrowths reconciles the growths of one stage of a JobSet that has not finished.
func (w *actions) reconcileGrowths(s *snapshot, st *stage, e *eviction) {
	if !st.mayGrow(s) {
		w.dropGrowths(st)
		e.complete = e.complete && len(st.growths) == 0
		return
	}
	for k, growth := range st.growths {
		w.awaitsEngine = w.awaitsEngine || quotaworkload.IsTrue(growth, kueue.WorkloadAdmitted) && !s.charged[growth.UID]
		switch {
		case !growth.DeletionTimestamp.IsZero():
			if !quotaworkload.HoldsQuota(growth) || st.isSettledWhole(s) {
				w.removeFinalizerOnce(growth)
			}
		case quotaworkload.IsTrue(growth, kueue.WorkloadFinished) || !st.pays(k):
			if !quotaworkload.HoldsQuota(growth) || st.isSettledWhole(s) {
				w.drop = append(w.drop, growth)
			}
		default:
			w.reconcileGrowth(s, st, k)
		}
	}
	if !st.mayRun(s) || st.decided {
		return
	}
	w.resizeJobs(s, st)
	if growth := newGrowth(s, st); growth != nil {
		w.createGrowths = append(w.createGrowths, growth)
	}
}

// dropGrowths deletes the growths of a stage that is about to release its quota: pending growths at once, the others when no pod of the
// stage is left.
func (w *actions) dropGrowths(st *stage) {
	for _, growth := range st.growths {
		if !quotaworkload.HoldsQuota(growth) || !st.hasPods {
			w.drop = append(w.drop, growth)
		}
	}
}

// pays reports whether a growth pays, or asks, for pods that the JobSet still wants.
func (st *stage) pays(growth int) bool {
	return slices.ContainsFunc(st.sizes, func(z elastic.Size) bool { return z.Growths[growth] > 0 })
}

// reconcileGrowth reconciles a growth that the JobSet still wants.
func (w *actions) reconcileGrowth(s *snapshot, st *stage, k int) {
	growth := st.growths[k]
	spoken := reportsReadiness(growth)
	if st.open && isGated(growth) && quotaworkload.HoldsQuota(growth) && !spoken {
		w.progress = append(w.progress, progress{stage: st.Name, workload: growth, ready: workloadstatus.PodsNotStarted()})
		return
	}
	if after := st.adjustedGrowth(s, k); after != nil {
		w.change = append(w.change, change{before: growth, after: after})
	}
	if !quotaworkload.HoldsQuota(growth) {
		return
	}
	pods := st.reclaimableOf(s, growth, func(z elastic.Size) int32 { return z.Growths[k] })
	if said := growth.Status.ReclaimablePods; !covers(said, pods) && covers(pods, said) {
		w.reclaim = append(w.reclaim, reclaim{growth, pods})
	}
	switch {
	case quotaworkload.IsTrue(growth, kueue.WorkloadEvicted):
		if st.isSettledWhole(s) {
			w.giveBack = append(w.giveBack, growth)
		}
	case !st.open && spoken:
		w.progress = append(w.progress, progress{stage: st.Name, workload: growth})
	case st.mayRun(s) && s.mayUse(growth):
		if ready := readiness(growth, st.isGrown()); (spoken || st.isGrown()) && !conditions.Has(growth.Status.Conditions, ready) {
			w.progress = append(w.progress, progress{stage: st.Name, workload: growth, ready: ready})
		}
	}
}

// isGrown reports whether all pods with admitted quota are ready or have succeeded.
func (st *stage) isGrown() bool {
	return st.all(stageplan.Ready) && !slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool {
		return childjob.IsRunning(job) && childjob.PodsAtOnce(job) < st.sizes[st.podSetOf(job)].Now
	})
}

func (st *stage) podSetOf(job *batchv1.Job) int {
	return slices.Index(st.ReplicatedJobs, st.replicatedJobOf(job))
}

// adjustedGrowth returns a growth as it should be, or nil if it is so already. A growth without quota asks for the pods that are missing
// now.
func (st *stage) adjustedGrowth(s *snapshot, k int) *kueue.Workload {
	return st.adjust(s, st.growths[k], func(after *kueue.Workload) {
		if !quotaworkload.HoldsQuota(after) && len(after.Status.ReclaimablePods) == 0 {
			after.Spec.PodSets = st.podSetsOf(func(z elastic.Size) int32 { return z.Growths[k] })
		}
	})
}

// podSetsOf returns pod sets with the number of pods that more returns for each Job.
func (st *stage) podSetsOf(more func(elastic.Size) int32) []kueue.PodSet {
	var all []kueue.PodSet
	for i, z := range st.sizes {
		if pods := more(z); pods > 0 {
			podSet := podSetOf(&st.PodSets[i])
			podSet.Count = pods * z.Live
			all = append(all, podSet)
		}
	}
	return all
}

// newGrowth returns a quota Workload for the pods that no quota Workload pays for, or nil if there are none.
func newGrowth(s *snapshot, st *stage) *kueue.Workload {
	podSets := st.podSetsOf(func(z elastic.Size) int32 { return z.Missing })
	if len(podSets) == 0 {
		return nil
	}
	number := 1
	for _, growth := range st.growths {
		number = max(number, growthNumber(growth)+1)
	}
	workload := newWorkload(s, st)
	workload.Name = workloadName(s.jobSet, s.plan, st.index, number)
	workload.Labels[apis.GrowthLabel] = strconv.Itoa(number)
	workload.Annotations[apis.FlavorsAnnotation] = elastic.Flavors(st.workload)
	workload.Spec.PodSets = podSets
	// The execution time of the stage is limited by its own quota Workload.
	workload.Spec.MaximumExecutionTimeSeconds = nil
	return workload
}

// resizeJobs sizes the running Jobs of a stage to its admitted quota: it enlarges them when a growth was admitted, and shrinks them when a
// growth must go.
func (w *actions) resizeJobs(s *snapshot, st *stage) {
	g := grow{stage: st.Name}
	for _, job := range st.jobs {
		podSet := st.podSetOf(job)
		now := st.sizes[podSet].Now
		if !childjob.IsRunning(job) || !childjob.IsIndexed(&job.Spec) || !st.isScaled(s.jobSet, podSet) || childjob.PodsAtOnce(job) == now {
			continue
		}
		if childjob.PodsAtOnce(job) < now {
			if err := childjob.Honors(job, st.growthUpdates(s, podSet)...); err != nil {
				w.complaints = append(w.complaints, err.Error())
				continue
			}
		}
		g.before, g.after = append(g.before, job), append(g.after, childjob.Resized(job, now))
	}
	if len(g.after) > 0 {
		w.grow = append(w.grow, g)
	}
}

// growthUpdates returns the pod set updates that Ready AdmissionChecks request for the growths of a stage.
func (st *stage) growthUpdates(s *snapshot, podSet int) []childjob.Update {
	var updates []childjob.Update
	for _, growth := range st.growths {
		if s.mayUse(growth) {
			updates = append(updates, updatesOf(growth, st.PodSets[podSet].Name)...)
		}
	}
	return updates
}

// givesUpPods reports whether growths release quota because Jobs were made smaller. The cache may show an older state of these Jobs.
func (w *actions) givesUpPods() bool {
	return slices.ContainsFunc(w.reclaim, func(r reclaim) bool { return growthNumber(r.workload) > 0 })
}

// grow makes running Jobs larger or smaller.
func (r *Reconciler) grow(ctx context.Context, s *snapshot, w *actions) error {
	for _, g := range w.grow {
		err := r.each(ctx, len(g.after), func(i int) error {
			if err := r.patchIfSame(ctx, g.before[i], g.after[i]); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("change the number of pods of Job %s: %w", client.ObjectKeyFromObject(g.after[i]), err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		events.StageResized(g.stage, len(g.after), ptr.Deref(g.after[0].Spec.Parallelism, 0)).Emit(r.config.Recorder, s.jobSet)
	}
	return nil
}

// createGrowths creates the quota Workloads of growths.
func (r *Reconciler) createGrowths(ctx context.Context, s *snapshot, w *actions) error {
	for _, growth := range w.createGrowths {
		err := r.config.Client.Create(ctx, growth)
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("create quota Workload %s for the growth of a stage: %w", client.ObjectKeyFromObject(growth), err)
		}
		pods := int32(0)
		for i := range growth.Spec.PodSets {
			pods += growth.Spec.PodSets[i].Count
		}
		events.StageGrows(growth.Labels[apis.StageLabel], pods).EmitAbout(r.config.Recorder, s.jobSet, growth)
	}
	return nil
}
