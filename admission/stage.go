package admission

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/queue"
)

// A stage is one quota Workload.
type stage struct {
	key        StageKey
	uid        types.UID
	version    version
	generation int64
	localQueue types.NamespacedName
	// owner is the UID of the JobSet, or empty if the owner is none.
	owner   types.UID
	index   int
	attempt int
	created time.Time
	evicted time.Time

	// From the spec, converted once for each generation.
	priority  int32
	podSets   []flavor.PodSet
	signature string
	// problem says what the Engine cannot do for this object, or is empty.
	problem string

	// From the last observation: closed says why the stage asks for nothing, reservation what it holds.
	closed      string
	isFinished  bool
	isAdmitted  bool
	reservation *assignment

	// assumed is what was decided and is not settled yet.
	assumed *assignment

	// entry is what is booked for the stage.
	entry entry
	// line is the ClusterQueue in whose line the stage stands, or nil.
	line *clusterQueue
	// told is the refusal that was last emitted.
	told Refusal

	options itemCache
}

// An assignment charges a ClusterQueue.
type assignment struct {
	decision     DecisionID
	clusterQueue string
	usage        quota.Usage
}

func (e *Engine) observeStage(object *kueue.Workload) {
	key := StageKey{Namespace: object.Namespace, Name: object.Name}
	v := versionOf(object.UID, object.ResourceVersion)
	s := e.stages[key]
	if e.graves.has(object.UID) || s != nil && v.isOlderThan(s.version) {
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
	s.adoptSpec(object)
	s.adoptStatus(object)
	e.account(s)
}

// join makes the stage a member of its LocalQueue and of its JobSet.
func (e *Engine) join(s *stage, object *kueue.Workload) {
	localQueue := types.NamespacedName{Namespace: object.Namespace, Name: string(object.Spec.QueueName)}
	owner := types.UID("")
	for _, ref := range object.OwnerReferences {
		if ref.Controller != nil && *ref.Controller && ref.Kind == "JobSet" {
			owner = ref.UID
		}
	}
	if s.generation >= 0 && (localQueue != s.localQueue || owner != s.owner) {
		e.leave(s)
	}
	s.localQueue, s.owner = localQueue, owner
	e.localQueue(localQueue).members[s.key] = s
	if owner != "" {
		e.jobSet(owner).members[s.key] = s
	}
}

// leave takes the stage off everything that it is booked on, and out of its LocalQueue and JobSet.
func (e *Engine) leave(s *stage) {
	e.book(s, entry{})
	e.enqueue(s)
	delete(e.localQueue(s.localQueue).members, s.key)
	if j := e.jobSets[s.owner]; j != nil {
		delete(j.members, s.key)
		e.reconsider(j)
		e.dropIfForgotten(j)
	}
}

func (e *Engine) loseStage(key StageKey) {
	s := e.stages[key]
	if s == nil {
		return
	}
	e.leave(s)
	e.graves.bury(s.uid)
	delete(e.stages, key)
	if s.assumed != nil {
		delete(e.inFlight, s.assumed.decision)
	}
}

// adoptSpec converts what counts of the spec.
func (s *stage) adoptSpec(object *kueue.Workload) {
	s.created = object.CreationTimestamp.Time
	s.index = number(object.Labels[apis.StageIndexLabel])
	s.attempt = number(object.Annotations[apis.AttemptAnnotation])
	if s.generation == object.Generation && object.Generation > 0 {
		return
	}
	s.generation = object.Generation
	s.options = itemCache{}
	s.priority = 0
	if object.Spec.Priority != nil {
		s.priority = *object.Spec.Priority
	}
	s.problem = unsupported(&object.Spec)
	s.podSets = make([]flavor.PodSet, len(object.Spec.PodSets))
	for i := range object.Spec.PodSets {
		podSet := &object.Spec.PodSets[i]
		problem := ""
		s.podSets[i], problem = podSetOf(string(podSet.Name), podSet.Count, stageplan.PodRequests(&podSet.Template.Spec), &podSet.Template.Spec)
		if s.problem == "" {
			s.problem = problem
		}
	}
	s.signature = s.problem + signatureOf(s.podSets)
}

// number reads a label or annotation of the manager; what is no number counts as 0, as in a quota Workload of another maker.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// unsupported names what the spec asks for and does not get, or is empty.
func unsupported(spec *kueue.WorkloadSpec) string {
	if len(spec.PreemptionGates) > 0 {
		return "spec.preemptionGates are not supported yet"
	}
	for i := range spec.PodSets {
		switch podSet := &spec.PodSets[i]; {
		case podSet.TopologyRequest != nil:
			return fmt.Sprintf("spec.podSets[%d].topologyRequest is not supported yet", i)
		case podSet.MinCount != nil:
			return fmt.Sprintf("spec.podSets[%d].minCount: partial admission is not supported yet", i)
		}
	}
	return ""
}

// podSetOf multiplies the requests of one pod. The problem is empty unless an amount cannot be charged.
func podSetOf(name string, count int32, requests corev1.ResourceList, spec *corev1.PodSpec) (podSet flavor.PodSet, problem string) {
	podSet = flavor.PodSet{Name: name, Count: count, Pod: flavor.NewPod(spec), Total: map[corev1.ResourceName]quota.Amount{}}
	if count < 0 {
		return podSet, fmt.Sprintf("pod set %s has a negative count", name)
	}
	for _, resource := range slices.Sorted(maps.Keys(requests)) {
		amount, exact := quota.Of(resource, requests[resource])
		total := amount.Times(count)
		if !exact || total == quota.MaxAmount {
			q := requests[resource]
			return podSet, fmt.Sprintf("pod set %s asks for %s %s in each of %d pods, which cannot be charged to any quota", name, q.String(), resource, count)
		}
		podSet.Total[resource] = total
	}
	return podSet, ""
}

// signatureOf is the same only for pod sets to which every check answers the same.
func signatureOf(podSets []flavor.PodSet) string {
	var b strings.Builder
	for i := range podSets {
		p := &podSets[i]
		fmt.Fprintf(&b, "%s %d %v %s\n", p.Name, p.Count, p.Total, p.Pod.Signature())
	}
	return b.String()
}

// adoptStatus takes over what the object says about its own state.
func (s *stage) adoptStatus(object *kueue.Workload) {
	s.isFinished = conditionIsTrue(object, kueue.WorkloadFinished)
	s.isAdmitted = conditionIsTrue(object, kueue.WorkloadAdmitted)
	s.evicted = time.Time{}
	if c := condition(object, kueue.WorkloadEvicted); c != nil && c.Status == metav1.ConditionTrue {
		s.evicted = c.LastTransitionTime.Time
	}
	s.reservation = nil
	if a := object.Status.Admission; a != nil && conditionIsTrue(object, kueue.WorkloadQuotaReserved) {
		s.reservation = &assignment{clusterQueue: string(a.ClusterQueue), usage: usageOf(a)}
	}
	s.closed = ""
	gates := strings.TrimSpace(object.Annotations[apis.AdmissionGatedByAnnotation])
	switch {
	case !object.DeletionTimestamp.IsZero():
		s.closed = "the quota Workload is being deleted"
	case object.Spec.Active != nil && !*object.Spec.Active:
		s.closed = "the quota Workload is not active: spec.active is false"
	case gates != "":
		s.closed = gateMessage(gates)
	}
}

// gateMessage says what the first of some gates waits for.
func gateMessage(gates string) string {
	first, _, _ := strings.Cut(gates, ",")
	switch first = strings.TrimSpace(first); first {
	case apis.StageGate:
		return "the stage waits for earlier stages of its JobSet"
	case apis.SuspendedGate:
		return "the JobSet is suspended by its user"
	default:
		return "gated by " + first
	}
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

// usageOf is what an admission charges. It counts as it is written, whatever quota says.
func usageOf(a *kueue.Admission) quota.Usage {
	usage := quota.Usage{}
	for i := range a.PodSetAssignments {
		assignment := &a.PodSetAssignments[i]
		for name, q := range assignment.ResourceUsage {
			if f, ok := assignment.Flavors[name]; ok {
				amount, _ := quota.Of(name, q)
				usage.Add(quota.FlavorResource{Flavor: f, Resource: name}, amount)
			}
		}
	}
	return usage
}

// enqueue puts the stage in the line where it belongs, at its place, or takes it out of line.
func (e *Engine) enqueue(s *stage) {
	var line *clusterQueue
	j := e.jobSets[s.owner]
	if s.entry.phase == waiting && (s.owner == "" || j != nil && j.isKnown()) {
		line = e.clusterQueue(s.entry.clusterQueue)
	}
	if s.line != nil && s.line != line {
		s.line.line.Remove(s.key)
		e.dirty[s.line.name] = struct{}{}
	}
	s.line = line
	if line != nil {
		line.line.Add(e.item(s, j))
		e.dirty[line.name] = struct{}{}
	}
}

// item is the place of a stage in line. j is nil if its owner is no JobSet.
func (e *Engine) item(s *stage, j *jobSet) queue.Item {
	item := queue.Item{Key: s.key, Position: queue.Position{Priority: s.priority, Since: s.created, UID: s.uid}}
	if s.evicted.After(item.Since) {
		item.Since = s.evicted
	}
	item.Shape = s.localQueue.String() + "\n" + s.signature
	if j == nil {
		return item
	}
	item.Since = j.since()
	switch {
	case j.continues():
		item.Standing = queue.Continuing
		item.Shape = fmt.Sprintf("%s %d %s\n%s", s.uid, j.turn, j.policy, item.Shape)
	case len(j.plan.Stages) > 1 || s.index != 0:
		item.Shape += fmt.Sprintf("\n%s\n%d\n%s", j.policy, s.index, j.signature)
	}
	return item
}
