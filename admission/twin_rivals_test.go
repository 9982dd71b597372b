package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
)

// TestRivalsAgainstTwin lets quota Workloads preempt each other in random clusters, and compares all decisions with the twin's. Before each call
// of Decide the manager crashes, so that all stages are checked: other tests cover which stages an Engine need not check again.
func TestRivalsAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		h.twin.isFair = false
		h.furnishRivals()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			for range 4 - h.draw("fewer", 3) {
				h.moveRivals()
			}
			h.now = h.now.Add(1e9)
			h.crash()
			h.decideOnRivals()
		}
	})
}

func (h *history) furnishRivals() {
	h.twin.flavors["x"] = &kueue.ResourceFlavor{ObjectMeta: h.meta("x")}
	h.tell(admission.FlavorObserved{Flavor: h.twin.flavors["x"]})
	h.observeNamespace("n")
	for _, name := range []string{"a", "b", "c"} {
		if name == "a" || h.chance("cohort", 2) {
			h.observeRivalCohort(name)
		}
	}
	for i := range 4 - h.draw("fewer queues", 3) {
		h.observeRivalQueue(fmt.Sprintf("q%d", i))
	}
}

func (h *history) observeRivalCohort(name string) {
	c := &kueue.Cohort{ObjectMeta: h.meta(name)}
	if name != "a" {
		c.Spec.ParentName = pick[kueue.CohortReference](h, "parent", "a", "a", "a", "")
	}
	if h.chance("has quota", 3) {
		c.Spec.ResourceGroups = h.rivalGroups(3)
	}
	c.Spec.FairSharing = h.weight()
	h.twin.cohorts[name] = c
	h.tell(admission.CohortObserved{Cohort: c})
}

func (h *history) rivalGroups(most int) []kueue.ResourceGroup {
	return []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{gpu}, Flavors: []kueue.FlavorQuotas{
		{Name: "x", Resources: []kueue.ResourceQuota{h.rivalQuota(most)}},
	}}}
}

func (h *history) rivalQuota(most int) kueue.ResourceQuota {
	q := kueue.ResourceQuota{Name: gpu, NominalQuota: *resource.NewQuantity(int64(most-h.draw("less", most)), resource.DecimalSI)}
	if h.chance("borrowing limit", 5) {
		q.BorrowingLimit = resource.NewQuantity(int64(h.draw("borrowing", 4)), resource.DecimalSI)
	}
	if h.chance("lending limit", 5) {
		q.LendingLimit = resource.NewQuantity(int64(h.draw("lending", 4)), resource.DecimalSI)
	}
	return q
}

func (h *history) observeRivalQueue(name string) {
	q := &kueue.ClusterQueue{ObjectMeta: h.meta(name)}
	q.Spec.CohortName = pick[kueue.CohortReference](h, "cohort", "a", "a", "b", "c", "")
	q.Spec.ResourceGroups = h.rivalGroups(6)
	q.Spec.QueueingStrategy = pick(h, "strategy", kueue.BestEffortFIFO, kueue.StrictFIFO)
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	q.Spec.FairSharing = h.weight()
	q.Spec.Preemption = &kueue.ClusterQueuePreemption{
		WithinClusterQueue:  pick(h, "within", kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority, kueue.PreemptionPolicyNever),
		ReclaimWithinCohort: pick(h, "reclaim", kueue.PreemptionPolicyAny, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyNever),
	}
	if h.chance("borrows", 2) && !h.twin.isFair && q.Spec.Preemption.ReclaimWithinCohort != kueue.PreemptionPolicyNever {
		q.Spec.Preemption.BorrowWithinCohort = &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}
		if h.chance("threshold", 2) {
			q.Spec.Preemption.BorrowWithinCohort.MaxPriorityThreshold = new(int32(h.draw("at most", 2)))
		}
	}
	h.twin.queues[name] = q
	h.tell(admission.ClusterQueueObserved{ClusterQueue: q})
	lq := &kueue.LocalQueue{ObjectMeta: h.meta(name)}
	lq.Namespace, lq.UID, lq.Spec.ClusterQueue = "n", types.UID("n/"+name), kueue.ClusterQueueReference(name)
	key := types.NamespacedName{Namespace: "n", Name: name}
	h.twin.localQueues[key] = lq
	h.tell(admission.LocalQueueObserved{LocalQueue: lq})
}

// moveRivals submits a quota Workload, lets one finish, terminates the pods of one, or changes a ClusterQueue.
func (h *history) moveRivals() {
	queue := pick(h, "queue", slices.Sorted(maps.Keys(h.twin.queues))...)
	what := h.draw("what", 9)
	if what < 5 || len(h.twin.workloads) == 0 {
		wl := h.newWorkload("n", fmt.Sprintf("w%d", h.version), kueue.LocalQueueName(queue))
		wl.Spec.Priority = new(int32(h.draw("priority", 3)))
		wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: template(fmt.Sprintf("gpu=%d", 1+h.draw("gpu", 4)))}}
		h.observe(wl)
		return
	}
	wl := h.twin.workloads[pick(h, "workload", slices.SortedFunc(maps.Keys(h.twin.workloads), compareStageKeys)...)].DeepCopy()
	switch {
	case what == 5:
		h.observeRivalQueue(queue)
		return
	case what < 8 && h.twin.isLeaving(wl):
		h.release(wl)
	case what == 8 && h.twin.holds(wl) != nil:
		h.evict(wl)
	default:
		finish(wl)
	}
	h.observe(wl)
}

// decideOnRivals lets both decide, compares, and writes.
func (h *history) decideOnRivals() {
	h.t.Helper()
	decisions := h.engine.Decide(h.now)
	var got []string
	for _, d := range decisions {
		switch d := d.(type) {
		case admission.Admit:
			got = append(got, "admit "+d.Stage.Name)
		case admission.Evict:
			got = append(got, fmt.Sprintf("evict %s %s for %s", d.Stage.Name, d.Preemption.Reason, d.Preemption.Preemptor.Name))
		case admission.Refuse, admission.Notice:
		}
	}
	h.t.Logf("decided %v", decisions)
	if diff := cmp.Diff(h.twin.decideOnRivals(h), got); diff != "" {
		h.t.Fatalf("decided (-twin +engine): %s", diff)
	}
	for _, d := range decisions {
		switch d := d.(type) {
		case admission.Admit:
			h.change(d.Stage, d.UID, func(wl *kueue.Workload) {
				h.reserve(wl, &d)
				for i := range wl.Status.Conditions {
					wl.Status.Conditions[i].LastTransitionTime = metav1.NewTime(h.now)
				}
			})
			h.settle(d, d.ID, "written")
		case admission.Evict:
			h.change(d.Stage, d.UID, h.evict)
			h.settle(d, d.ID, "written")
		case admission.Refuse, admission.Notice:
		}
	}
}

// A bid is the nominee of a ClusterQueue: an offer that fits, or one that will when its victims have left.
type bid struct {
	offer   *offer
	victims []prey
	awaits  bool
	// borrows is true if the ClusterQueue will use more than it has.
	borrows bool
	// yielding are the Workloads that lose their reservations to it.
	yielding []*kueue.Workload
	// asOf is how often quota had been taken then.
	asOf int
}

// A rivalry is one scheduling cycle of ClusterQueues that share quota.
type rivalry struct {
	*twin
	told []string
	// chargeEpoch is how often quota was charged or reserved in this cycle.
	chargeEpoch int
	bids        map[string]*bid
	// refused are not checked again in this cycle, unless quota is released.
	refused map[*kueue.Workload]bool
	// gaveUp are the Workloads that have had a reservation in this cycle.
	gaveUp map[*kueue.Workload]bool
	// keeps are the Workloads whose reservation is nominal quota, against borrowers.
	keeps map[*kueue.Workload]bool
	// released is how often a reservation or a victim released quota.
	released int
	// borrowsMore is true if a ClusterQueue or its Cohort has borrowed for a Workload since those that may now preempt there were last checked.
	borrowsMore bool
}

func (w *twin) decideOnRivals(h *history) []string {
	w.now = h.now
	w.preemptReservations = map[*kueue.Workload]bill{}
	var told []string
	for _, group := range w.groups() {
		r := &rivalry{twin: w, bids: map[string]*bid{}, refused: map[*kueue.Workload]bool{}, gaveUp: map[*kueue.Workload]bool{}, keeps: map[*kueue.Workload]bool{}}
		r.reserveForHeads(group)
		r.pass(group)
		told = append(told, r.told...)
	}
	return told
}

func (r *rivalry) pass(group []string) {
	for {
		places := r.charged()
		contest := map[string]*offer{}
		for released := -1; released < r.released; {
			released = r.released
			for _, name := range group {
				if r.bids[name] == nil {
					r.bids[name] = r.nominate(name)
				}
			}
		}
		for name, b := range r.bids {
			if b != nil {
				contest[name] = b.offer
			}
		}
		best := r.winner(group, contest, places)
		if best == nil && !r.recheckForBorrowing() {
			return
		}
		if best == nil {
			continue
		}
		b := r.bids[best.queue]
		delete(r.bids, best.queue)
		switch {
		case !r.stillHolds(b):
		case b.awaits || len(b.victims) > 0:
			r.makeRoom(b)
		default:
			r.admit(b)
		}
	}
}

// nominate returns the first pending Workload of a ClusterQueue that can be admitted, now or when its victims have left.
func (r *rivalry) nominate(queue string) *bid {
	q := r.queues[queue]
	for _, wl := range r.line(queue) {
		isStrict := q.Spec.QueueingStrategy == kueue.StrictFIFO
		switch {
		case r.misconfigured(wl) != "":
			continue
		case r.refused[wl] && isStrict:
			return nil
		case r.refused[wl]:
			continue
		}
		if b := r.bid(wl); b != nil {
			return b
		}
		r.refused[wl] = true
		if !r.reserveNominal(wl) {
			r.giveUp(wl)
		}
		if isStrict {
			for _, behind := range r.line(queue) {
				if r.comparePlaces(behind, wl) > 0 {
					r.giveUp(behind)
				}
			}
			return nil
		}
	}
	return nil
}

func (w *twin) line(queue string) []*kueue.Workload {
	var line []*kueue.Workload
	for _, wl := range w.workloads {
		if string(w.localQueueOf(wl).Spec.ClusterQueue) == queue && w.outOfLine(wl) == "" {
			line = append(line, wl)
		}
	}
	slices.SortFunc(line, w.comparePlaces)
	return line
}

// exempt returns the Workloads whose reservations do not count for a Workload: itself, and those that come after it in its queue.
func (w *twin) exempt(wl *kueue.Workload) map[*kueue.Workload]bool {
	exempt := map[*kueue.Workload]bool{}
	for other := range w.preemptReservations {
		if w.localQueueOf(other) == w.localQueueOf(wl) && w.comparePlaces(other, wl) >= 0 {
			exempt[other] = true
		}
	}
	return exempt
}

// bid returns what a Workload can get. If it stays within what its ClusterQueue has, Workloads that only wait to borrow that yield.
func (r *rivalry) bid(wl *kueue.Workload) *bid {
	b := r.bidBut(wl, nil)
	if b != nil && !b.awaits && len(b.victims) == 0 {
		return b
	}
	yielding := r.yielding(wl)
	yielding = append(yielding, r.keepers(wl, yielding)...)
	if len(yielding) == 0 {
		return b
	}
	again := r.bidBut(wl, yielding)
	if again == nil || again.borrows {
		return b
	}
	return again
}

// bidBut returns what a Workload can get if some lose their reservations.
func (r *rivalry) bidBut(wl *kueue.Workload, yielding []*kueue.Workload) *bid {
	exempt := r.exempt(wl)
	for _, other := range yielding {
		exempt[other] = true
	}
	b := &bid{offer: r.offer(wl, r.charged()), asOf: r.chargeEpoch, yielding: yielding}
	q := r.queues[string(r.localQueueOf(wl).Spec.ClusterQueue)]
	items, _ := r.items(q, r.places()["queue "+q.Name], podSetsOf(wl))
	need := total(items, []int{0})
	h := &hunt{twin: r.twin, wl: wl, bill: need, exempt: exempt}
	if b.offer != nil && h.fits(nil) {
		b.borrows = h.borrows(nil)
		return b
	}
	b.offer = nil
	if q.Spec.Preemption.WithinClusterQueue != kueue.PreemptionPolicyNever || q.Spec.Preemption.ReclaimWithinCohort != kueue.PreemptionPolicyNever {
		b.victims, b.awaits = h.find()
	}
	if !b.awaits && len(b.victims) == 0 {
		return nil
	}
	b.borrows = h.borrows(b.victims)
	level := in(h, b.victims, func(own *place, _ map[string]*place) int { return own.level(need) })
	b.offer = &offer{wl: wl, queue: q.Name, bill: need, level: level}
	return b
}

// borrows reports whether the Workload ends up with more than its ClusterQueue has when some have left.
func (h *hunt) borrows(gone []prey) bool {
	return in(h, gone, func(own *place, _ map[string]*place) bool {
		return own.BorrowsAny(own.usage(h.bill))
	})
}

// yielding returns the Workloads in other queues that wait to borrow what a Workload may reclaim, in reverse order.
func (r *rivalry) yielding(wl *kueue.Workload) []*kueue.Workload {
	h := &hunt{twin: r.twin, wl: wl}
	if h.policies().ReclaimWithinCohort == kueue.PreemptionPolicyNever {
		return nil
	}
	reserving := slices.SortedFunc(maps.Keys(r.preemptReservations), func(a, b *kueue.Workload) int { return r.comparePlaces(b, a) })
	return in(h, nil, func(own *place, places map[string]*place) (all []*kueue.Workload) {
		kept := map[*place]bool{}
		for _, other := range reserving {
			theirs := places["queue "+string(r.localQueueOf(other).Spec.ClusterQueue)]
			if theirs == own || theirs.Root() != own.Root() || kept[theirs] {
				continue
			}
			b := r.preemptReservations[other]
			if !slices.ContainsFunc(keys(b), func(fr quota.FlavorResource) bool { return theirs.borrowsUpTo(own, fr) }) {
				kept[theirs] = true
				continue
			}
			theirs.release(b)
			if h.allows(h.policies().ReclaimWithinCohort, other) {
				all = append(all, other)
			}
		}
		return all
	})
}

// drop cancels the reservations that no longer fit.
func (r *rivalry) drop(yielding []*kueue.Workload) {
	for _, wl := range yielding {
		b := r.preemptReservations[wl]
		h := &hunt{twin: r.twin, wl: wl, bill: b, exempt: map[*kueue.Workload]bool{wl: true}}
		if b == nil || h.fits(nil) {
			continue
		}
		delete(r.bids, h.queue())
		if r.keeps[wl] {
			for _, other := range r.line(h.queue()) {
				delete(r.refused, other)
			}
			continue
		}
		before := r.afterEvictions()
		delete(r.preemptReservations, wl)
		r.gaveUp[wl] = true
		r.recheckForRelease(before, nil)
		for _, other := range r.line(h.queue()) {
			delete(r.refused, other)
		}
	}
}

// stillHolds reports whether a bid is still valid after what has been taken since.
func (r *rivalry) stillHolds(b *bid) bool {
	switch {
	case b.asOf == r.chargeEpoch:
		return true
	case !b.awaits && len(b.victims) == 0:
		exempt := r.exempt(b.offer.wl)
		for _, other := range b.yielding {
			exempt[other] = true
		}
		h := &hunt{twin: r.twin, wl: b.offer.wl, bill: b.offer.bill, exempt: exempt}
		return r.charged()["queue "+b.offer.queue].fits(b.offer.bill) && h.fits(nil)
	case b.awaits:
		return false
	}
	for _, v := range b.victims {
		if v.reason != kueue.InClusterQueueReason || r.isLeaving(v.wl) {
			return false
		}
	}
	h := &hunt{twin: r.twin, wl: b.offer.wl, bill: b.offer.bill}
	places := r.charged()
	for _, v := range b.victims {
		places["queue "+v.queue].release(r.chargeOf(v.wl))
	}
	return places["queue "+b.offer.queue].fits(b.offer.bill) && h.fits(b.victims)
}

// makeRoom evicts, and reserves what the Workload waits for.
func (r *rivalry) makeRoom(b *bid) {
	wl, before := b.offer.wl, r.afterEvictions()
	r.refused[wl] = true
	if len(b.victims) > 0 || !r.gaveUp[wl] {
		r.preemptReservations[wl] = b.offer.bill
		delete(r.keeps, wl)
		r.chargeEpoch++
		r.drop(r.behind(wl))
		r.drop(b.yielding)
		r.refused[wl] = true
	}
	for _, v := range b.victims {
		r.evicting[keyOfWorkload(v.wl)] = true
		r.chargeEpoch++
		r.told = append(r.told, fmt.Sprintf("evict %s %s for %s", v.wl.Name, v.reason, wl.Name))
	}
	if len(b.victims) > 0 {
		r.recheckForRelease(before, wl)
	}
	exempt := r.exempt(wl)
	for _, other := range b.yielding {
		exempt[other] = true
	}
	h := &hunt{twin: r.twin, wl: wl, bill: b.offer.bill, exempt: exempt}
	if len(b.victims) > 0 && r.charged()["queue "+b.offer.queue].fits(b.offer.bill) && h.fits(nil) {
		// Its victims leave for the reservations of others: it does not wait for them.
		for _, other := range r.line(b.offer.queue) {
			delete(r.refused, other)
		}
	}
}

// recheckForRelease lets the ClusterQueues nominate again in which a Workload may use released quota: where less is used than before. One Workload is
// not checked again.
func (r *rivalry) recheckForRelease(before map[string]*place, but *kueue.Workload) {
	after := r.afterEvictions()
	for name := range r.queues {
		if !isLower(after["queue "+name], before["queue "+name]) {
			continue
		}
		r.released++
		delete(r.bids, name)
		for _, wl := range r.line(name) {
			if wl != but {
				delete(r.refused, wl)
			}
		}
	}
}

// isLower reports whether less is used than before in a ClusterQueue or in one of the Cohorts above it.
func isLower(after, before *place) bool {
	then, now := before.tree.Index, after.tree.Index
	for was, is := before.Node, after.Node; is != nil; was, is = was.Parent(), is.Parent() {
		for id := range quota.ID(now.Len()) {
			if is.Used(id) < was.Used(then.ID(now.Name(id))) {
				return true
			}
		}
	}
	return false
}

// recheckForBorrowing lets the Workloads that may preempt in other queues be checked again if these borrow more, and reports whether they do. Those that
// wait for victims need no others.
func (r *rivalry) recheckForBorrowing() bool {
	borrowsMore := r.borrowsMore
	r.borrowsMore = false
	maps.DeleteFunc(r.refused, func(wl *kueue.Workload, _ bool) bool {
		reclaims := r.queues[string(r.localQueueOf(wl).Spec.ClusterQueue)].Spec.Preemption.ReclaimWithinCohort != kueue.PreemptionPolicyNever
		return borrowsMore && reclaims && (r.preemptReservations[wl] == nil || r.keeps[wl])
	})
	return borrowsMore
}

// admit admits a Workload. The reservations of others in its queue have to be checked again.
func (r *rivalry) admit(b *bid) {
	wl := b.offer.wl
	before := r.afterEvictions()
	r.admitting[keyOfWorkload(wl)] = b.offer.admission
	r.told = append(r.told, "admit "+wl.Name)
	place := r.charged()["queue "+b.offer.queue]
	for n := place.Node; n.Parent() != nil; n = n.Parent() {
		r.borrowsMore = r.borrowsMore || n.ExceedsAny(place.usage(b.offer.bill))
	}
	r.chargeEpoch++
	delete(r.preemptReservations, wl)
	delete(r.keeps, wl)
	r.recheckForRelease(before, nil)
	r.drop(r.behind(wl))
	r.drop(b.yielding)
}

// behind returns the Workloads after a Workload in its queue that have a reservation, in reverse order.
func (r *rivalry) behind(wl *kueue.Workload) []*kueue.Workload {
	var behind []*kueue.Workload
	for other := range r.preemptReservations {
		if r.localQueueOf(other) == r.localQueueOf(wl) && r.comparePlaces(other, wl) > 0 {
			behind = append(behind, other)
		}
	}
	slices.SortFunc(behind, func(a, b *kueue.Workload) int { return r.comparePlaces(b, a) })
	return behind
}

// afterEvictions charges what all hold, and all reservations, when all evicted Workloads have left.
func (w *twin) afterEvictions() map[string]*place {
	places := w.chargedBut(nil)
	for _, wl := range w.workloads {
		if a := w.holds(wl); a != nil && w.isLeaving(wl) {
			places["queue "+string(a.ClusterQueue)].release(w.chargeOf(wl))
		}
	}
	return places
}

// chargedBut charges what all hold, and the reservations, except for some. Workloads that are being evicted have to be subtracted, since
// reservations count when they have left.
func (w *twin) chargedBut(exempt map[*kueue.Workload]bool) map[string]*place {
	places := w.charged()
	for wl, b := range w.preemptReservations {
		if !exempt[wl] {
			places["queue "+string(w.localQueueOf(wl).Spec.ClusterQueue)].charge(b)
		}
	}
	return places
}
