package admission_test

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// A twin decides what an Engine under the policy Greedy must decide. It stores only the objects as they were last observed and the decisions that
// are not settled, and recomputes everything for each question, by trying.
type twin struct {
	now         time.Time
	flavors     map[string]*kueue.ResourceFlavor
	checks      map[string]*kueue.AdmissionCheck
	cohorts     map[string]*kueue.Cohort
	queues      map[string]*kueue.ClusterQueue
	localQueues map[types.NamespacedName]*kueue.LocalQueue
	namespaces  map[string]map[string]string
	plans       map[types.UID]admission.PlanObserved
	workloads   map[admission.StageKey]*kueue.Workload
	admitting   map[admission.StageKey]kueue.Admission
	evicting    map[admission.StageKey]bool
	// isFair enables fair sharing between ClusterQueues.
	isFair bool
	// preemptReservations are the reservations of the Workloads that wait for their victims to leave.
	preemptReservations map[*kueue.Workload]bill
}

func newTwin() *twin {
	return &twin{
		flavors: map[string]*kueue.ResourceFlavor{}, checks: map[string]*kueue.AdmissionCheck{}, cohorts: map[string]*kueue.Cohort{},
		queues: map[string]*kueue.ClusterQueue{}, localQueues: map[types.NamespacedName]*kueue.LocalQueue{},
		namespaces: map[string]map[string]string{}, plans: map[types.UID]admission.PlanObserved{},
		workloads: map[admission.StageKey]*kueue.Workload{}, admitting: map[admission.StageKey]kueue.Admission{}, evicting: map[admission.StageKey]bool{},
	}
}

// A verdict is the full result of a twin at one time.
type verdict struct {
	evicted, admitted []string
	// refused has the check that refuses each quota Workload that holds nothing and is not finished.
	refused map[admission.StageKey]string
	// used has what is charged to each ClusterQueue.
	used map[string]bill
}

func (w *twin) decide(now time.Time) verdict {
	w.now = now
	v := verdict{refused: map[admission.StageKey]string{}, used: map[string]bill{}}
	for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareStageKeys) {
		if reason := w.mustLeave(w.workloads[key]); reason != "" {
			v.evicted = append(v.evicted, key.String()+" "+reason)
			w.evicting[key] = true
		}
	}
	for _, group := range w.groups() {
		v.admitted = append(v.admitted, w.pass(group)...)
	}
	places := w.charged()
	for name := range w.queues {
		w.offers(name, places, v.refused)
		v.used[name] = places["queue "+name].charged()
	}
	for key, wl := range w.workloads {
		if reason := w.outOfLine(wl); reason != "" && reason != "charged" {
			v.refused[key] = reason
		} else if reason == "" && v.refused[key] == "" {
			v.refused[key] = w.misconfigured(wl)
		}
	}
	return v
}

// groups returns the ClusterQueues that share quota.
func (w *twin) groups() [][]string {
	places := w.places()
	var groups [][]string
	for _, name := range slices.Sorted(maps.Keys(w.queues)) {
		root := places["queue "+name].Root()
		i := slices.IndexFunc(groups, func(g []string) bool { return places["queue "+g[0]].Root() == root })
		if i < 0 {
			groups = append(groups, []string{name})
		} else {
			groups[i] = append(groups[i], name)
		}
	}
	return groups
}

// An offer is a quota Workload that could be admitted.
type offer struct {
	wl        *kueue.Workload
	queue     string
	admission kueue.Admission
	bill      bill
	level     int
	place     *place
}

// pass admits until nothing more fits. Each ClusterQueue nominates its first Workload that can be admitted, and the next when that one has won,
// or has lost its quota to another.
func (w *twin) pass(group []string) []string {
	var admitted []string
	contest := map[string]*offer{}
	for {
		places := w.charged()
		for _, name := range group {
			if contest[name] == nil {
				contest[name] = w.offers(name, places, map[admission.StageKey]string{})
			}
		}
		best := w.winner(group, contest, places)
		if best == nil {
			return admitted
		}
		delete(contest, best.queue)
		if places["queue "+best.queue].fits(best.bill) {
			key := keyOfWorkload(best.wl)
			w.admitting[key] = best.admission
			admitted = append(admitted, key.String()+" "+describe(best.admission, w.checksOf(best.admission)))
		}
	}
}

// winner returns the best offer, or nil. Shares are compared as if Workloads that are being evicted had left.
func (w *twin) winner(group []string, contest map[string]*offer, places map[string]*place) *offer {
	if w.isFair {
		places = w.charged()
		for _, wl := range w.workloads {
			if a := w.holds(wl); a != nil && w.isLeaving(wl) && places["queue "+string(a.ClusterQueue)] != nil {
				places["queue "+string(a.ClusterQueue)].release(w.chargeOf(wl))
			}
		}
	}
	var best *offer
	offers := map[*quota.Node]*offer{}
	for _, name := range group {
		o := contest[name]
		if o == nil {
			continue
		}
		o.place = places["queue "+name]
		offers[o.place.Node] = o
		if best == nil || w.compareOffers(o, best) < 0 {
			best = o
		}
	}
	if best != nil && w.isFair {
		return w.champion(best.place, offers)
	}
	return best
}

// champion returns the offer to admit next under fair sharing. Package fairshare compares the offers: it has a twin of its own.
func (w *twin) champion(one *place, offers map[*quota.Node]*offer) *offer {
	tournament := fairshare.NewTournament(fairshare.NewMeter(one.tree))
	for n, o := range offers {
		priority := 2 * int64(priorityOf(o.wl))
		if w.continues(o.wl) {
			priority++
		}
		tournament.Enter(n, fairshare.Head{UID: o.wl.UID, Priority: priority, Since: w.since(o.wl), Usage: o.place.usage(o.bill)})
	}
	first, _ := tournament.First(one.Root())
	return offers[first]
}

func (w *twin) compareOffers(a, b *offer) int {
	return cmp.Or(cmp.Compare(a.level, b.level), w.comparePlaces(a.wl, b.wl))
}

func (w *twin) comparePlaces(a, b *kueue.Workload) int {
	continues := func(wl *kueue.Workload) int {
		if w.continues(wl) {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(priorityOf(b), priorityOf(a)), cmp.Compare(continues(a), continues(b)),
		w.since(a).Compare(w.since(b)), cmp.Compare(a.UID, b.UID),
	)
}

func priorityOf(wl *kueue.Workload) int32 {
	if wl.Spec.Priority == nil {
		return 0
	}
	return *wl.Spec.Priority
}

// siblings returns the quota Workloads of the same JobSet.
func (w *twin) siblings(wl *kueue.Workload) []*kueue.Workload {
	owner := ownerOf(wl)
	if owner == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Collect(maps.Values(w.workloads)), func(other *kueue.Workload) bool { return ownerOf(other) != owner })
}

func (w *twin) continues(wl *kueue.Workload) bool {
	return slices.ContainsFunc(w.siblings(wl), func(other *kueue.Workload) bool { return isFinished(other) || w.holds(other) != nil })
}

// passes reports whether a stage must run before its JobSet releases quota. In the plans of the twin each stage waits for the one before to be
// ready, so that all are one hold segment.
func (w *twin) passes(wl *kueue.Workload) bool {
	return slices.ContainsFunc(w.siblings(wl), func(other *kueue.Workload) bool { return w.holds(other) != nil })
}

func (w *twin) since(wl *kueue.Workload) time.Time {
	since := wl.CreationTimestamp.Time
	siblings := []*kueue.Workload{wl}
	if ownerOf(wl) != "" {
		since, siblings = w.plans[ownerOf(wl)].Submitted, w.siblings(wl)
	}
	for _, other := range siblings {
		if c := conditionOf(other, kueue.WorkloadEvicted); c.Status == metav1.ConditionTrue && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

func ownerOf(wl *kueue.Workload) types.UID {
	for _, ref := range wl.OwnerReferences {
		return ref.UID
	}
	return ""
}

func conditionOf(wl *kueue.Workload, conditionType string) metav1.Condition {
	for _, c := range wl.Status.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return metav1.Condition{}
}

func isTrue(wl *kueue.Workload, conditionType string) bool {
	return conditionOf(wl, conditionType).Status == metav1.ConditionTrue
}

func keyOfWorkload(wl *kueue.Workload) admission.StageKey {
	return admission.StageKey{Namespace: wl.Namespace, Name: wl.Name}
}

func compareStageKeys(a, b admission.StageKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// reservation returns the observed reservation, or nil.
func reservation(wl *kueue.Workload) *kueue.Admission {
	if wl.Status.Admission != nil && isTrue(wl, kueue.WorkloadQuotaReserved) {
		return wl.Status.Admission
	}
	return nil
}

// holds returns what is charged, or nil.
func (w *twin) holds(wl *kueue.Workload) *kueue.Admission {
	if isFinished(wl) {
		return nil
	}
	if a := reservation(wl); a != nil {
		return a
	}
	if a, ok := w.admitting[keyOfWorkload(wl)]; ok {
		return &a
	}
	return nil
}

// charged charges what all Workloads hold. A reservation counts only the pods that are still needed.
func (w *twin) charged() map[string]*place {
	places := w.places()
	for _, wl := range w.workloads {
		if a := w.holds(wl); a != nil && places["queue "+string(a.ClusterQueue)] != nil {
			places["queue "+string(a.ClusterQueue)].charge(w.chargeOf(wl))
		}
	}
	return places
}

// chargeOf returns the charge of a quota Workload that holds quota.
func (w *twin) chargeOf(wl *kueue.Workload) bill {
	b := bill{}
	if reservation(wl) != nil {
		for _, c := range ledger.ChargesOf(wl) {
			b[c.FlavorResource] += c.Amount()
		}
		return b
	}
	for _, p := range w.holds(wl).PodSetAssignments {
		for r, f := range p.Flavors {
			amount, _ := quota.Of(r, p.ResourceUsage[r])
			b[quota.FlavorResource{Flavor: f, Resource: r}] += amount
		}
	}
	return b
}

// stillNeeded returns how many pods of the spec are not reclaimable.
func stillNeeded(wl *kueue.Workload, name kueue.PodSetReference) int32 {
	needed := int32(0)
	for _, p := range wl.Spec.PodSets {
		if p.Name == name {
			needed = p.Count
		}
	}
	for _, r := range wl.Status.ReclaimablePods {
		if r.Name == name {
			needed = max(0, needed-r.Count)
		}
	}
	return needed
}

// mustLeave returns why a reservation has to be released, or nothing.
func (w *twin) mustLeave(wl *kueue.Workload) string {
	a := reservation(wl)
	if a == nil || isFinished(wl) || isTrue(wl, kueue.WorkloadEvicted) || w.evicting[keyOfWorkload(wl)] {
		return ""
	}
	drains := func(stop *kueue.StopPolicy) bool {
		return stop != nil && (*stop == kueue.HoldAndDrain || *stop == kueue.Hold && !isTrue(wl, kueue.WorkloadAdmitted))
	}
	isReserving := !isTrue(wl, kueue.WorkloadAdmitted)
	q, lq := w.queues[string(a.ClusterQueue)], w.localQueueOf(wl)
	switch {
	case q != nil && drains(q.Spec.StopPolicy), isReserving && (q == nil || q.DeletionTimestamp != nil):
		return kueue.WorkloadEvictedByClusterQueueStopped
	case lq != nil && drains(lq.Spec.StopPolicy), isReserving && (lq == nil || lq.DeletionTimestamp != nil):
		return kueue.WorkloadEvictedByLocalQueueStopped
	}
	return ""
}

func (w *twin) localQueueOf(wl *kueue.Workload) *kueue.LocalQueue {
	return w.localQueues[types.NamespacedName{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}]
}

// outOfLine returns why a quota Workload is not pending, or nothing.
func (w *twin) outOfLine(wl *kueue.Workload) string {
	_, isPlanned := w.plans[ownerOf(wl)]
	switch r := wl.Status.RequeueState; {
	case isFinished(wl) || w.holds(wl) != nil:
		return "charged"
	case wl.DeletionTimestamp != nil, wl.Spec.Active != nil && !*wl.Spec.Active, wl.Annotations[apis.AdmissionGatedByAnnotation] != "":
		return "IsOpen"
	case r != nil && r.RequeueAt != nil && r.RequeueAt.After(w.now):
		return "BackoffIsOver"
	case ownerOf(wl) != "" && !isPlanned:
		return "PlanIsKnown"
	}
	return ""
}

// offers tries the pending Workloads of a ClusterQueue, records the check that refuses each, and returns the first that is not refused.
func (w *twin) offers(queue string, places map[string]*place, refused map[admission.StageKey]string) *offer {
	q := w.queues[queue]
	var line []*kueue.Workload
	for _, wl := range w.workloads {
		if lq := w.localQueueOf(wl); lq != nil && string(lq.Spec.ClusterQueue) == queue && w.outOfLine(wl) == "" {
			line = append(line, wl)
		}
	}
	slices.SortFunc(line, w.comparePlaces)
	var first *offer
	var blocker *kueue.Workload
	for _, wl := range line {
		refusal := w.misconfigured(wl)
		var o *offer
		switch {
		case refusal != "":
		case slices.ContainsFunc(w.siblings(wl), w.isLeaving):
			// It waits for no quota, and blocks no other.
			refusal = "JobSetStays"
		case blocker != nil && !w.passes(wl) && (ownerOf(wl) == "" || ownerOf(wl) != ownerOf(blocker)):
			refusal = "StrictFIFO"
		default:
			if o = w.offer(wl, places); o == nil {
				refusal = "QuotaFits"
				if blocker == nil && q.Spec.QueueingStrategy == kueue.StrictFIFO {
					blocker = wl
				}
			}
		}
		if first == nil {
			first = o
		}
		if refusal != "" {
			refused[keyOfWorkload(wl)] = refusal
		}
	}
	return first
}

// misconfigured returns the first check that refuses for a reason that time does not solve.
func (w *twin) misconfigured(wl *kueue.Workload) string {
	lq := w.localQueueOf(wl)
	if lq == nil {
		return "LocalQueueExists"
	}
	if lq.Spec.StopPolicy != nil && *lq.Spec.StopPolicy != kueue.None {
		return "LocalQueueIsActive"
	}
	q := w.queues[string(lq.Spec.ClusterQueue)]
	if q == nil {
		return "ClusterQueueExists"
	}
	selector, err := metav1.LabelSelectorAsSelector(q.Spec.NamespaceSelector)
	if err != nil || !w.isActive(q) {
		return "ClusterQueueIsActive"
	}
	namespace, exists := w.namespaces[wl.Namespace]
	index, _ := strconv.Atoi(wl.Labels[apis.StageIndexLabel])
	switch {
	case !exists || !selector.Matches(labels.Set(namespace)):
		return "NamespaceIsSelected"
	case slices.ContainsFunc(wl.Spec.PodSets, func(p kueue.PodSet) bool { return p.TopologyRequest != nil }):
		return "IsSupported"
	case ownerOf(wl) != "" && index >= len(w.plans[ownerOf(wl)].Plan.Stages):
		return "IsInPlan"
	}
	return w.neverFits(wl, q)
}

func (w *twin) isActive(q *kueue.ClusterQueue) bool {
	if q.DeletionTimestamp != nil || q.Spec.StopPolicy != nil && *q.Spec.StopPolicy != kueue.None || w.isCyclic(string(q.Spec.CohortName)) {
		return false
	}
	for _, g := range q.Spec.ResourceGroups {
		for _, f := range g.Flavors {
			if w.flavors[string(f.Name)] == nil {
				return false
			}
		}
	}
	for _, rule := range rulesOf(q) {
		if c := w.checks[string(rule.Name)]; c == nil || len(c.Status.Conditions) == 0 {
			return false
		}
	}
	return true
}

func rulesOf(q *kueue.ClusterQueue) []kueue.AdmissionCheckStrategyRule {
	if q.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	return q.Spec.AdmissionChecksStrategy.AdmissionChecks
}

// neverFits returns why neither all pods, nor the minimum, could be admitted if nothing were charged.
func (w *twin) neverFits(wl *kueue.Workload, q *kueue.ClusterQueue) string {
	bare := w.places()["queue "+q.Name]
	whole := podSetsOf(wl)
	items, lack := w.items(q, bare, whole)
	if lack == "" && firstOf(items, bare.fits) == nil {
		lack = "WithinLimits"
	}
	if parts := smaller(whole); lack == "WithinLimits" && len(parts) > 0 {
		if items, lack := w.items(q, bare, parts[len(parts)-1]); lack == "" && firstOf(items, bare.fits) != nil {
			return ""
		}
	}
	return lack
}

// offer returns what a quota Workload gets if it is admitted now, or nil.
func (w *twin) offer(wl *kueue.Workload, places map[string]*place) *offer {
	q := w.queues[string(w.localQueueOf(wl).Spec.ClusterQueue)]
	place, bare := places["queue "+q.Name], w.places()["queue "+q.Name]
	whole := podSetsOf(wl)
	for _, podSets := range append([][]podSet{whole}, smaller(whole)...) {
		items, lack := w.items(q, bare, podSets)
		if lack != "" {
			continue
		}
		if choice := place.choose(items, q.Spec.FlavorFungibility); choice != nil {
			b := total(items, choice)
			return &offer{wl, q.Name, admissionOf(q.Name, podSets, items, choice), b, place.level(b), place}
		}
	}
	return nil
}

func podSetsOf(wl *kueue.Workload) []podSet {
	var podSets []podSet
	for _, p := range wl.Spec.PodSets {
		set := podSet{name: p.Name, count: stillNeeded(wl, p.Name), spec: &p.Template.Spec, requests: map[corev1.ResourceName]quota.Amount{}}
		if p.MinCount != nil {
			set.min = min(*p.MinCount, set.count)
		}
		for r, q := range stageplan.PodRequests(&p.Template.Spec) {
			set.requests[r], _ = quota.Of(r, q)
		}
		podSets = append(podSets, set)
	}
	return podSets
}

// smaller returns the sizes with fewer pods, one after the other: all pod sets give up the same share of their spare pods, rounded down.
func smaller(whole []podSet) [][]podSet {
	most := int32(0)
	for _, p := range whole {
		if p.min > 0 {
			most += p.count - p.min
		}
	}
	var parts [][]podSet
	for fewer := int32(1); fewer <= most; fewer++ {
		part := slices.Clone(whole)
		for i, p := range whole {
			if p.min > 0 {
				part[i].count -= (p.count - p.min) * fewer / most
			}
		}
		parts = append(parts, part)
	}
	return parts
}
