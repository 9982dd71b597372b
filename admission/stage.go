package admission

import (
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/queue"
)

// A stage is one quota Workload.
type stage struct {
	key        StageKey
	uid        types.UID
	version    version
	generation int64
	localQueue *localQueue
	// places are its indices in the stage sets.
	places places
	// owner is the UID of the JobSet, or of another object that has the plan, or empty if there is none. ofJobSet is true if it is a JobSet.
	owner    types.UID
	ofJobSet bool
	index    int
	attempt  int
	// isGrowth is true if the stage already holds quota, and this quota Workload is only for the pods by which it has grown.
	isGrowth bool
	created  time.Time

	// From the spec, converted once for each generation. unsupported is what the Engine cannot do for it, or empty.
	priority    int32
	demand      *demand
	unsupported string

	// From the last observation: closed is why the stage asks for nothing, and reservation is what it holds.
	closed     string
	evicted    time.Time
	requeueAt  time.Time
	isFinished bool
	isAdmitted bool
	isEvicted  bool
	// isTakenFairly is true if fair sharing evicts it, or did at its last eviction.
	isTakenFairly bool
	isReady       bool
	// hasNoPods is true if its pods cannot be ready yet, so that no stage waits for them.
	hasNoPods   bool
	admittedAt  time.Time
	reservation *assignment
	reservedAt  time.Time
	workloadPods

	// assumed is the admission that is decided and not settled yet; evicting is the decision to evict that is not settled yet.
	assumed  *assignment
	evicting DecisionID

	// entry is how the stage is accounted for, and evictionUnit its eviction unit if it belongs to no JobSet.
	entry        entry
	evictionUnit evictionUnit
	// preemptReserved is the preemption reservation of a stage that waits for its victims to leave, in ClusterQueue preemptQueue.
	preemptReserved quota.Usage
	preemptQueue    *clusterQueue
	// keepsNominal is true if the reservation is of nominal quota, against borrowers. passesPeaks is true if peak reservations yielded to it.
	keepsNominal, passesPeaks bool
	// gaveUp is the last cycle in which it lost a reservation.
	gaveUp uint64
	// queuedIn is the ClusterQueue in which the stage is pending, or nil, and ticket its element there.
	queuedIn *clusterQueue
	element  *element
	// timer is set while the stage must wait until requeueAt.
	timer timer
	// membership is nil unless the stage is in a co-admission group.
	membership *membership
	// lastRefusal is the refusal that was last emitted.
	lastRefusal Refusal
}

type element = queue.Element[*stage, equivalenceKey, quota.ID]

// An assignment is a charge to a ClusterQueue.
type assignment struct {
	decision     DecisionID
	clusterQueue *clusterQueue
	usage        quota.Usage
	// parts divides usage among the pod sets.
	parts []podSetCharge
	// isAdmitted is true if the stage waits for nothing else after its quota.
	isAdmitted bool
}

// A podSetCharge is the charge of one pod set.
type podSetCharge struct {
	podSet string
	usage  quota.Usage
}

// charge returns the charge of the stage, or nil.
func (s *stage) charge() *assignment {
	if s.reservation != nil {
		return s.reservation
	}
	return s.assumed
}

func (e *Engine) observeStage(object *kueue.Workload) {
	key := StageKey{Namespace: object.Namespace, Name: object.Name}
	v := versionOf(object.UID, object.ResourceVersion)
	s := e.stages[key]
	if e.tombstones.has(object.UID) || s != nil && v.isOlderThan(s.version) {
		return
	}
	if s != nil && s.uid != object.UID {
		e.loseStage(key)
		s = nil
	}
	if s == nil {
		s = &stage{key: key, uid: object.UID, generation: -1}
		e.stages[key] = s
	}
	s.version = v
	e.join(s, object)
	e.adoptSpec(s, object)
	e.adoptStatus(s, object)
	e.adoptCoAdmissionGroup(s, object)
	e.dropEviction(s)
	e.refresh(s)
}

// join makes the stage a member of its LocalQueue, and of its JobSet or of the object whose plan its label names.
func (e *Engine) join(s *stage, object *kueue.Workload) {
	localQueue := types.NamespacedName{Namespace: object.Namespace, Name: string(object.Spec.QueueName)}
	owner := types.UID(object.Labels[apis.PlanUIDLabel])
	s.ofJobSet = false
	for i := range object.OwnerReferences {
		if ref := &object.OwnerReferences[i]; ref.Controller != nil && *ref.Controller && ref.Kind == "JobSet" {
			owner, s.ofJobSet = ref.UID, true
		}
	}
	if s.localQueue != nil && (localQueue != s.localQueue.key || owner != s.owner) {
		e.leave(s)
	}
	if s.localQueue == nil {
		s.localQueue = e.localQueue(localQueue)
		s.localQueue.members.add(s)
	}
	s.owner = owner
	if owner != "" {
		e.jobSet(owner).members[s.key] = s
	}
}

// leave removes the stage from all totals, and from its LocalQueue and JobSet.
func (e *Engine) leave(s *stage) {
	e.setEntry(s, entry{})
	e.renewEvictionUnits(s)
	e.enqueue(s)
	s.localQueue.members.drop(s)
	e.dropIfUnknown(s.localQueue)
	s.localQueue = nil
	if j := e.jobSets[s.owner]; j != nil {
		delete(j.members, s.key)
		e.updateJobSet(j)
		e.dropIfForgotten(j)
	}
}

// observeEnd records a tombstone also for an unknown stage. A newer stage of the same name may have been observed before.
func (e *Engine) observeEnd(ev WorkloadGone) {
	e.tombstones.insert(ev.UID)
	if s := e.stages[ev.Key]; s != nil && (ev.UID == "" || ev.UID == s.uid) {
		e.loseStage(ev.Key)
	}
}

func (e *Engine) loseStage(key StageKey) {
	s := e.stages[key]
	if s == nil {
		return
	}
	e.leave(s)
	e.unbundle(s)
	e.dropTimer(s)
	e.releaseDemand(s.demand)
	e.tombstones.insert(s.uid)
	delete(e.stages, key)
	e.finder.History.Forget(s.uid)
	delete(e.overdue, s)
	if s.assumed != nil {
		delete(e.inFlight, s.assumed.decision)
	}
	delete(e.inFlight, s.evicting)
}

// adoptSpec converts the relevant parts of the spec.
func (e *Engine) adoptSpec(s *stage, object *kueue.Workload) {
	s.created = object.CreationTimestamp.Time
	s.index = number(object.Labels[apis.StageIndexLabel])
	s.attempt = number(object.Annotations[apis.AttemptAnnotation])
	s.isGrowth = object.Labels[apis.GrowthLabel] != ""
	s.priority, s.unsupported = priorityOf(object), unsupported(object)
	s.podSets = object.Spec.PodSets
	s.pinned, s.isGang = object.Annotations[apis.FlavorsAnnotation], object.Labels[apis.PodGroupKey] != ""
	sameReclaimable := slices.Equal(s.reclaimable, object.Status.ReclaimablePods)
	if s.generation == object.Generation && object.Generation > 0 && sameReclaimable {
		return
	}
	s.generation = object.Generation
	s.reclaimable = slices.Clone(object.Status.ReclaimablePods)
	before := s.demand
	s.demand = e.demandOf(s.key.Namespace, &s.workloadPods)
	e.releaseDemand(before)
}

// countOf returns how many pods of a pod set count: all except the reclaimable ones (KEP-78).
func countOf(p *kueue.PodSet, reclaimable []kueue.ReclaimablePod) int32 {
	count := p.Count
	for _, r := range reclaimable {
		if r.Name == p.Name && count >= 0 {
			count -= min(max(0, r.Count), count)
		}
	}
	return count
}

// number parses a label or annotation of the manager. It returns 0 for a text that is no number, as in a quota Workload of another controller.
func number(s string) int {
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// adoptStatus records the state that the object reports.
func (e *Engine) adoptStatus(s *stage, object *kueue.Workload) {
	s.isFinished = conditionIsTrue(object, kueue.WorkloadFinished)
	s.isAdmitted = conditionIsTrue(object, kueue.WorkloadAdmitted)
	s.isReady, s.hasNoPods = conditionIsTrue(object, kueue.WorkloadPodsReady), quotaworkload.HasNoPodsYet(object)
	s.admittedAt = admittedAt(object)
	s.evicted, s.isEvicted = time.Time{}, false
	if s.evicting == 0 {
		c := condition(object, kueue.WorkloadPreempted)
		s.isTakenFairly = c != nil && c.Status == metav1.ConditionTrue && c.Reason == kueue.InCohortFairSharingReason
	}
	if c := condition(object, kueue.WorkloadEvicted); c != nil && c.Status == metav1.ConditionTrue {
		s.isEvicted = true
		if e.losesPlace(c.Reason) {
			s.evicted = c.LastTransitionTime.Time
		}
	}
	s.requeueAt = time.Time{}
	if r := object.Status.RequeueState; r != nil && r.RequeueAt != nil {
		s.requeueAt = r.RequeueAt.Time
	}
	s.reservation = nil
	if a := object.Status.Admission; a != nil && conditionIsTrue(object, kueue.WorkloadQuotaReserved) {
		s.reservedAt = condition(object, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
		s.reservation = &assignment{clusterQueue: e.clusterQueue(string(a.ClusterQueue))}
		s.reservation.usage, s.reservation.parts = e.usageOf(object)
	}
	s.closed = ""
	switch gate := quotaworkload.GateMessage(object); {
	case !object.DeletionTimestamp.IsZero():
		s.closed = "the quota Workload is being deleted"
	case object.Spec.Active != nil && !*object.Spec.Active:
		s.closed = "the quota Workload is not active: spec.active is false"
	case gate != "":
		s.closed = gate
	default:
		if c := condition(object, kueue.WorkloadRequeued); c != nil && c.Status == metav1.ConditionFalse {
			s.closed = "kept out of the queue: " + c.Message
		}
	}
}

// losesPlace reports whether an eviction moves a stage behind those that came before it. A stage that was preempted, or whose queue was stopped,
// keeps its queue position.
func (e *Engine) losesPlace(reason string) bool {
	switch reason {
	case kueue.WorkloadEvictedByPreemption, kueue.WorkloadEvictedByClusterQueueStopped, kueue.WorkloadEvictedByLocalQueueStopped:
		return false
	case kueue.WorkloadEvictedByPodsReadyTimeout:
		return !e.config.KeepPlaceAfterEviction
	}
	return true
}

func condition(object *kueue.Workload, conditionType string) *metav1.Condition {
	for i := range object.Status.Conditions {
		if object.Status.Conditions[i].Type == conditionType {
			return &object.Status.Conditions[i]
		}
	}
	return nil
}

func conditionIsTrue(object *kueue.Workload, conditionType string) bool {
	c := condition(object, conditionType)
	return c != nil && c.Status == metav1.ConditionTrue
}

// usageOf returns the charge of an admission, in total and by pod set. It is charged as it is written, whatever the quota, less the reclaimable
// pods.
func (e *Engine) usageOf(object *kueue.Workload) (usage quota.Usage, parts []podSetCharge) {
	for i := range object.Status.Admission.PodSetAssignments {
		p := &object.Status.Admission.PodSetAssignments[i]
		one := podSetCharge{podSet: string(p.Name)}
		for name, q := range p.ResourceUsage {
			f, ok := p.Flavors[name]
			if !ok {
				continue
			}
			amount, _ := quota.Of(name, q)
			amount = min(amount, quota.MaxCharge)
			one.usage.Add(e.tree.Index.ID(quota.FlavorResource{Flavor: f, Resource: name}), stillNeeded(amount, p, object))
		}
		usage.AddAll(one.usage)
		parts = append(parts, one)
	}
	return usage, parts
}

// stillNeeded returns the part of an amount for the pods that are needed: not more than the pods of the spec that are not reclaimable. An
// admission may already leave these out, or others for lack of quota.
func stillNeeded(a quota.Amount, p *kueue.PodSetAssignment, object *kueue.Workload) quota.Amount {
	reclaims := func(r kueue.ReclaimablePod) bool { return r.Name == p.Name }
	i := slices.IndexFunc(object.Spec.PodSets, func(spec kueue.PodSet) bool { return spec.Name == p.Name })
	if p.Count == nil || *p.Count <= 0 || i < 0 || !slices.ContainsFunc(object.Status.ReclaimablePods, reclaims) {
		return a
	}
	if needed := countOf(&object.Spec.PodSets[i], object.Status.ReclaimablePods); needed < *p.Count {
		return a / quota.Amount(*p.Count) * quota.Amount(max(0, needed))
	}
	return a
}

// An equivalenceKey is an equivalence class: all that the checks depend on, so that stages of the same class are answered together.
type equivalenceKey struct {
	localQueue *localQueue
	demand     *demand
	// problem is the unsupported part of the spec.
	problem string
	// These are set for a stage of a JobSet with several stages, or with a plan that has a problem: the plan and its finished stages, the index
	// of the stage and the policy. If the JobSet holds quota, the JobSet and its turn replace the plan.
	plan     *demand
	finished string
	index    int
	policy   string
	jobSet   *jobSet
	turn     int
	// passes is Item.Passes.
	passes bool
	// alone is a stage that waits for its victims to leave, or that is in a co-admission group: no other stage waits for that.
	alone *stage
}

// enqueue moves the stage to its queue and position, or removes it from its queue.
func (e *Engine) enqueue(s *stage) {
	var to *clusterQueue
	j := e.jobSets[s.owner]
	if s.entry.phase == waiting && (s.owner == "" || j != nil && j.isKnown()) {
		to = s.entry.clusterQueue
	}
	var item queue.Item[*stage, equivalenceKey]
	if to != nil {
		item = e.item(s, j)
	}
	if s.queuedIn != nil {
		if s.queuedIn == to && s.element.Item == item {
			return
		}
		if s.queuedIn != to {
			e.cancelReservation(s)
		}
		s.queuedIn.pendingQueue.Remove(s.element)
		e.scheduleCycle(s.queuedIn)
	}
	s.queuedIn, s.element = to, nil
	if to != nil {
		s.element = to.pendingQueue.Add(item)
		e.scheduleCycle(to)
	}
}

// item returns the queue item of a stage. j is nil if its owner is no JobSet.
func (e *Engine) item(s *stage, j *jobSet) queue.Item[*stage, equivalenceKey] {
	item := queue.Item[*stage, equivalenceKey]{Member: s, Position: queue.Position{Priority: s.priority, Since: s.created, UID: s.uid}}
	if s.evicted.After(item.Since) {
		item.Since = s.evicted
	}
	item.Shape = equivalenceKey{localQueue: s.localQueue, demand: s.demand, problem: s.unsupported}
	if s.preemptQueue != nil || s.membership != nil {
		item.Shape.alone = s
	}
	if j == nil {
		return item
	}
	if s.isGrowth {
		// The JobSet can finish without the growth, so that it waits behind all stages that asked before.
		item.Shape.jobSet, item.Shape.turn, item.Shape.policy, item.Shape.index = j, j.epoch, j.policy, s.index
		return item
	}
	item.Since = j.since()
	if j.continues() {
		item.Standing = queue.Continuing
	}
	segment := j.segment()
	switch {
	case segment >= 0:
		item.Passes = s.index >= 0 && s.index < len(j.plan.Stages) && j.planGraph.Segment(s.index) <= segment
		item.Shape.jobSet, item.Shape.turn, item.Shape.policy, item.Shape.index = j, j.epoch, j.policy, s.index
		item.Shape.passes = item.Passes
	case len(j.plan.Stages) > 1 || s.index != 0 || j.problem != "":
		item.Shape.plan, item.Shape.policy, item.Shape.index, item.Shape.finished = j.demand, j.policy, s.index, j.finishedKey()
	}
	return item
}
