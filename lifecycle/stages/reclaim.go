package stages

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// reclaimable counts, by pod set, the pods of Jobs that have succeeded and those by which Jobs were made smaller. None of these pods runs
// again unless the JobSet is restarted or enlarged.
func (st *stage) reclaimable(s *jobsetstate.Snapshot) []kueue.ReclaimablePod {
	return st.reclaimableOf(s, st.workload, func(z elastic.Size) int32 { return z.Base })
}

// reclaimableOf does the same for a quota Workload that pays for paysFor pods of each Job.
func (st *stage) reclaimableOf(s *jobsetstate.Snapshot, workload *kueue.Workload, paysFor func(elastic.Size) int32) []kueue.ReclaimablePod {
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
	return !quotaworkload.Covers(all, st.workload.Status.ReclaimablePods)
}

// reclaim reports the reclaimable pods of a stage, if they have changed.
func (w *Step) reclaim(s *jobsetstate.Snapshot, st *stage) {
	if pods, differs := st.reclaimChange(s); differs && !st.lacksQuota(s) {
		w.Reclaim(st.workload, pods)
		w.givesUpPods = w.givesUpPods || st.holdsQuota() && elastic.HasShrunk(st.workload, st.PodSets)
	}
}

// podsPerJob returns for how many pods each Job of a pod set is charged.
func (st *stage) podsPerJob(podSet int) int32 {
	count := st.PodSets[podSet].Count
	if replicas := st.tallies[st.PodSets[podSet].Name].replicas; replicas > 0 {
		count /= replicas
	}
	return count
}

// lacksQuota reports whether a stage that holds quota needs more than it is charged: a gang has grown, its ResourceClaimTemplates were
// replaced, or pods that were reported as reclaimable have to run again. Other stages may use that quota by now, so the stage cannot just
// take it.
func (st *stage) lacksQuota(s *jobsetstate.Snapshot) bool {
	return st.holdsQuota() && (st.hasOtherClaims() || st.hasOutgrown(s.JobSet) || !quotaworkload.Covers(st.reclaimable(s), st.workload.Status.ReclaimablePods))
}

// reclaimChange returns the reclaimable pods, and whether they differ from those that the quota Workload reports. A stage that has succeeded
// finishes instead.
func (st *stage) reclaimChange(s *jobsetstate.Snapshot) (pods []kueue.ReclaimablePod, differs bool) {
	pods = st.reclaimable(s)
	said := st.workload.Status.ReclaimablePods
	same := quotaworkload.Covers(pods, said) && quotaworkload.Covers(said, pods)
	return pods, !st.succeeded() && !same
}
