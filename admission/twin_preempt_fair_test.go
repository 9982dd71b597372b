package admission_test

import (
	"cmp"
	"maps"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// fair takes victims from the queue with the highest share, as if the Workload had been admitted: first by LessThanOrEqualToFinalShare, and then
// once more from each ClusterQueue by LessThanInitialShare.
func (h *hunt) fair(all []prey) []prey {
	left := map[string][]prey{}
	slices.SortFunc(all, h.comparePreyOfOneRank)
	for _, p := range all {
		left[p.queue] = append(left[p.queue], p)
	}
	isWithinQuota := in(h, nil, []bill{h.bill}, func(own *place, _ map[string]*place) bool { return !own.isOver(h.short) })
	var victims []prey
	failed := map[string][]prey{}
	for queue := h.highest(left, victims); queue != ""; queue = h.highest(left, victims) {
		// The selected queue tries all of its candidates until one is taken.
		for taken := false; !taken && len(left[queue]) > 0; {
			p := left[queue][0]
			left[queue] = left[queue][1:]
			switch {
			case queue == h.queue():
				p.reason = kueue.InClusterQueueReason
			case isWithinQuota:
				p.reason = kueue.InCohortReclamationReason
			case h.isFinallyLess(p, victims):
				p.reason, p.finally = kueue.InCohortFairSharingReason, true
			default:
				failed[queue] = append(failed[queue], p)
				continue
			}
			taken = true
			if victims = append(victims, p); h.fits(victims, false) {
				return spare(victims, h.areFair)
			}
		}
	}
	for queue := h.highest(failed, victims); queue != ""; queue = h.highest(failed, victims) {
		p := failed[queue][0]
		delete(failed, queue)
		if !h.isInitiallyLess(p, victims) {
			continue
		}
		p.reason, p.initially = kueue.InCohortFairSharingReason, true
		if victims = append(victims, p); h.fits(victims, false) {
			return spare(victims, h.areFair)
		}
	}
	return nil
}

// compareSides compares the shares of the two sides that meet in the lowest common Cohort of the Workload and a candidate.
func (h *hunt) compareSides(p prey, gone []prey) int {
	return in(h, gone, []bill{h.bill}, func(own *place, places map[string]*place) int {
		theirs := places["queue "+p.queue]
		top := meeting(own, theirs)
		return below(top, own).share().compare(below(top, theirs).share())
	})
}

// below returns the child of a place that is above another place, or is that place.
func below(top, p *place) *place {
	for p.parent != top {
		p = p.parent
	}
	return p
}

func (h *hunt) isFinallyLess(p prey, victims []prey) bool {
	return h.compareSides(p, append(slices.Clone(victims), p)) <= 0
}

func (h *hunt) isInitiallyLess(p prey, victims []prey) bool { return h.compareSides(p, victims) < 0 }

// areFair reports whether the Workload fits without the victims, and each of them could be taken after those before it.
func (h *hunt) areFair(victims []prey) bool {
	for i, p := range victims {
		if p.finally && !h.isFinallyLess(p, victims[:i]) || p.initially && !h.isInitiallyLess(p, victims[:i]) {
			return false
		}
	}
	return h.fits(victims, false)
}

// highest goes down from the root, always to the child with the highest share that borrows, or that is above the Workload. At equal shares a
// Cohort comes before a ClusterQueue, Cohorts are ordered by name, other ClusterQueues come before the Workload's own, and these are ordered by
// their next victim.
func (h *hunt) highest(left map[string][]prey, victims []prey) string {
	return in(h, victims, []bill{h.bill}, func(own *place, places map[string]*place) string {
		names := map[*place]string{}
		for name, p := range places {
			names[p] = name
		}
		queueOf := func(p *place) string {
			for _, queue := range slices.Sorted(maps.Keys(left)) {
				if len(left[queue]) > 0 && names[p] == "queue "+queue {
					return queue
				}
			}
			return ""
		}
		var yields func(p *place) bool
		yields = func(p *place) bool {
			isOwnSide := meeting(own, p) == p
			return (isOwnSide || p.isOver(h.short)) && (queueOf(p) != "" || slices.ContainsFunc(p.children, yields))
		}
		p := own.root()
		if !yields(p) {
			return ""
		}
		for queueOf(p) == "" {
			p = slices.MinFunc(slices.DeleteFunc(slices.Clone(p.children), func(c *place) bool { return !yields(c) }), func(a, b *place) int {
				qa, qb := queueOf(a), queueOf(b)
				switch byShare := b.share().compare(a.share()); {
				case byShare != 0:
					return byShare
				case qa == "" && qb == "":
					return cmp.Compare(names[a], names[b])
				case qa == "" || b == own:
					return -1
				case qb == "" || a == own:
					return 1
				}
				return h.comparePreyOfOneRank(left[qa][0], left[qb][0])
			})
		}
		return queueOf(p)
	})
}
