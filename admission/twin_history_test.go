package admission_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// TestEngineAgainstTwin runs clusters through random histories, and compares after each call of Decide. Beside the Engine runs a second one with
// the same input, which must decide exactly the same. A crash replaces both by new ones that observe all objects in random order (I5).
func TestEngineAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		h.furnish()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			h.step()
			if rapid.IntRange(0, 2).Draw(t, "decides") > 0 {
				h.decide()
			}
		}
		h.decide()
	})
}

// A history is a cluster to which anything may happen.
type history struct {
	t       *rapid.T
	engine  *admission.Engine
	second  *admission.Engine
	twin    *twin
	now     time.Time
	version int
	// stale are observations that are out of date.
	stale []admission.Event
	// told is the last refusal of each stage.
	told map[admission.StageKey]admission.Refusal
	// unsettled are decisions that are still to be written.
	unsettled []admission.Decision
}

func newHistory(t *rapid.T) *history {
	h := &history{t: t, twin: newTwin(), now: start(), told: map[admission.StageKey]admission.Refusal{}}
	h.twin.isFair = h.chance("fair", 2)
	h.engine, h.second = h.newEngine(), h.newEngine()
	return h
}

func (h *history) newEngine() *admission.Engine {
	engine, err := admission.New(admission.Config{StageAdmission: admission.Greedy, FairSharing: h.twin.isFair})
	if err != nil {
		h.t.Fatalf("New: %v", err)
	}
	return engine
}

func (h *history) tell(event admission.Event) {
	if text, err := json.Marshal(event); err == nil {
		h.t.Logf("%T %s", event, text)
	}
	h.engine.Apply(event)
	h.second.Apply(event)
}

func (h *history) chance(label string, of int) bool {
	return rapid.IntRange(0, of-1).Draw(h.t, label) == of-1
}

func (h *history) draw(label string, upTo int) int { return rapid.IntRange(0, upTo).Draw(h.t, label) }

func pick[T any](h *history, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(h.t, label)
}

func (h *history) meta(name string) metav1.ObjectMeta {
	h.version++
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(h.version)}
}

// step makes one random change.
func (h *history) step() {
	switch h.draw("what", 19) {
	case 0, 1, 2, 3:
		h.submit()
	case 4, 5, 6, 7, 8, 9:
		h.changeWorkload()
	case 10, 11, 12:
		h.settleOne()
	case 13, 14:
		h.now = h.now.Add(time.Duration(h.draw("seconds", 20)) * time.Second)
	case 15:
		h.crash()
	case 16:
		if len(h.stale) > 0 {
			h.tell(h.stale[h.draw("stale", len(h.stale)-1)])
		}
	default:
		h.reconfigure()
	}
}

// submit creates a quota Workload, or all of a JobSet.
func (h *history) submit() {
	queue := kueue.LocalQueueName(pick(h, "queue", "l", "l", "l", "k", "nowhere"))
	namespace := pick(h, "namespace", "n", "n", "m")
	name := fmt.Sprintf("w%d", h.draw("name", 11))
	if h.chance("jobset", 4) {
		h.submitJobSet(namespace, name, queue)
		return
	}
	wl := h.newWorkload(namespace, name, queue)
	for i := range 1 + h.draw("more pod sets", 2)*h.draw("many", 1) {
		wl.Spec.PodSets = append(wl.Spec.PodSets, h.podSet(fmt.Sprintf("p%d", i)))
	}
	h.observe(wl)
}

func (h *history) newWorkload(namespace, name string, queue kueue.LocalQueueName) *kueue.Workload {
	if old := h.twin.workloads[admission.StageKey{Namespace: namespace, Name: name}]; old != nil {
		h.remove(old)
	}
	wl := newWorkload(name, string(queue))
	h.version++
	wl.Namespace, wl.UID, wl.Generation = namespace, types.UID(fmt.Sprintf("%c-%d", 'a'+h.draw("uid", 9), h.version)), 1
	wl.CreationTimestamp = metav1.NewTime(h.now)
	if h.chance("has priority", 3) {
		priority := int32(h.draw("priority", 2)) - 1
		wl.Spec.Priority = &priority
	}
	return wl
}

func (h *history) podSet(name string) kueue.PodSet {
	p := kueue.PodSet{Name: kueue.PodSetReference(name), Count: int32(h.draw("count", 4)), Template: h.pods()}
	if h.chance("partial", 4) {
		minCount := int32(1 + h.draw("min count", 2))
		p.MinCount = &minCount
	}
	if h.chance("has topology", 30) {
		p.TopologyRequest = &kueue.PodSetTopologyRequest{Required: new("rack")}
	}
	return p
}

func (h *history) pods() corev1.PodTemplateSpec {
	requests := fmt.Sprintf("gpu=%d", h.draw("gpu", 3))
	if h.chance("asks for cpu", 3) {
		requests += fmt.Sprintf(" cpu=%d", h.draw("cpu", 2))
	}
	return template(requests, func(spec *corev1.PodSpec) {
		switch h.draw("placed", 11) {
		case 0:
			spec.NodeSelector = map[string]string{"type": pick(h, "selects", "x", "y"), "other": "label"}
		case 1:
			r := corev1.NodeSelectorRequirement{Key: "zone", Operator: pick(h, "operator", corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{"1"}}
			spec.Affinity = affinityTo(r)
		case 2, 3:
			spec.Tolerations = []corev1.Toleration{{Key: "spot", Value: pick(h, "tolerates", "yes", "no"), Effect: corev1.TaintEffectNoSchedule}}
		}
	})
}

func affinityTo(r corev1.NodeSelectorRequirement) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{r}}},
	}}}
}

// submitJobSet creates a JobSet with up to three stages. The plan may come first or last. Some stages have an index that the plan lacks.
func (h *history) submitJobSet(namespace, name string, queue kueue.LocalQueueName) {
	yes := true
	spec := &jobsetapi.JobSetSpec{}
	for i := range 1 + h.draw("more stages", 2) {
		r := jobsetapi.ReplicatedJob{}
		r.Name, r.Replicas = fmt.Sprintf("s%d", i), int32(1+h.draw("replicas", 2))
		r.Template = batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: h.pods()}}
		if i > 0 {
			r.DependsOn = []jobset.DependsOn{{Name: fmt.Sprintf("s%d", i-1), Status: jobset.DependencyReady}}
		}
		spec.ReplicatedJobs = append(spec.ReplicatedJobs, r)
	}
	plan, err := stageplan.New(spec)
	if err != nil {
		h.t.Fatalf("plan: %v", err)
	}
	h.version++
	uid := types.UID(fmt.Sprintf("js-%d", h.version))
	planned := admission.PlanObserved{Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: namespace, Name: name}}, UID: uid, Submitted: h.now, Plan: plan}
	plansLast := h.chance("plan comes last", 3)
	if !plansLast {
		h.observePlan(planned)
	}
	for i := range plan.Stages {
		stage := &plan.Stages[i]
		wl := h.newWorkload(namespace, name+"-"+stage.Name, queue)
		wl.Labels = map[string]string{apis.StageIndexLabel: strconv.Itoa(i + h.draw("wrong index", 20)/20)}
		wl.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: name, UID: uid, Controller: &yes}}
		for k := range stage.PodSets {
			p := &stage.PodSets[k]
			wl.Spec.PodSets = append(wl.Spec.PodSets, kueue.PodSet{Name: kueue.PodSetReference(p.Name), Count: p.Count, Template: *p.Template})
		}
		h.observe(wl)
	}
	if plansLast && !h.chance("plan never comes", 3) {
		h.observePlan(planned)
	}
}

func (h *history) observePlan(ev admission.PlanObserved) {
	h.twin.plans[ev.UID] = ev
	h.tell(ev)
}

// observe makes the Engines observe the next version of a quota Workload.
func (h *history) observe(wl *kueue.Workload) {
	key := keyOfWorkload(wl)
	if old := h.twin.workloads[key]; old != nil {
		h.stale = append(h.stale, admission.WorkloadObserved{Workload: old})
	}
	wl = wl.DeepCopy()
	h.version++
	wl.ResourceVersion = strconv.Itoa(h.version)
	h.twin.workloads[key] = wl
	if h.twin.holds(wl) == nil {
		delete(h.twin.evicting, key) // it has left, whether or not the write of the eviction has been answered
	}
	h.tell(admission.WorkloadObserved{Workload: wl})
}

func (h *history) remove(wl *kueue.Workload) {
	key := keyOfWorkload(wl)
	h.stale = append(h.stale, admission.WorkloadObserved{Workload: wl})
	delete(h.twin.workloads, key)
	delete(h.twin.admitting, key)
	delete(h.twin.evicting, key)
	delete(h.told, key)
	h.tell(admission.WorkloadGone{Key: key})
}

// crash starts new Engines, which observe everything in random order. Decisions that were not written are lost.
func (h *history) crash() {
	var events []admission.Event
	for _, name := range slices.Sorted(maps.Keys(h.twin.flavors)) {
		events = append(events, admission.FlavorObserved{Flavor: h.twin.flavors[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(h.twin.checks)) {
		events = append(events, admission.CheckObserved{AdmissionCheck: h.twin.checks[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(h.twin.cohorts)) {
		events = append(events, admission.CohortObserved{Cohort: h.twin.cohorts[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(h.twin.queues)) {
		events = append(events, admission.ClusterQueueObserved{ClusterQueue: h.twin.queues[name]})
	}
	for _, key := range slices.SortedFunc(maps.Keys(h.twin.localQueues), compareStageKeys) {
		events = append(events, admission.LocalQueueObserved{LocalQueue: h.twin.localQueues[key]})
	}
	for _, name := range slices.Sorted(maps.Keys(h.twin.namespaces)) {
		events = append(events, admission.NamespaceObserved{Name: name, Labels: h.twin.namespaces[name]})
	}
	for _, uid := range slices.Sorted(maps.Keys(h.twin.plans)) {
		events = append(events, h.twin.plans[uid])
	}
	for _, key := range slices.SortedFunc(maps.Keys(h.twin.workloads), compareStageKeys) {
		events = append(events, admission.WorkloadObserved{Workload: h.twin.workloads[key]})
	}
	h.engine, h.second = h.newEngine(), h.newEngine()
	for _, event := range rapid.Permutation(events).Draw(h.t, "events") {
		h.tell(event)
	}
	h.stale, h.unsettled = nil, nil
	clear(h.told)
	clear(h.twin.admitting)
	clear(h.twin.evicting)
}

// settleOne writes one of the pending decisions, or fails to.
func (h *history) settleOne() {
	if len(h.unsettled) == 0 {
		return
	}
	i := h.draw("settled", len(h.unsettled)-1)
	d := h.unsettled[i]
	outcome := pick(h, "outcome", "written", "written", "written", "written", "fails", "seen first", "not seen")
	var id admission.DecisionID
	switch d := d.(type) {
	case admission.Admit:
		id = d.ID
		if outcome == "written" || outcome == "seen first" {
			h.change(d.Stage, d.UID, func(wl *kueue.Workload) { h.reserve(wl, &d) })
		}
	case admission.Evict:
		id = d.ID
		if outcome == "written" || outcome == "seen first" {
			h.change(d.Stage, d.UID, h.evict)
		}
	case admission.Refuse, admission.Notice:
	}
	if outcome != "seen first" {
		h.unsettled = slices.Delete(h.unsettled, i, i+1)
		h.settle(d, id, outcome)
	}
}

func (h *history) settle(d admission.Decision, id admission.DecisionID, outcome string) {
	h.t.Logf("settle %v %s", d, outcome)
	h.engine.Settle(id)
	h.second.Settle(id)
	switch d := d.(type) {
	case admission.Admit:
		if wl := h.twin.workloads[d.Stage]; wl != nil && wl.UID == d.UID {
			delete(h.twin.admitting, d.Stage)
		}
	case admission.Evict:
		if wl := h.twin.workloads[d.Stage]; wl != nil && wl.UID == d.UID {
			delete(h.twin.evicting, d.Stage)
		}
	case admission.Refuse, admission.Notice:
	}
}

// change creates a new version of a quota Workload, if it is still the same.
func (h *history) change(key admission.StageKey, uid types.UID, f func(*kueue.Workload)) {
	if old := h.twin.workloads[key]; old != nil && old.UID == uid {
		wl := old.DeepCopy()
		f(wl)
		h.observe(wl)
	}
}

func (h *history) reserve(wl *kueue.Workload, d *admission.Admit) {
	wl.Status.Admission = d.Admission.DeepCopy()
	setCondition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionTrue)
	setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionFalse)
	if len(d.Checks) == 0 {
		setCondition(wl, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	}
}

func (h *history) evict(wl *kueue.Workload) {
	setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue)
	wl.Status.Conditions[len(wl.Status.Conditions)-1].LastTransitionTime = metav1.NewTime(h.now)
}

// release terminates the pods of an eviction, or any others.
func (h *history) release(wl *kueue.Workload) {
	wl.Status.Admission = nil
	setCondition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	setCondition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse)
}

// changeWorkload changes one of the quota Workloads as any client may, or deletes it.
func (h *history) changeWorkload() {
	if len(h.twin.workloads) == 0 {
		return
	}
	key := pick(h, "workload", slices.SortedFunc(maps.Keys(h.twin.workloads), compareStageKeys)...)
	old := h.twin.workloads[key]
	wl := old.DeepCopy()
	switch h.draw("change", 19) {
	case 0, 1, 2:
		finish(wl)
	case 3, 4:
		h.remove(old)
		return
	case 5:
		wl.Annotations = pick(h, "gate", nil, map[string]string{apis.AdmissionGatedByAnnotation: "example.com/gate"})
	case 6:
		active := h.chance("active", 2)
		wl.Spec.Active = &active
	case 7, 8:
		h.evict(wl)
	case 9, 10, 11:
		h.release(wl)
	case 12:
		wl.Status.RequeueState = &kueue.RequeueState{RequeueAt: &metav1.Time{Time: h.now.Add(time.Duration(h.draw("seconds", 40)) * time.Second)}}
	case 13, 14:
		wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: wl.Spec.PodSets[0].Name, Count: int32(h.draw("reclaimable", 4))}}
	case 15, 16:
		h.changeSpec(wl)
	case 17:
		setCondition(wl, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	case 18:
		h.impose(wl)
	default:
		if wl.OwnerReferences != nil && h.chance("jobset is gone", 2) {
			delete(h.twin.plans, ownerOf(wl))
			h.tell(admission.PlanGone{UID: ownerOf(wl)})
			return
		}
		wl.DeletionTimestamp = &metav1.Time{Time: h.now}
	}
	h.observe(wl)
}

func (h *history) changeSpec(wl *kueue.Workload) {
	wl.Generation++
	if wl.OwnerReferences == nil && h.chance("moves", 2) {
		wl.Spec.QueueName = kueue.LocalQueueName(pick(h, "queue", "l", "k"))
		return
	}
	priority := int32(h.draw("priority", 2)) - 1
	wl.Spec.Priority = &priority
	if h.twin.holds(wl) == nil && h.chance("resized", 2) {
		wl.Spec.PodSets[0].Count = int32(h.draw("count", 4))
	}
}

// impose lets another client write an admission, which is charged as it is written.
func (h *history) impose(wl *kueue.Workload) {
	a := &kueue.Admission{ClusterQueue: pick[kueue.ClusterQueueReference](h, "imposed on", "q0", "q1", "elsewhere")}
	for i := range wl.Spec.PodSets {
		p := &wl.Spec.PodSets[i]
		count := p.Count
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
			Name: p.Name, Count: &count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: kueue.ResourceFlavorReference(pick(h, "flavor", "x", "y"))},
			ResourceUsage: corev1.ResourceList{gpu: *resource.NewQuantity(int64(count)*int64(h.draw("imposed", 3)), resource.DecimalSI)},
		})
	}
	wl.Status.Admission = a
	setCondition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionTrue)
}
