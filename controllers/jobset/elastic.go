package jobset

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/childjob"
)

// With its feature gate ElasticJobSet the JobSet controller lets users change the parallelism of Indexed Jobs, and changes the child
// Jobs in the same moment. Fewer pods are always welcome: what they were charged for is reclaimable as soon as they have ended. More pods
// would start before anybody could ask for their quota, so that the guards let a JobSet grow only while it is suspended: then it
// queues for all of it.

// charged is for how many pods the quota Workload asks in a pod set of the stage. While it holds quota it is no more than it was admitted
// for, together with those that were reclaimable then: what it asks for may have changed while it was being admitted.
func (st *stage) charged(podSet int) int32 {
	name := kueue.NewPodSetReference(st.PodSets[podSet].Name)
	i := slices.IndexFunc(st.workload.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == name })
	if i < 0 {
		return st.PodSets[podSet].Count
	}
	asked := st.workload.Spec.PodSets[i].Count
	if !st.holdsQuota() {
		return asked
	}
	for _, assignment := range st.workload.Status.Admission.PodSetAssignments {
		if assignment.Name == name && assignment.Count != nil {
			return min(asked, *assignment.Count+st.saidReclaimable(name))
		}
	}
	return asked
}

// saidReclaimable is how many pods of a pod set the quota Workload says it does not need any more.
func (st *stage) saidReclaimable(name kueue.PodSetReference) int32 {
	for _, pods := range st.workload.Status.ReclaimablePods {
		if pods.Name == name {
			return pods.Count
		}
	}
	return 0
}

// surplus is how many more pods a stage is charged for than it can have, now that its Jobs were made smaller. It is none while one of
// the Jobs is larger, or while a pod that has to go still runs.
func (st *stage) surplus(s *seen, podSet int) int32 {
	more := st.charged(podSet) - st.PodSets[podSet].Count
	if more <= 0 || !st.holdsQuota() {
		return 0
	}
	name, limit := st.PodSets[podSet].Name, st.podsPerJob(podSet)
	for _, job := range st.jobs {
		if st.replicatedJobOf(job) == name && !childjob.IsFinished(job, batchv1.JobComplete) && childjob.PodsAtOnce(job) > limit {
			return 0
		}
	}
	for _, pod := range s.mine.pods {
		index, err := strconv.ParseInt(pod.Labels[batchv1.JobCompletionIndexAnnotation], 10, 32)
		if replicatedJobOf(pod) == name && (err != nil || int32(index) >= limit) {
			return 0
		}
	}
	return more
}

// hasGrown tells whether the stage asks for fewer pods than it has by now.
func (st *stage) hasGrown() bool {
	for i := range st.PodSets {
		if st.charged(i) < st.PodSets[i].Count {
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
