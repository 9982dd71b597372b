package jobset

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/life"
	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/childjob"
)

// With its feature gate ElasticJobSet the JobSet controller lets users change the parallelism of Indexed Jobs, and changes the child
// Jobs in the same moment. Fewer pods are always welcome: what they were charged for is reclaimable as soon as they have ended. Where there
// would be more than there is quota for, a policy makes of it a write that changes nothing. What is missing is asked for by a quota
// Workload of its own, and once that is admitted the manager makes the Jobs larger:
//
//	train(5 pods wanted)  quota Workload: 3  growth 1: 2 waits     the Jobs run with 3 pods
//	train(5 pods wanted)  quota Workload: 3  growth 1: 2 admitted  the Jobs run with 5
//	train(4 pods wanted)  quota Workload: 3  growth 1: 2 - 1       the Jobs run with 4
//
// The newest growth is given up first. What happens to a growth concerns only the pods that it pays for; what happens to the stage
// concerns its growths too, which go before it gives its quota back: then it queues for all of its pods.

// A size says how many pods each Job of a pod set has, and who pays for them.
type size struct {
	// want is how many the JobSet asks for, and now how many there is admitted quota for.
	want, now int32
	// first is how many a held Job begins with: now, but for growths that ask for something that is not yet in its pod template.
	first int32
	// base is for how many the quota Workload of the stage pays, growths for how many each growth does, or asks, and missing for how many
	// nobody does.
	base    int32
	growths []int32
	missing int32
	// live is how many Jobs need them.
	live int32
}

// measure finds out who pays for the pods of a stage.
func (st *stage) measure(s *seen) {
	st.sizes = make([]size, len(st.PodSets))
	for i := range st.PodSets {
		st.sizes[i] = st.sizeOf(s, i)
	}
}

func (st *stage) sizeOf(s *seen, podSet int) size {
	want := st.podsPerJob(podSet)
	z := size{want: want, now: want, first: want, base: want, growths: make([]int32, len(st.growths)), live: st.live(s, podSet)}
	if z.live == 0 || !st.isScaled(s.jobSet, podSet) {
		return z
	}
	replicas := st.tallies[st.PodSets[podSet].Name].replicas
	z.base = min(want, charged(st.workload, st.PodSets[podSet].Name, want)/replicas, st.held(st.workload, podSet)/z.live)
	z.now, z.first, z.missing = z.base, z.base, want-z.base
	waits := false
	for k, growth := range st.growths {
		switch {
		case holdsQuota(growth):
			z.growths[k] = min(z.missing, st.held(growth, podSet)/z.live)
		case !waits:
			waits, z.growths[k] = true, z.missing
		}
		z.missing -= z.growths[k]
		if s.mayUse(growth) {
			z.now += z.growths[k]
			if len(updatesOf(growth, st.PodSets[podSet].Name)) == 0 {
				z.first += z.growths[k]
			}
		}
	}
	return z
}

// live is how many Jobs of a pod set need their quota: all but those that have succeeded. A gang of several Jobs keeps the quota of
// those, too: evicted, it would need it again.
func (st *stage) live(s *seen, podSet int) int32 {
	name := st.PodSets[podSet].Name
	live := st.tallies[name].replicas
	for _, job := range st.jobs {
		if st.replicatedJobOf(job) == name && childjob.IsFinished(job, batchv1.JobComplete) && !s.hasPodOf(job) && !restartsWhole(s.jobSet, name) {
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
	return len(st.growths) > 0 || charged(st.workload, name, st.PodSets[podSet].Count) != st.PodSets[podSet].Count ||
		slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool {
			return st.replicatedJobOf(job) == name && childjob.IsRunning(job) && childjob.PodsAtOnce(job) < st.podsPerJob(podSet)
		})
}

// isElastic tells whether the Jobs of a ReplicatedJob may have more pods later. A gang is admitted as a whole or not at all.
func isElastic(js *jobsetapi.JobSet, replicatedJob string) bool {
	isGang := func(g *jobsetapi.GangConfig) bool { return g != nil && g.GangMode != jobsetapi.GangModeOff }
	return !isGang(js.Spec.GangConfig) && slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool {
		return r.Name == replicatedJob && !isGang(r.GangConfig) && childjob.IsIndexed(&r.Template.Spec)
	})
}

// charged is for how many pods of a pod set a quota Workload asks, or the default where it does not say. While it holds quota it is no
// more than it was admitted for, together with those that were reclaimable then: what it asks for may have changed while it was being
// admitted.
func charged(workload *kueue.Workload, podSet string, orElse int32) int32 {
	name := kueue.NewPodSetReference(podSet)
	i := slices.IndexFunc(workload.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == name })
	if i < 0 {
		return orElse
	}
	asked := workload.Spec.PodSets[i].Count
	if !holdsQuota(workload) {
		return asked
	}
	for _, assignment := range workload.Status.Admission.PodSetAssignments {
		if assignment.Name == name && assignment.Count != nil {
			return min(asked, *assignment.Count+saidReclaimable(workload, name))
		}
	}
	return asked
}

// held is for how many pods of a pod set a quota Workload still holds quota.
func (st *stage) held(workload *kueue.Workload, podSet int) int32 {
	name := st.PodSets[podSet].Name
	return max(0, charged(workload, name, 0)-saidReclaimable(workload, kueue.NewPodSetReference(name)))
}

// saidReclaimable is how many pods of a pod set a quota Workload says it does not need any more.
func saidReclaimable(workload *kueue.Workload, name kueue.PodSetReference) int32 {
	for _, pods := range workload.Status.ReclaimablePods {
		if pods.Name == name {
			return pods.Count
		}
	}
	return 0
}

// isSettled tells whether no pod of a pod set runs, or may still be made, beyond those that there is quota for now.
func (st *stage) isSettled(s *seen, podSet int) bool {
	name, limit := st.PodSets[podSet].Name, st.sizes[podSet].now
	if st.workload == nil || len(st.growths) == 0 && charged(st.workload, name, 0) <= st.PodSets[podSet].Count {
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
		if z.base <= 0 && z.want > 0 || !isElastic(js, name) && charged(st.workload, name, count) < count {
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
		return charged(workload, podSet.Name, podSet.Count) != podSet.Count
	})
}

// isSteady tells whether as many pods of a stage are ready, or have succeeded, as its own quota Workload pays for. The others are a
// matter of its growths.
func (st *stage) isSteady() bool {
	for i, name := range st.ReplicatedJobs {
		steady := int32(0)
		for _, job := range st.jobs {
			if st.replicatedJobOf(job) == name && (childjob.IsFinished(job, batchv1.JobComplete) || childjob.IsReadyWith(job, st.sizes[i].base)) {
				steady++
			}
		}
		if count := st.tallies[name]; count.failed > 0 || steady < count.replicas {
			return false
		}
	}
	return true
}

func holdsQuota(workload *kueue.Workload) bool {
	return workload.Status.Admission != nil && life.IsTrue(workload, kueue.WorkloadQuotaReserved)
}
