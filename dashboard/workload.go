package dashboard

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/dashboard/internal/ordered"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/queue"
)

// A State is what a quota Workload does.
type State string

// The states of quota Workloads.
const (
	// Pending is the state of a quota Workload that waits in its queue.
	Pending State = "Pending"
	// Gated is the state of one that does not ask for quota yet: an earlier stage has to finish, or its user has suspended it.
	Gated State = "Gated"
	// Deactivated is the state of one whose spec.active is false.
	Deactivated State = "Deactivated"
	// BackingOff is the state of one that was evicted and is kept out of the queue for a time.
	BackingOff State = "BackingOff"
	// Reserved is the state of one that holds quota and waits for AdmissionChecks.
	Reserved State = "Reserved"
	// Starting is the state of one that is admitted, and whose pods are not all ready: its quota is idle.
	Starting State = "Starting"
	// Running is the state of one whose pods are all ready or have succeeded.
	Running State = "Running"
	// Evicting is the state of one that was evicted, and holds quota until its pods have terminated.
	Evicting State = "Evicting"
	// Finished is the state of one that has finished.
	Finished State = "Finished"
)

// States returns all states of quota Workloads.
func States() []State {
	return []State{Pending, Gated, Deactivated, BackingOff, Reserved, Starting, Running, Evicting, Finished}
}

// A workload has the facts of a quota Workload.
type workload struct {
	key        types.NamespacedName
	uid        types.UID
	localQueue *localQueue
	owner      *owner
	// ownerKind and ownerName identify its controller.
	ownerKind, ownerName string
	stage                string
	index                int
	isGrowth             bool
	created              time.Time
	// evicted is when its last eviction moved it behind the others, or zero.
	evicted         time.Time
	state           State
	since           time.Time
	reason, message string
	priority        int32
	// holdsQuota is true if it holds quota in ClusterQueue home, even if its charge held is empty; requests is what it asks for.
	holdsQuota bool
	held       []charge
	requests   []Amount
	home       string
	// next is what is known to change next: it ends, or is preempted. It is zero if nothing is.
	next change

	// Derived: the list that has it, and its position there.
	in       *ordered.List[*workload]
	position queue.Position
}

// A charge is an amount of one flavor and resource.
type charge struct {
	quota.FlavorResource
	amount quota.Amount
}

// An owner groups the quota Workloads of a JobSet or a gang of pods, which have one place in line.
type owner struct {
	key ownerKey
	// isJobSet is true for an observed JobSet, which was submitted then.
	isJobSet  bool
	submitted time.Time
	members   map[*workload]struct{}
	// held is the sum of what the members hold, by resource. It is nil if they hold nothing.
	held map[corev1.ResourceName]quota.Amount
	// expected is when the first waiting stage of a JobSet is expected to start, or nil.
	expected *expectedStart
}

// An ownerKey identifies an owner. A user who may write quota Workloads can write the UID of an object in another namespace into one of theirs.
type ownerKey struct {
	namespace string
	uid       types.UID
}

func (m *Model) observeWorkload(object *kueue.Workload) {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	w := m.workloads[key]
	if w != nil && w.uid != object.UID {
		m.forgetWorkload(w)
		w = nil
	}
	if w == nil {
		w = &workload{key: key, uid: object.UID}
		m.workloads[key] = w
		m.count(key.Namespace, 1)
	}
	m.detach(w)
	w.adopt(object)
	m.attach(w, object)
}

func (m *Model) forgetWorkload(w *workload) {
	m.detach(w)
	delete(m.workloads, w.key)
	m.count(w.key.Namespace, -1)
}

// detach removes a quota Workload from its lists and totals, and from its owner and LocalQueue.
func (m *Model) detach(w *workload) {
	m.unlist(w)
	if w.localQueue != nil {
		delete(w.localQueue.members, w)
		m.dropIfUnused(w.localQueue)
		w.localQueue = nil
	}
	if o := w.owner; o != nil {
		w.owner = nil
		delete(o.members, w)
		m.sum(o)
		if len(o.members) == 0 && !o.isJobSet {
			delete(m.owners, o.key)
			return
		}
		m.reorder(o)
	}
}

// attach is the opposite of detach.
func (m *Model) attach(w *workload, object *kueue.Workload) {
	w.localQueue = m.localQueue(types.NamespacedName{Namespace: object.Namespace, Name: string(object.Spec.QueueName)})
	w.localQueue.members[w] = struct{}{}
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		w.ownerKind, w.ownerName = ref.Kind, ref.Name
	}
	if uid := ownerOf(object); uid != "" {
		w.owner = m.owner(ownerKey{object.Namespace, uid})
		w.owner.members[w] = struct{}{}
		m.sum(w.owner)
	}
	m.enlist(w)
	if w.owner != nil {
		m.reorder(w.owner)
	}
}

// ownerOf returns the UID of the JobSet, or of the plan of the gang, to which a quota Workload belongs.
func ownerOf(object *kueue.Workload) types.UID {
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil && ref.Kind == "JobSet" {
		return ref.UID
	}
	return types.UID(object.Labels[apis.PlanUIDLabel])
}

func (m *Model) owner(key ownerKey) *owner {
	o := m.owners[key]
	if o == nil {
		o = &owner{key: key, members: map[*workload]struct{}{}}
		m.owners[key] = o
	}
	return o
}

// sum computes what the quota Workloads of an owner hold.
func (m *Model) sum(o *owner) {
	if o.isJobSet {
		m.jobSetTotals.add(o.held, -1)
		defer func() { m.jobSetTotals.add(o.held, 1) }()
	}
	o.held = nil
	for w := range o.members {
		for _, c := range w.held {
			if w.state != Finished {
				if o.held == nil {
					o.held = map[corev1.ResourceName]quota.Amount{}
				}
				o.held[c.Resource] = o.held[c.Resource].Plus(c.amount)
			}
		}
	}
}

// firstPending returns the pending quota Workload of the first stage that has one, or nil. Those of growths come last.
func (o *owner) firstPending() *workload {
	var first *workload
	for w := range o.members {
		if w.state == Pending && (first == nil || cmp.Or(compareGrowths(w, first), cmp.Compare(w.index, first.index), compareWorkloads(w, first)) < 0) {
			first = w
		}
	}
	return first
}

// reorder moves the pending quota Workloads of an owner whose position has changed.
func (m *Model) reorder(o *owner) {
	for w := range o.members {
		if w.in != nil && w.state == Pending && w.positionNow() != w.position {
			m.unlist(w)
			m.enlist(w)
		}
	}
}

// enlist adds a quota Workload to the list and the totals of its ClusterQueue.
func (m *Model) enlist(w *workload) {
	if w.state == Finished {
		return
	}
	name := w.home
	if name == "" {
		name = w.localQueue.clusterQueue
	}
	q := m.clusterQueue(name)
	w.home = name
	q.counts[w.state]++
	w.position = w.positionNow()
	switch {
	case w.state == Pending:
		w.in = q.pending
	case w.holdsQuota:
		w.in = q.holders
	default:
		w.in = q.others
	}
	w.in.Insert(w)
	w.localQueue.enlist(w)
	q.charge(w, 1)
	m.enlistForOverview(w)
	m.tree = nil
}

func (m *Model) unlist(w *workload) {
	if w.in == nil {
		return
	}
	w.in.Remove(w)
	w.in = nil
	w.localQueue.unlist(w)
	m.unlistForOverview(w)
	q := m.clusterQueues[w.home]
	q.counts[w.state]--
	q.charge(w, -1)
	if !w.holdsQuota {
		w.home = ""
	}
	m.tree = nil
	m.dropClusterQueueIfUnused(q)
}

// positionNow returns the position in the line as the engine computes it.
func (w *workload) positionNow() queue.Position {
	p := queue.Position{Priority: w.priority, Since: w.created, UID: w.uid}
	if w.evicted.After(p.Since) {
		p.Since = w.evicted
	}
	if w.owner == nil || w.isGrowth {
		return p
	}
	first := w.created
	var evicted time.Time
	for other := range w.owner.members {
		if other.holdsQuota || other.state == Finished {
			p.Standing = queue.Continuing
		}
		if other.created.Before(first) {
			first = other.created
		}
		if other.evicted.After(evicted) && !other.isGrowth {
			evicted = other.evicted
		}
	}
	// A gang, and a JobSet that may not be read, was submitted before its first quota Workload was created.
	if p.Since = w.owner.submitted; p.Since.IsZero() {
		p.Since = first
	}
	p.Since = workloadstatus.Later(p.Since, evicted)
	return p
}

// comparePending orders the quota Workloads of a line.
func comparePending(a, b *workload) int { return a.position.Compare(b.position) }

func compareWorkloads(a, b *workload) int { return compareKeys(a.key, b.key) }

// compareGrowths orders growths behind the stages themselves.
func compareGrowths(a, b *workload) int {
	switch {
	case a.isGrowth == b.isGrowth:
		return 0
	case b.isGrowth:
		return -1
	}
	return 1
}

// adopt takes the facts of an object.
func (w *workload) adopt(object *kueue.Workload) {
	w.stage = object.Labels[apis.StageLabel]
	w.index = number(object.Labels[apis.StageIndexLabel])
	w.isGrowth = object.Labels[apis.GrowthLabel] != ""
	w.created = object.CreationTimestamp.Time
	w.priority = priorityOf(object)
	w.ownerKind, w.ownerName = "", ""
	w.evicted = time.Time{}
	if c := quotaworkload.FindTrue(object, kueue.WorkloadEvicted); c != nil && losesPlace(c.Reason) {
		w.evicted = c.LastTransitionTime.Time
	}
	w.held, w.home, w.holdsQuota = nil, "", quotaworkload.HoldsQuota(object)
	if w.holdsQuota {
		w.held, w.home = chargesOf(object), string(object.Status.Admission.ClusterQueue)
	}
	w.requests = requestsOf(object)
	status := statusOf(object)
	w.state, w.since, w.reason, w.message = status.state, status.since, status.reason, status.message
	w.next = nextOf(w, object)
}

// losesPlace reports whether an eviction moves a JobSet behind those that came before it, with the default configuration of the manager.
func losesPlace(reason string) bool {
	return !slices.Contains([]string{
		kueue.WorkloadEvictedByPreemption, kueue.WorkloadEvictedByClusterQueueStopped, kueue.WorkloadEvictedByLocalQueueStopped,
	}, reason)
}

// A status is the state of a quota Workload with its reason, in the words of its conditions.
type status struct {
	state           State
	since           time.Time
	reason, message string
}

func statusOf(w *kueue.Workload) status {
	of := func(state State, c *metav1.Condition) status {
		if c == nil {
			return status{state: state, since: w.CreationTimestamp.Time}
		}
		return status{state, c.LastTransitionTime.Time, c.Reason, c.Message}
	}
	if c := quotaworkload.FindTrue(w, kueue.WorkloadFinished); c != nil {
		return of(Finished, c)
	}
	if !quotaworkload.HoldsQuota(w) {
		return waitingStatusOf(w)
	}
	if c := quotaworkload.FindTrue(w, kueue.WorkloadEvicted); c != nil {
		return of(Evicting, c)
	}
	admitted := quotaworkload.FindTrue(w, kueue.WorkloadAdmitted)
	if admitted == nil {
		return of(Reserved, quotaworkload.FindTrue(w, kueue.WorkloadQuotaReserved))
	}
	s := of(Starting, admitted)
	if c := quotaworkload.FindTrue(w, kueue.WorkloadPodsReady); c != nil {
		s = of(Running, c)
	}
	if quotaworkload.NoticeOf(w) != nil {
		s.reason, s.message = apis.PreemptionPendingCondition, quotaworkload.FindTrue(w, apis.PreemptionPendingCondition).Message
	}
	return s
}

// waitingStatusOf returns the status of a quota Workload that holds no quota.
func waitingStatusOf(w *kueue.Workload) status {
	s := status{state: Pending, since: w.CreationTimestamp.Time}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
		s.since = c.LastTransitionTime.Time
	}
	closed, wait := quotaworkload.ClosedBy(w), workloadstatus.WaitOf(w)
	switch {
	case closed == nil && wait != nil:
		s.reason, s.message = wait.Reason, wait.Message
		return s
	case closed == nil:
		s.reason, s.message = kueue.WorkloadQuotaReservedReasonPendingEvaluation, "waiting for the first scheduling cycle"
		return s
	case !w.DeletionTimestamp.IsZero():
		s.state = Gated
	case !ptr.Deref(w.Spec.Active, true):
		s.state = Deactivated
	case quotaworkload.GateOf(w) != nil:
		s.state = Gated
	default:
		s.state = BackingOff
	}
	s.reason, s.message = closed.Reason, closed.Text()
	return s
}

// chargesOf returns what the admission of a quota Workload charges, less the reclaimable pods, in the order of flavors and resources.
func chargesOf(w *kueue.Workload) []charge {
	sums := map[quota.FlavorResource]quota.Amount{}
	for _, c := range ledger.ChargesOf(w) {
		sums[c.FlavorResource] = sums[c.FlavorResource].Plus(c.Amount())
	}
	charges := make([]charge, 0, len(sums))
	for fr, amount := range sums {
		charges = append(charges, charge{fr, amount})
	}
	slices.SortFunc(charges, func(a, b charge) int { return a.Compare(b.FlavorResource) })
	return charges
}

// requestsOf returns what a quota Workload asks for, as the manager computed it.
func requestsOf(w *kueue.Workload) []Amount {
	sums := map[corev1.ResourceName]quota.Amount{}
	for i := range w.Status.ResourceRequests {
		for name, q := range w.Status.ResourceRequests[i].Resources {
			amount, _ := quota.Of(name, q)
			sums[name] = sums[name].Plus(amount)
		}
	}
	return amountsOf(sums)
}

// priorityOf returns the priority with its boost. It saturates.
func priorityOf(w *kueue.Workload) int32 {
	sum := int64(ptr.Deref(w.Spec.Priority, 0)) + int64(number(w.Annotations[apis.PriorityBoostAnnotation]))
	return int32(min(max(sum, math.MinInt32), math.MaxInt32))
}

// number parses a label or annotation of the manager. It returns 0 for other texts.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
