package admission_test

import (
	"slices"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// reserveNominal reserves nominal quota for the head of a StrictFIFO queue against borrowers, and reports whether there is any to reserve.
func (r *rivalry) reserveNominal(wl *kueue.Workload) bool {
	kept := r.nominalOf(wl)
	if len(kept) == 0 {
		return false
	}
	before := r.preemptReservations[wl]
	if r.keeps[wl] && cmp.Equal(before, kept) {
		return true
	}
	places := r.afterEvictions()
	r.preemptReservations[wl], r.keeps[wl] = kept, true
	r.chargeEpoch++
	for fr, a := range before {
		if a > kept[fr] {
			r.gaveUp[wl] = true
			r.recheckForRelease(places, wl)
		}
	}
	return true
}

// reserveForHeads reserves nominal quota for the first Workload of each queue that waits. Workloads before it that can be admitted at once do not count.
func (r *rivalry) reserveForHeads(group []string) {
	for _, name := range group {
		for _, wl := range r.line(name) {
			if r.misconfigured(wl) != "" {
				continue
			}
			b := r.bid(wl)
			if b == nil {
				r.reserveNominal(wl)
			}
			if b == nil || b.awaits || len(b.victims) > 0 {
				break
			}
		}
	}
}

// nominalOf returns the part of a Workload's need that is unused nominal quota of its ClusterQueue, or all of it if it fits below the root.
func (r *rivalry) nominalOf(wl *kueue.Workload) bill {
	q := r.queues[string(r.localQueueOf(wl).Spec.ClusterQueue)]
	if q.Spec.QueueingStrategy != kueue.StrictFIFO || q.Spec.Preemption.ReclaimWithinCohort == kueue.PreemptionPolicyAny || q.Spec.CohortName == "" {
		return nil
	}
	items, lack := r.items(q, r.places()["queue "+q.Name], podSetsOf(wl))
	if lack != "" {
		return nil
	}
	h := &hunt{twin: r.twin, wl: wl, bill: total(items, []int{0}), exempt: map[*kueue.Workload]bool{wl: true}}
	return in(h, nil, func(own *place, _ map[string]*place) bill {
		kept := bill{}
		for fr, need := range h.bill {
			id := own.tree.Index.ID(fr)
			nominal := own.Quota(id).Nominal
			unused := max(0, nominal-own.Used(id))
			switch {
			case need <= nominal:
				kept[fr] = min(need, unused)
			case own.level(bill{fr: need}) < own.Root().Height():
				kept[fr] = need
			case own.fits(bill{fr: need}):
				kept[fr] = unused
			default:
				return nil
			}
			if kept[fr] == 0 {
				delete(kept, fr)
			}
		}
		return kept
	})
}

// keepers returns the Workloads of other queues that reserve nominal quota against borrowers, in reverse order, without those that yield anyway.
func (r *rivalry) keepers(wl *kueue.Workload, yielding []*kueue.Workload) []*kueue.Workload {
	var all []*kueue.Workload
	places := r.places()
	rootOf := func(wl *kueue.Workload) *quota.Node {
		return places["queue "+string(r.localQueueOf(wl).Spec.ClusterQueue)].Root()
	}
	for other := range r.preemptReservations {
		if r.keeps[other] && r.localQueueOf(other) != r.localQueueOf(wl) && rootOf(other) == rootOf(wl) && !slices.Contains(yielding, other) {
			all = append(all, other)
		}
	}
	slices.SortFunc(all, func(a, b *kueue.Workload) int { return r.comparePlaces(b, a) })
	return all
}
