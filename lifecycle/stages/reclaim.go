package stages

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
)

// ReclaimPods has the reclaimable pods that a quota Workload should report: pods whose quota is no longer needed.
type ReclaimPods struct {
	Workload *kueue.Workload
	Pods     []kueue.ReclaimablePod
}

// reclaimable counts, by pod set, the pods of Jobs that have succeeded and those by which Jobs were made smaller. None of these pods runs
// again unless the JobSet is restarted or enlarged.
func (st *stage) reclaimable(s *Snapshot) []kueue.ReclaimablePod {
	return st.reclaimableOf(s, st.workload, func(z elastic.Size) int32 { return z.Base })
}

// reclaimableOf does the same for a quota Workload that pays for paysFor pods of each Job.
func (st *stage) reclaimableOf(s *Snapshot, workload *kueue.Workload, paysFor func(elastic.Size) int32) []kueue.ReclaimablePod {
	var all []kueue.ReclaimablePod
	for i, z := range st.sizes {
		name := kueue.NewPodSetReference(st.PodSets[i].Name)
		count := elastic.Charged(workload, st.PodSets[i].Name, 0) - paysFor(z)*z.Live
		switch {
		case !quotaworkload.HoldsQuota(workload):
			count = z.Want * (st.tallies[st.PodSets[i].Name].replicas - z.Live)
		case !st.isSettled(s, i):
			count = elastic.Reclaimable(workload, st.PodSets[i].Name)
		}
		if count > 0 {
			all = append(all, kueue.ReclaimablePod{Name: name, Count: count})
		}
	}
	return all
}

// hasWrongReclaim reports whether a quota Workload that releases its quota still reports pods as reclaimable that it will need again: the stage
// has shrunk and grown since it was admitted.
func (st *stage) hasWrongReclaim() bool {
	var all []kueue.ReclaimablePod
	for i, z := range st.sizes {
		if count := z.Want * (st.tallies[st.PodSets[i].Name].replicas - z.Live); count > 0 {
			all = append(all, kueue.ReclaimablePod{Name: kueue.NewPodSetReference(st.PodSets[i].Name), Count: count})
		}
	}
	return !covers(all, st.workload.Status.ReclaimablePods)
}

// podsPerJob returns for how many pods each Job of a pod set is charged.
func (st *stage) podsPerJob(podSet int) int32 {
	count := st.PodSets[podSet].Count
	if replicas := st.tallies[st.PodSets[podSet].Name].replicas; replicas > 0 {
		count /= replicas
	}
	return count
}

// hasPodOf reports whether a pod of a Job may still run.
func (s *Snapshot) hasPodOf(job *batchv1.Job) bool {
	for _, pod := range s.Owned.Pods {
		if pod.Labels[batchv1.JobNameLabel] == job.Name && pod.Labels[jobset.JobSetUIDKey] == job.Labels[jobset.JobSetUIDKey] {
			return true
		}
	}
	return false
}

// hasPodAt reports whether a pod may still run that belongs to the Job with this index of a ReplicatedJob.
func (s *Snapshot) hasPodAt(replicatedJob string, index int32) bool {
	return slices.ContainsFunc(s.Owned.Pods, func(pod *corev1.Pod) bool {
		return replicatedJobOf(pod) == replicatedJob && pod.Labels[jobset.JobIndexKey] == strconv.Itoa(int(index))
	})
}

// lacksQuota reports whether a stage that holds quota needs more than it is charged: a gang has grown, its ResourceClaimTemplates were
// replaced, or pods that were reported as reclaimable have to run again. Other stages may use that quota by now, so the stage cannot just
// take it.
func (st *stage) lacksQuota(s *Snapshot) bool {
	return st.holdsQuota() && (st.hasOtherClaims() || st.hasOutgrown(s.JobSet) || !covers(st.reclaimable(s), st.workload.Status.ReclaimablePods))
}

// reclaimChange returns the reclaimable pods, and whether they differ from those that the quota Workload reports. A stage that has succeeded
// finishes instead.
func (st *stage) reclaimChange(s *Snapshot) (news ReclaimPods, differs bool) {
	news = ReclaimPods{st.workload, st.reclaimable(s)}
	said := st.workload.Status.ReclaimablePods
	same := covers(news.Pods, said) && covers(said, news.Pods)
	return news, !st.succeeded() && !same
}

// covers reports whether a has at least as many pods of each pod set as b.
func covers(a, b []kueue.ReclaimablePod) bool {
	return !slices.ContainsFunc(b, func(want kueue.ReclaimablePod) bool {
		return !slices.ContainsFunc(a, func(has kueue.ReclaimablePod) bool { return has.Name == want.Name && has.Count >= want.Count })
	})
}
