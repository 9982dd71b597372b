package stages

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// With its feature gate ElasticJobSet the JobSet controller lets users change the parallelism of Indexed Jobs, and changes the child Jobs
// at the same time. Fewer pods are always allowed: their quota is reclaimable as soon as they have terminated. If there would be more pods
// than quota, an admission policy turns the write into a no-op. A quota Workload of its own, a growth, asks for the missing quota, and once
// it is admitted the manager enlarges the Jobs. Package elastic computes which quota Workload pays for which pods.
//
// An event of a growth affects only the pods that the growth pays for. An event of the stage affects its growths too, which end before the
// stage releases its quota. The stage then queues for all of its pods.

// sizeOf computes which quota Workloads pay for the pods of a pod set.
func (st *stage) sizeOf(s *jobsetstate.Snapshot, podSet int) elastic.Size {
	name, want, live := st.PodSets[podSet].Name, st.podsPerJob(podSet), st.live(s, podSet)
	base := want
	if live > 0 && st.isScaled(s.JobSet, podSet) {
		base = min(elastic.Charged(st.workload, name, want)/st.tallies[name].replicas, elastic.Held(st.workload, name)/live)
	}
	var growths []elastic.Growth
	for _, growth := range st.growths {
		growths = append(growths, elastic.Growth{
			HoldsQuota: quotaworkload.HoldsQuota(growth), Held: elastic.Held(growth, name) / max(1, live),
			MayRun: s.MayUse(growth), MayBegin: len(childjob.UpdatesOf(growth, name)) == 0,
		})
	}
	return elastic.Divide(want, base, live, growths)
}

// live returns how many Jobs of a pod set need their quota: all that have not succeeded. A gang of several Jobs also keeps the quota of
// succeeded Jobs, because it would need that quota again after an eviction.
func (st *stage) live(s *jobsetstate.Snapshot, podSet int) int32 {
	name := st.PodSets[podSet].Name
	live := st.tallies[name].replicas
	if schedulergang.IsSingleGang(s.JobSet, name) {
		return live
	}
	for index := range st.done[name] {
		if !s.HasPodAt(name, index) {
			live--
		}
	}
	return max(0, live)
}

// isScaled reports whether a stage that holds quota has ever had another number of pods than now. Only then may its Jobs run with fewer
// pods than the JobSet asks for: other Jobs are not prepared for that.
func (st *stage) isScaled(js *jobsetapi.JobSet, podSet int) bool {
	name := st.PodSets[podSet].Name
	if st.workload == nil || !st.holdsQuota() || !isElastic(js, name) {
		return false
	}
	return len(st.growths) > 0 || elastic.Charged(st.workload, name, st.PodSets[podSet].Count) != st.PodSets[podSet].Count ||
		slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool {
			return jobsetstate.ReplicatedJobOf(job) == name && childjob.IsRunning(job) && childjob.PodsAtOnce(job) < st.podsPerJob(podSet)
		})
}

// isElastic reports whether the Jobs of a ReplicatedJob may get more pods later. A gang is admitted as a whole or not at all.
func isElastic(js *jobsetapi.JobSet, replicatedJob string) bool {
	isGang := func(g *jobsetapi.GangConfig) bool { return g != nil && g.GangMode != jobsetapi.GangModeOff }
	return !isGang(js.Spec.GangConfig) && slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool {
		return r.Name == replicatedJob && !isGang(r.GangConfig) && r.Template.Annotations[apis.GangGroupAnnotation] == "" && childjob.IsIndexed(&r.Template.Spec)
	})
}

// isSettled reports whether no pod of a pod set runs, or may still be created, beyond the quota that the stage holds now.
func (st *stage) isSettled(s *jobsetstate.Snapshot, podSet int) bool {
	name, limit := st.PodSets[podSet].Name, st.sizes[podSet].Now
	if st.workload == nil || len(st.growths) == 0 && elastic.Charged(st.workload, name, 0) <= st.PodSets[podSet].Count {
		return true
	}
	for _, job := range st.jobs {
		if jobsetstate.ReplicatedJobOf(job) == name && childjob.HasPods(job) && childjob.PodsAtOnce(job) > limit {
			return false
		}
	}
	return !hasPodFrom(s, limit, func(pod *corev1.Pod) bool { return jobsetstate.ReplicatedJobOf(pod) == name })
}

// hasPodFrom reports whether a pod with this completion index, or a later one, may still run among those that a function chooses.
func hasPodFrom(s *jobsetstate.Snapshot, first int32, isChosen func(*corev1.Pod) bool) bool {
	return slices.ContainsFunc(s.Owned.Pods, func(pod *corev1.Pod) bool {
		index, err := strconv.ParseInt(pod.Labels[batchv1.JobCompletionIndexAnnotation], 10, 32)
		return isChosen(pod) && (err != nil || int32(index) >= first)
	})
}

func (st *stage) isSettledWhole(s *jobsetstate.Snapshot) bool {
	for i := range st.PodSets {
		if !st.isSettled(s, i) {
			return false
		}
	}
	return true
}

// hasOutgrown reports whether the stage holds quota for fewer pods than it needs to run.
func (st *stage) hasOutgrown(js *jobsetapi.JobSet) bool {
	for i, z := range st.sizes {
		name, count := st.PodSets[i].Name, st.PodSets[i].Count
		if z.Base <= 0 && z.Want > 0 || !isElastic(js, name) && elastic.Charged(st.workload, name, count) < count {
			return true
		}
	}
	return false
}

// resize changes a quota Workload that holds no quota so that it asks for the current number of pods. Its reclaimable pods must be right
// before, or too few pods would count in between.
func (st *stage) resize(s *jobsetstate.Snapshot, workload *kueue.Workload) {
	if _, differs := st.reclaimChange(s); differs || st.holdsQuota() {
		return
	}
	for i := range st.PodSets {
		for j := range workload.Spec.PodSets {
			if workload.Spec.PodSets[j].Name == kueue.NewPodSetReference(st.PodSets[i].Name) {
				workload.Spec.PodSets[j].Count = st.PodSets[i].Count
			}
		}
	}
}

// hasWrongSize reports whether a quota Workload asks for another number of pods than the stage has now.
func (st *stage) hasWrongSize(workload *kueue.Workload) bool {
	return slices.ContainsFunc(st.PodSets, func(podSet stageplan.PodSet) bool {
		return elastic.Charged(workload, podSet.Name, podSet.Count) != podSet.Count
	})
}

// isSteady reports whether as many pods of a stage are ready, or have succeeded, as its own quota Workload pays for. The growths of the
// stage pay for the others.
func (st *stage) isSteady() bool {
	for i, name := range st.ReplicatedJobs {
		steady := st.tallies[name].succeeded
		for _, job := range st.jobs {
			if jobsetstate.ReplicatedJobOf(job) == name && !st.hasSucceeded(job) && childjob.IsReadyWith(job, st.sizes[i].Base) {
				steady++
			}
		}
		if count := st.tallies[name]; count.failed > 0 || steady < count.replicas {
			return false
		}
	}
	return true
}
