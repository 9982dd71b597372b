package jobset

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/elastic"
	"github.com/tranche-dev/tranche/admission/life"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/childjob"
)

// With its feature gate ElasticJobSet the JobSet controller lets users change the parallelism of Indexed Jobs, and changes the child
// Jobs in the same moment. Fewer pods are always welcome: what they were charged for is reclaimable as soon as they have ended. Where there
// would be more than there is quota for, a policy makes of it a write that changes nothing. What is missing is asked for by a quota
// Workload of its own, a growth, and once that is admitted the manager makes the Jobs larger. Package elastic says who pays for which pods.
//
// What happens to a growth concerns only the pods that it pays for; what happens to the stage concerns its growths too, which go before it
// gives its quota back: then it queues for all of its pods.

// measure finds out who pays for the pods of a stage.
func (st *stage) measure(s *seen) {
	st.sizes = make([]elastic.Size, len(st.PodSets))
	for i := range st.PodSets {
		st.sizes[i] = st.sizeOf(s, i)
	}
}

func (st *stage) sizeOf(s *seen, podSet int) elastic.Size {
	name, want, live := st.PodSets[podSet].Name, st.podsPerJob(podSet), st.live(s, podSet)
	if live == 0 || !st.isScaled(s.jobSet, podSet) {
		return elastic.Fixed(want, live, len(st.growths))
	}
	base := min(elastic.Charged(st.workload, name, want)/st.tallies[name].replicas, elastic.Held(st.workload, name)/live)
	var growths []elastic.Growth
	for _, growth := range st.growths {
		growths = append(growths, elastic.Growth{
			HoldsQuota: life.HoldsQuota(growth), Held: elastic.Held(growth, name) / live,
			MayRun: s.mayUse(growth), MayBegin: len(updatesOf(growth, name)) == 0,
		})
	}
	return elastic.Divide(want, base, live, growths)
}

// live is how many Jobs of a pod set need their quota: all but those that have succeeded. A gang of several Jobs keeps the quota of
// those, too: evicted, it would need it again.
func (st *stage) live(s *seen, podSet int) int32 {
	name := st.PodSets[podSet].Name
	live := st.tallies[name].replicas
	if restartsWhole(s.jobSet, name) {
		return live
	}
	for index := range st.done[name] {
		if !s.hasPodAt(name, index) {
			live--
		}
	}
	return max(0, live)
}

// isScaled tells whether a stage that holds quota has ever had another number of pods than now. Only then may its Jobs run with fewer
// than the JobSet asks for: others would not know what to do with that.
func (st *stage) isScaled(js *jobsetapi.JobSet, podSet int) bool {
	name := st.PodSets[podSet].Name
	if st.workload == nil || !st.holdsQuota() || !isElastic(js, name) {
		return false
	}
	return len(st.growths) > 0 || elastic.Charged(st.workload, name, st.PodSets[podSet].Count) != st.PodSets[podSet].Count ||
		slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool {
			return st.replicatedJobOf(job) == name && childjob.IsRunning(job) && childjob.PodsAtOnce(job) < st.podsPerJob(podSet)
		})
}

// isElastic tells whether the Jobs of a ReplicatedJob may have more pods later. A gang is admitted as a whole or not at all.
func isElastic(js *jobsetapi.JobSet, replicatedJob string) bool {
	isGang := func(g *jobsetapi.GangConfig) bool { return g != nil && g.GangMode != jobsetapi.GangModeOff }
	return !isGang(js.Spec.GangConfig) && slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool {
		return r.Name == replicatedJob && !isGang(r.GangConfig) && r.Template.Annotations[apis.GangGroupAnnotation] == "" && childjob.IsIndexed(&r.Template.Spec)
	})
}

// isSettled tells whether no pod of a pod set runs, or may still be made, beyond those that there is quota for now.
func (st *stage) isSettled(s *seen, podSet int) bool {
	name, limit := st.PodSets[podSet].Name, st.sizes[podSet].Now
	if st.workload == nil || len(st.growths) == 0 && elastic.Charged(st.workload, name, 0) <= st.PodSets[podSet].Count {
		return true
	}
	for _, job := range st.jobs {
		if st.replicatedJobOf(job) == name && childjob.HasPods(job) && childjob.PodsAtOnce(job) > limit {
			return false
		}
	}
	for _, pod := range s.mine.pods {
		index, err := strconv.ParseInt(pod.Labels[batchv1.JobCompletionIndexAnnotation], 10, 32)
		if replicatedJobOf(pod) == name && (err != nil || int32(index) >= limit) {
			return false
		}
	}
	return true
}

func (st *stage) isSettledWhole(s *seen) bool {
	for i := range st.PodSets {
		if !st.isSettled(s, i) {
			return false
		}
	}
	return true
}

// hasOutgrown tells whether the stage holds quota for fewer pods than it can run with.
func (st *stage) hasOutgrown(js *jobsetapi.JobSet) bool {
	for i, z := range st.sizes {
		name, count := st.PodSets[i].Name, st.PodSets[i].Count
		if z.Base <= 0 && z.Want > 0 || !isElastic(js, name) && elastic.Charged(st.workload, name, count) < count {
			return true
		}
	}
	return false
}

// resize makes a quota Workload that holds nothing ask for the pods that the stage has by now. What it said about reclaimable pods has
// to be right before, or too few pods would count in between.
func (st *stage) resize(s *seen, workload *kueue.Workload) {
	if _, differs := st.reclaimNews(s); differs || st.holdsQuota() {
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

// hasWrongSize tells whether a quota Workload asks for another number of pods than the stage has by now.
func (st *stage) hasWrongSize(workload *kueue.Workload) bool {
	return slices.ContainsFunc(st.PodSets, func(podSet stageplan.PodSet) bool {
		return elastic.Charged(workload, podSet.Name, podSet.Count) != podSet.Count
	})
}

// isSteady tells whether as many pods of a stage are ready, or have succeeded, as its own quota Workload pays for. The others are a
// matter of its growths.
func (st *stage) isSteady() bool {
	for i, name := range st.ReplicatedJobs {
		steady := st.tallies[name].succeeded
		for _, job := range st.jobs {
			if st.replicatedJobOf(job) == name && !st.hasSucceeded(job) && childjob.IsReadyWith(job, st.sizes[i].Base) {
				steady++
			}
		}
		if count := st.tallies[name]; count.failed > 0 || steady < count.replicas {
			return false
		}
	}
	return true
}
