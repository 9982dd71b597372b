package admission_test

import (
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// reserveNominal reserves nominal quota for the head of a StrictFIFO queue against borrowers, and reports whether there is any to reserve.
func (r *rivalry) reserveNominal(wl *kueue.Workload) bool { return r.keep(wl, r.nominalOf(wl)) }

// keep reserves nominal quota, and reports whether there is any.
func (r *rivalry) keep(wl *kueue.Workload, kept bill) bool {
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

// reserveForHeads reserves nominal quota for the first Workload of each queue that waits, once those before it that can be admitted have been.
func (r *rivalry) reserveForHeads(group []string) {
	for _, name := range group {
		head, kept := r.headOf(name)
		r.keep(head, kept)
	}
}

// headOf returns the first Workload of a queue that waits for quota and what it may reserve, or nothing.
func (r *rivalry) headOf(queue string) (head *kueue.Workload, kept bill) {
	admitting := maps.Clone(r.admitting)
	defer func() { r.admitting = admitting }()
	for _, wl := range r.line(queue) {
		if r.misconfigured(wl) != "" {
			continue
		}
		switch b := r.bid(wl); {
		case b == nil:
			return wl, r.nominalOf(wl)
		case b.awaits || len(b.victims) > 0:
			return nil, nil
		default:
			r.admitting[keyOfWorkload(wl)] = b.offer.admission
		}
	}
	return nil, nil
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

// giveUp cancels the reservation of a Workload that is refused.
func (r *rivalry) giveUp(wl *kueue.Workload) {
	if r.preemptReservations[wl] == nil {
		return
	}
	before := r.afterEvictions()
	delete(r.preemptReservations, wl)
	delete(r.keeps, wl)
	r.gaveUp[wl] = true
	r.recheckForRelease(before, wl)
}
