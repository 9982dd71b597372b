package quotaworkload

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// CountOf returns how many pods of a pod set count: all except the reclaimable ones (KEP-78).
func CountOf(p *kueue.PodSet, reclaimable []kueue.ReclaimablePod) int32 {
	count := p.Count
	for _, r := range reclaimable {
		if r.Name == p.Name && count >= 0 {
			count -= min(max(0, r.Count), count)
		}
	}
	return count
}

// StillNeeded returns the part of an amount of an admission for the pods that are needed: not more than the pods of the spec that are not
// reclaimable. An admission may already leave these out, or others for lack of quota.
func StillNeeded(a quota.Amount, p *kueue.PodSetAssignment, workload *kueue.Workload) quota.Amount {
	reclaims := func(r kueue.ReclaimablePod) bool { return r.Name == p.Name }
	i := slices.IndexFunc(workload.Spec.PodSets, func(spec kueue.PodSet) bool { return spec.Name == p.Name })
	if p.Count == nil || *p.Count <= 0 || i < 0 || !slices.ContainsFunc(workload.Status.ReclaimablePods, reclaims) {
		return a
	}
	if needed := CountOf(&workload.Spec.PodSets[i], workload.Status.ReclaimablePods); needed < *p.Count {
		return a / quota.Amount(*p.Count) * quota.Amount(max(0, needed))
	}
	return a
}

// Covers reports whether a has at least as many pods of each pod set as b.
func Covers(a, b []kueue.ReclaimablePod) bool {
	return !slices.ContainsFunc(b, func(want kueue.ReclaimablePod) bool {
		return !slices.ContainsFunc(a, func(has kueue.ReclaimablePod) bool { return has.Name == want.Name && has.Count >= want.Count })
	})
}
