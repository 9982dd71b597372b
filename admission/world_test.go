package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// A world plays all clients and the API server around an Engine. Its objects change only through its methods, and each change is observed at
// once.
type world struct {
	t         tester
	config    admission.Config
	engine    *admission.Engine
	clock     int
	version   int
	workloads map[admission.StageKey]*kueue.Workload
	jobSets   map[string]*fakeJobSet
	refusals  map[admission.StageKey]admission.Refusal
	// evictions are the decided evictions; an evicted stage holds its quota until leave.
	evictions []string
	// evictedFor is the message of the last eviction.
	evictedFor string
	// deadlockEvictions counts the evictions that resolve a deadlock.
	deadlockEvictions int
	queues            map[string]*kueue.ClusterQueue
	cohorts           map[string]*kueue.Cohort
	// flavors are all flavors that a ClusterQueue has ever named.
	flavors map[string]*kueue.ResourceFlavor
	// mayOpen is asked before the gate of a stage is removed, unless it is nil.
	mayOpen func(js *fakeJobSet, stage int) bool
}

type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A fakeJobSet is a JobSet whose Jobs do what the test says.
type fakeJobSet struct {
	name   string
	uid    types.UID
	spec   *jobsetapi.JobSetSpec
	plan   *stageplan.Plan
	states map[string]stageplan.Status
	// policy is the policy that the JobSet asks for, and attempt how often it was restarted.
	policy    string
	attempt   int
	submitted time.Time
}

func newWorld(t tester, config admission.Config) *world {
	t.Helper()
	w := &world{
		t: t, config: config, workloads: map[admission.StageKey]*kueue.Workload{}, jobSets: map[string]*fakeJobSet{},
		refusals: map[admission.StageKey]admission.Refusal{},
		queues:   map[string]*kueue.ClusterQueue{}, cohorts: map[string]*kueue.Cohort{}, flavors: map[string]*kueue.ResourceFlavor{},
	}
	w.restart()
	return w
}

// restart lets a new Engine observe all objects: those that others refer to come last.
func (w *world) restart() {
	w.t.Helper()
	engine, err := admission.New(w.config)
	if err != nil {
		w.t.Fatalf("New: %v", err)
	}
	w.engine = engine
	engine.Apply(admission.NamespaceObserved{Name: "ns", Labels: map[string]string{"team": "a"}})
	for _, name := range slices.Sorted(maps.Keys(w.jobSets)) {
		w.putPlan(w.jobSets[name])
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareNames) {
		engine.Apply(admission.WorkloadObserved{Workload: w.workloads[key].DeepCopy()})
	}
	for _, name := range slices.Sorted(maps.Keys(w.cohorts)) {
		engine.Apply(admission.CohortObserved{Cohort: w.cohorts[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(w.queues)) {
		engine.Apply(admission.ClusterQueueObserved{ClusterQueue: w.queues[name]})
		w.putLocalQueue(name)
	}
	for _, name := range slices.Sorted(maps.Keys(w.flavors)) {
		engine.Apply(admission.FlavorObserved{Flavor: w.flavors[name]})
	}
}

// quotas are written like "a100: gpu=8 cpu=4; h100: gpu=2 cpu=0": one resource group.
func (w *world) queue(name, quotas string, change ...func(*kueue.ClusterQueue)) {
	w.t.Helper()
	group := kueue.ResourceGroup{}
	for i, part := range strings.Split(quotas, ";") {
		flavorName, list, _ := strings.Cut(strings.TrimSpace(part), ":")
		f := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavorName)}
		requests := amounts(list)
		for _, r := range slices.Sorted(maps.Keys(requests)) {
			f.Resources = append(f.Resources, kueue.ResourceQuota{Name: r, NominalQuota: requests[r]})
			if i == 0 {
				group.CoveredResources = append(group.CoveredResources, r)
			}
		}
		group.Flavors = append(group.Flavors, f)
		w.flavors[flavorName] = newFlavor(flavorName)
		w.engine.Apply(admission.FlavorObserved{Flavor: w.flavors[flavorName]})
	}
	q := &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("cq-" + name)},
		Spec:       kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{group}, NamespaceSelector: &metav1.LabelSelector{}},
	}
	for _, f := range change {
		f(q)
	}
	w.putQueue(q)
	w.putLocalQueue(name)
}

// putQueue lets the Engine observe a ClusterQueue.
func (w *world) putQueue(q *kueue.ClusterQueue) {
	w.queues[q.Name] = q
	w.engine.Apply(admission.ClusterQueueObserved{ClusterQueue: q})
}

// putLocalQueue lets the Engine observe a LocalQueue of the ClusterQueue of the same name.
func (w *world) putLocalQueue(name string) {
	w.engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("lq-" + name)},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
	}})
}

func newFlavor(name string) *kueue.ResourceFlavor {
	return &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("flavor-" + name)},
		Spec:       kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"flavor": name}},
	}
}

// amounts parses "gpu=8 cpu=500m".
func amounts(list string) corev1.ResourceList {
	requests := corev1.ResourceList{}
	for field := range strings.FieldsSeq(list) {
		name, amount, _ := strings.Cut(field, "=")
		if name == "gpu" {
			name = string(gpu)
		}
		requests[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return requests
}

func template(requests string, change ...func(*corev1.PodSpec)) corev1.PodTemplateSpec {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: amounts(requests)}}}}
	for _, f := range change {
		f(&spec)
	}
	return corev1.PodTemplateSpec{Spec: spec}
}

// A job is a ReplicatedJob: its name, its requests, and its dependency, as in "ps Ready".
type job struct {
	name, requests string
	after          []string
	change         func(*corev1.PodSpec)
	// replicas is 1 unless it is set.
	replicas int32
}

// submit creates a JobSet and the quota Workloads of its stages.
func (w *world) submit(queue, name string, jobs ...job) {
	w.t.Helper()
	spec := &jobsetapi.JobSetSpec{}
	for _, j := range jobs {
		r := jobsetapi.ReplicatedJob{}
		r.Name, r.Replicas = j.name, max(1, j.replicas)
		pod := template(j.requests)
		if j.change != nil {
			j.change(&pod.Spec)
		}
		r.Template = batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod}}
		for _, after := range j.after {
			on, status, _ := strings.Cut(after, " ")
			r.DependsOn = append(r.DependsOn, jobset.DependsOn{Name: on, Status: jobset.DependsOnStatus(status)})
		}
		spec.ReplicatedJobs = append(spec.ReplicatedJobs, r)
	}
	plan, err := stageplan.New(spec)
	if err != nil {
		w.t.Fatalf("plan of %s: %v", name, err)
	}
	w.clock++
	js := &fakeJobSet{name: name, uid: types.UID("js-" + name), spec: spec, plan: plan, states: map[string]stageplan.Status{}, submitted: w.now()}
	w.jobSets[name] = js
	w.putPlan(js)
	for i := range plan.Stages {
		w.createStage(queue, js, i)
	}
	w.open(js)
}

// putPlan lets the Engine observe the plan of a JobSet.
func (w *world) putPlan(js *fakeJobSet) {
	w.engine.Apply(admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: js.name}}, UID: js.uid, Submitted: js.submitted, StageAdmission: js.policy, Plan: js.plan,
	})
}

func (w *world) now() time.Time { return start().Add(time.Duration(w.clock) * time.Second) }

func (w *world) createStage(queue string, js *fakeJobSet, index int) {
	yes := true
	stage := &js.plan.Stages[index]
	wl := newWorkload(js.name+"-"+stage.Name, queue)
	wl.Labels = map[string]string{apis.StageIndexLabel: strconv.Itoa(index)}
	wl.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
	wl.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: js.name, UID: js.uid, Controller: &yes}}
	wl.CreationTimestamp = metav1.NewTime(w.now())
	for i := range stage.PodSets {
		wl.Spec.PodSets = append(wl.Spec.PodSets, kueue.PodSet{
			Name: kueue.PodSetReference(stage.PodSets[i].Name), Count: stage.PodSets[i].Count, Template: *stage.PodSets[i].Template,
		})
	}
	w.put(wl)
}

func newWorkload(name, queue string) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("wl-" + name)},
		Spec:       kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue)},
	}
}

// lone creates a quota Workload that belongs to no JobSet.
func (w *world) lone(queue, name, requests string, change ...func(*kueue.Workload)) {
	w.clock++
	wl := newWorkload(name, queue)
	wl.CreationTimestamp = metav1.NewTime(w.now())
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: template(requests)}}
	for _, f := range change {
		f(wl)
	}
	w.put(wl)
}

func (w *world) put(wl *kueue.Workload) {
	w.version++
	wl.ResourceVersion = strconv.Itoa(w.version)
	w.workloads[keyOf(wl.Name)] = wl
	w.engine.Apply(admission.WorkloadObserved{Workload: wl.DeepCopy()})
}

func (w *world) remove(name string) {
	delete(w.workloads, keyOf(name))
	w.engine.Apply(admission.WorkloadGone{Key: keyOf(name)})
}

func keyOf(name string) admission.StageKey {
	return admission.StageKey{Namespace: "ns", Name: name}
}

// change edits a quota Workload.
func (w *world) change(name string, f func(*kueue.Workload)) {
	w.t.Helper()
	wl := w.workloads[keyOf(name)]
	if wl == nil {
		w.t.Fatalf("no quota Workload %s", name)
	}
	f(wl)
	w.put(wl)
}

func setCondition(wl *kueue.Workload, conditionType string, status metav1.ConditionStatus) {
	wl.Status.Conditions = slices.DeleteFunc(wl.Status.Conditions, func(c metav1.Condition) bool { return c.Type == conditionType })
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: conditionType, Status: status})
}

func reserve(wl *kueue.Workload, a *kueue.Admission) {
	wl.Status.Admission = a
	setCondition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionTrue)
	setCondition(wl, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionFalse)
	setCondition(wl, apis.PreemptionPendingCondition, metav1.ConditionFalse)
}

// date sets all times of a quota Workload to now.
func (w *world) date(wl *kueue.Workload) {
	for i := range wl.Status.Conditions {
		wl.Status.Conditions[i].LastTransitionTime = metav1.NewTime(w.now())
	}
}

func finish(wl *kueue.Workload) { setCondition(wl, kueue.WorkloadFinished, metav1.ConditionTrue) }

// decide lets the engine decide, writes the decisions, and returns the names of the stages that it has admitted now.
func (w *world) decide() []string {
	w.t.Helper()
	admitted := []string{}
	for _, d := range w.engine.Decide(w.now()) {
		switch d := d.(type) {
		case admission.Admit:
			w.change(d.Stage.Name, func(wl *kueue.Workload) {
				reserve(wl, &d.Admission)
				w.date(wl)
			})
			w.engine.Settle(d.ID)
			admitted = append(admitted, d.Stage.Name)
			delete(w.refusals, d.Stage)
		case admission.Evict:
			w.change(d.Stage.Name, func(wl *kueue.Workload) { setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue) })
			w.engine.Settle(d.ID)
			w.evictions = append(w.evictions, d.String())
			w.evictedFor = d.Message
			if d.ResolvesDeadlock {
				w.deadlockEvictions++
			}
		case admission.Notice:
			w.writeNotice(d)
			w.engine.Settle(d.ID)
		case admission.Refuse:
			w.refusals[d.Stage] = d.Refusal
		}
	}
	return admitted
}

// reach lets a ReplicatedJob become ready or succeed.
func (w *world) reach(jobSet, name string, status stageplan.Status) {
	js := w.jobSets[jobSet]
	js.states[name] = status
	w.open(js)
	for i := range js.plan.Stages {
		stage := &js.plan.Stages[i]
		done := !slices.ContainsFunc(stage.ReplicatedJobs, func(job string) bool { return js.states[job] != stageplan.Succeeded })
		switch {
		case !slices.Contains(stage.ReplicatedJobs, name):
		case done:
			w.change(js.workload(i), finish)
		case status == stageplan.Succeeded:
			w.change(js.workload(i), func(wl *kueue.Workload) { reclaim(wl, name) })
		}
	}
}

// reclaim marks the pods of a ReplicatedJob that has succeeded while its stage still runs as reclaimable.
func reclaim(wl *kueue.Workload, name string) {
	for _, p := range wl.Spec.PodSets {
		if string(p.Name) == name {
			// The list is a map by name: some of the pods may be reclaimable already.
			wl.Status.ReclaimablePods = slices.DeleteFunc(wl.Status.ReclaimablePods, func(r kueue.ReclaimablePod) bool { return r.Name == p.Name })
			wl.Status.ReclaimablePods = append(wl.Status.ReclaimablePods, kueue.ReclaimablePod{Name: p.Name, Count: p.Count})
		}
	}
}

func (js *fakeJobSet) workload(i int) string { return js.name + "-" + js.plan.Stages[i].Name }

// open removes the gates of the stages whose conditions have been met.
func (w *world) open(js *fakeJobSet) {
	for i := range js.plan.Stages {
		wl := w.workloads[keyOf(js.workload(i))]
		if wl.Annotations[apis.AdmissionGatedByAnnotation] != "" && js.isOpen(i) && (w.mayOpen == nil || w.mayOpen(js, i)) {
			w.change(wl.Name, func(wl *kueue.Workload) { delete(wl.Annotations, apis.AdmissionGatedByAnnotation) })
		}
	}
}

func (js *fakeJobSet) isOpen(i int) bool {
	for _, c := range js.plan.Stages[i].After {
		for _, target := range c.Targets {
			state := js.states[target]
			if state == "" || c.Status == stageplan.Succeeded && state != stageplan.Succeeded {
				return false
			}
		}
	}
	return true
}

func (w *world) used(queue string) string {
	view, ok := w.engine.ClusterQueue(queue)
	if !ok {
		return "no such queue"
	}
	var parts []string
	for _, f := range view.FlavorsHeld {
		for _, r := range f.Resources {
			parts = append(parts, fmt.Sprintf("%s/%s=%s", f.Name, r.Name, r.Total.String()))
		}
	}
	return strings.Join(parts, " ")
}

func (w *world) wantAdmitted(want ...string) {
	w.t.Helper()
	if got := w.decide(); !slices.Equal(got, want) {
		w.t.Fatalf("admitted %v, want %v; refusals: %v", got, want, w.refusals)
	}
}

func (w *world) wantRefusal(name, check, reason, part string) {
	w.t.Helper()
	r := w.refusals[keyOf(name)]
	if r.Check != check || r.Reason != reason || !strings.Contains(r.Message, part) {
		w.t.Fatalf("%s is refused by %q with reason %q: %q; want %q, %q, %q", name, r.Check, r.Reason, r.Message, check, reason, part)
	}
}

func compareNames(a, b admission.StageKey) int { return strings.Compare(a.Name, b.Name) }
