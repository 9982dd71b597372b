package queuedjob

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// The user of an elastic Job may change its parallelism while it runs, and with it the completions of an Indexed Job. Fewer pods are always
// allowed: their quota is released when they have terminated. If there would be more pods at once, an admission policy keeps the size of the Job,
// and records what the user wants in SizeAnnotation and CompletionsAnnotation. A quota Workload of its own, a growth, asks for the missing
// quota, and once it is admitted the manager enlarges the Job. Package elastic computes which quota Workload pays for which pods.
//
// An event of a growth affects only the pods that the growth pays for. Before the Job releases its quota its growths end, and it then queues for
// all of its pods.

// Elastic reports whether the parallelism of a Job may change while it runs. A Job that may be admitted with fewer pods is not elastic.
func Elastic(job *batchv1.Job) bool {
	return job.Annotations[apis.ElasticJobAnnotation] == "true" && job.Annotations[apis.MinParallelismAnnotation] == ""
}

// growths returns the growths of the Job, the oldest first.
func (s *Snapshot) growths() []*kueue.Workload {
	growths := slices.DeleteFunc(slices.Clone(s.Owned.Workloads), func(w *kueue.Workload) bool { return w.Labels[apis.GrowthLabel] == "" })
	slices.SortFunc(growths, func(a, b *kueue.Workload) int { return jobsetstate.GrowthNumber(a) - jobsetstate.GrowthNumber(b) })
	return growths
}

// mayUse reports whether pods may run on the quota of a growth.
func (s *Snapshot) mayUse(growth *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(growth) && quotaworkload.IsTrue(growth, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(growth, kueue.WorkloadEvicted) &&
		growth.DeletionTimestamp.IsZero() && len(quotaworkload.Gates(growth)) == 0 && s.Charged[growth.UID]
}

// paid computes which quota Workloads pay for the pods of the Job.
func (s *Snapshot) paid(workload *kueue.Workload) elastic.Size {
	name := string(kueue.DefaultPodSetName)
	var growths []elastic.Growth
	for _, growth := range s.growths() {
		growths = append(growths, elastic.Growth{HoldsQuota: quotaworkload.HoldsQuota(growth), Held: elastic.Held(growth, name), MayRun: s.mayUse(growth)})
	}
	return elastic.Divide(needed(Restored(s.Job)), elastic.Held(workload, name), 1, growths)
}

// dropGrowths deletes growths that are not needed: those without quota at once, and the others when the Job has no pods. It reports whether
// there are none.
func (w *Step) dropGrowths(s *Snapshot) bool {
	growths := s.growths()
	for _, growth := range growths {
		switch {
		case w.Does(growth, quotastep.Delete):
		case !quotaworkload.HoldsQuota(growth) || !childjob.HasPods(s.Job) && !isUnnoticed(s.Job) && len(s.Owned.Pods) == 0:
			w.Do(quotastep.Delete, growth)
		case childjob.IsHeld(s.Job) && isUnnoticed(s.Job):
			w.clearSuspended(s.Job)
		default:
			w.RequeueWithin(podsEvery)
		}
	}
	return len(growths) == 0
}

// resize keeps an elastic Job that runs at the size that its quota Workloads pay for, and its growths at what it wants.
func (w *Step) resize(s *Snapshot, workload *kueue.Workload) {
	z, growths := s.paid(workload), s.growths()
	if z.Want == 0 { // it is about to finish
		return
	}
	isSettled := s.hasAtMost(min(z.Now, needed(s.Job)))
	w.reclaimUnused(workload, z.Base, isSettled)
	for k, growth := range growths {
		w.reconcileGrowth(s, growth, z.Growths[k], z.Now, isSettled)
	}
	if z.Missing > 0 && !w.Has(quotastep.Create) {
		w.Do(quotastep.Create, newGrowth(s, workload, z.Missing))
	}
	after := sized(s.Job, z.Now)
	switch {
	case equality.Semantic.DeepEqual(after, s.Job):
		return
	case needed(after) > needed(s.Job) && !isSettled:
		// The Job controller would make new pods while those that the Job has lost still use their quota.
		w.RequeueWithin(podsEvery)
		w.readsPods = true
		return
	case needed(after) > needed(s.Job):
		for _, growth := range growths {
			if err := childjob.Honors(s.Job, childjob.UpdatesOf(growth, string(kueue.DefaultPodSetName))...); s.mayUse(growth) && err != nil {
				w.Complaint = err.Error()
				w.RequeueWithin(workloadstatus.RecheckAfter)
				return
			}
		}
	}
	w.Job = &JobWrite{Kind: Resize, Before: s.Job, After: after}
}

// hasAtMost reports whether a Job that runs has, and will make, at most so many pods that are not terminal.
func (s *Snapshot) hasAtMost(pods int32) bool {
	return needed(s.Job) <= pods && s.Job.Status.Active+ptr.Deref(s.Job.Status.Terminating, 0) <= pods && len(s.Owned.Pods) <= int(pods)
}

// reclaimUnused reports as reclaimable what a quota Workload holds for more than so many pods, when these have terminated.
func (w *Step) reclaimUnused(workload *kueue.Workload, pays int32, isSettled bool) {
	unused := elastic.Held(workload, string(kueue.DefaultPodSetName)) - pays
	switch {
	case unused <= 0 || w.Has(quotastep.Reclaim):
	case !isSettled:
		w.RequeueWithin(podsEvery)
		w.readsPods = true
	default:
		w.readsPods = true
		all := elastic.Reclaimable(workload, string(kueue.DefaultPodSetName)) + unused
		w.Reclaim(workload, []kueue.ReclaimablePod{{Name: kueue.DefaultPodSetName, Count: all}})
	}
}

// reconcileGrowth reconciles a growth that pays, or asks, for so many pods of a Job that has quota for so many now.
func (w *Step) reconcileGrowth(s *Snapshot, growth *kueue.Workload, pays, now int32, isSettled bool) {
	holdsQuota := quotaworkload.HoldsQuota(growth)
	w.AwaitsEngine = w.AwaitsEngine || quotaworkload.IsTrue(growth, kueue.WorkloadAdmitted) && holdsQuota && !s.Charged[growth.UID]
	isNeedless := pays == 0 || quotaworkload.IsTrue(growth, kueue.WorkloadFinished) || !growth.DeletionTimestamp.IsZero()
	leaves := isNeedless || quotaworkload.IsTrue(growth, kueue.WorkloadEvicted)
	switch {
	case holdsQuota && leaves && !isSettled:
		w.RequeueWithin(podsEvery)
		w.readsPods = true
	case isNeedless:
		w.Do(quotastep.Delete, growth)
	case holdsQuota && leaves:
		w.Do(quotastep.Release, growth)
	default:
		w.adjustGrowth(s, growth, pays)
		if holdsQuota {
			w.reclaimUnused(growth, pays, isSettled)
		}
		if s.mayUse(growth) && !w.Has(quotastep.Progress) {
			w.ReportReadiness(growth, childjob.IsReady(s.Job) && needed(s.Job) >= now)
		}
	}
}

// adjustGrowth changes a growth if it differs from what the Job asks for.
func (w *Step) adjustGrowth(s *Snapshot, growth *kueue.Workload, pays int32) {
	after := growth.DeepCopy()
	s.gate(after)
	s.prioritize(after)
	if !quotaworkload.HoldsQuota(growth) && elastic.Reclaimable(growth, string(kueue.DefaultPodSetName)) == 0 {
		after.Spec.PodSets[0].Count = pays
	}
	w.changeTo(growth, after)
}

// newGrowth makes a quota Workload for pods that no quota Workload pays for. They run on the flavors of the others, which are in the pod
// template of the Job.
func newGrowth(s *Snapshot, workload *kueue.Workload, pods int32) *kueue.Workload {
	number := 1
	for _, growth := range s.growths() {
		number = max(number, jobsetstate.GrowthNumber(growth)+1)
	}
	growth := newWorkload(s)
	growth.Name = growthName(s.Job, number)
	growth.Labels[apis.GrowthLabel] = strconv.Itoa(number)
	metav1.SetMetaDataAnnotation(&growth.ObjectMeta, apis.FlavorsAnnotation, elastic.Flavors(workload))
	growth.Spec.PodSets[0].Count = pods
	// The execution time of the Job is limited by its own quota Workload.
	growth.Spec.MaximumExecutionTimeSeconds = nil
	return growth
}

// sized returns an elastic Job that runs with at most so many pods at once: as its user wants it if that is not more. Otherwise the annotations
// record what the user wants. Completions never become fewer than they are, or the Job could be complete too early.
func sized(job *batchv1.Job, pods int32) *batchv1.Job {
	own := restoredSize(job)
	if needed(own) <= pods {
		return own
	}
	after := job.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.SizeAnnotation, strconv.Itoa(int(ptr.Deref(own.Spec.Parallelism, 1))))
	if own.Spec.Completions != nil && !ptr.Equal(own.Spec.Completions, job.Spec.Completions) {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.CompletionsAnnotation, strconv.Itoa(int(*own.Spec.Completions)))
	}
	after.Spec.Parallelism = &pods
	if completions := job.Spec.Completions; completions != nil && *completions < pods {
		after.Spec.Completions = new(pods)
	}
	return after
}
