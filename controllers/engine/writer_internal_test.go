package engine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// An admission must not be written to a quota Workload whose number of pods has changed since the decision.
func TestAsksFor(t *testing.T) {
	const given = 4
	cases := map[string]struct {
		asked, reclaimable int32
		least              *int32
		want               bool
	}{
		"what was decided on":             {asked: 4, want: true},
		"more":                            {asked: 8},
		"fewer":                           {asked: 3},
		"some were reclaimable":           {asked: 6, reclaimable: 2, want: true},
		"more than are reclaimable":       {asked: 8, reclaimable: 2},
		"some have become so since":       {asked: 4, reclaimable: 2, want: true},
		"it takes fewer than it asks for": {asked: 8, least: new(int32(2)), want: true},
		"but not that few":                {asked: 8, least: new(int32(5))},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			workload := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: c.asked, MinCount: c.least}}}}
			workload.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: c.reclaimable}}
			admission := &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(given))}}}
			if got := asksFor(workload, admission); got != c.want {
				t.Errorf("asksFor = %t, want %t", got, c.want)
			}
		})
	}
}

// preempted returns a writer whose engine has admitted a quota Workload, and then preempts it, with both decisions.
func preempted(t *testing.T) (w *writer, admit, evict admission.Decision) {
	t.Helper()
	engine, err := admission.New(admission.Config{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	_, urgent := contenders(engine)
	first := engine.Decide(now)
	engine.Apply(admission.WorkloadObserved{Workload: urgent})
	second := engine.Decide(now)
	if len(first) != 1 || len(second) == 0 {
		t.Fatalf("decided %v and then %v, want an admission and an eviction", first, second)
	}
	config := Config{Engine: engine}
	return newWriter(config, &Runner{config: config, wake: make(chan struct{}, 1)}), first[0], second[0]
}

// contenders lets an engine observe a ClusterQueue q that preempts within, and the quota Workload n/w that it has quota for. It returns that, and n/urgent,
// which would preempt it and is not observed yet.
func contenders(engine *admission.Engine) (workload, urgent *kueue.Workload) {
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q", UID: "q", ResourceVersion: "1"}}
	queue.Spec.NamespaceSelector = &metav1.LabelSelector{}
	queue.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu"},
		Flavors:          []kueue.FlavorQuotas{{Name: "f", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("1")}}}},
	}}
	queue.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	workload = &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "w", UID: "w", ResourceVersion: "2", Generation: 1}}
	workload.Spec.QueueName = "l"
	workload.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
	}}}}}}
	for _, event := range []admission.Event{
		admission.NamespaceObserved{Name: "n"},
		admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "f", ResourceVersion: "1"}}},
		admission.ClusterQueueObserved{ClusterQueue: queue},
		admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "l", UID: "l", ResourceVersion: "1"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"},
		}},
		admission.WorkloadObserved{Workload: workload.DeepCopy()},
	} {
		engine.Apply(event)
	}
	urgent = workload.DeepCopy()
	urgent.Name, urgent.UID, urgent.Spec.Priority = "urgent", "urgent", new(int32(1))
	return workload, urgent
}

// An eviction cancels an admission that has not been written yet: neither is written.
func TestEvictionBeforeTheAdmissionIsWritten(t *testing.T) {
	w, admit, evict := preempted(t)
	w.add(admit)
	w.add(evict)
	if len(w.orders) > 0 {
		t.Errorf("%v are left to be written, want nothing", w.orders)
	}
	w.runner.drain()
	engine := w.config.Engine
	for _, id := range []admission.DecisionID{admit.(admission.Admit).ID, evict.(admission.Evict).ID} {
		if engine.InFlight(id) {
			t.Errorf("decision %d is not settled", id)
		}
	}
	next := engine.Decide(time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC))
	if len(next) == 0 || next[0].String() != "admit n/urgent" {
		t.Errorf("decided %v, want that the preemptor is admitted at once", next)
	}
}

// An eviction waits for an admission that is being written.
func TestEvictionWhileTheAdmissionIsWritten(t *testing.T) {
	w, admit, evict := preempted(t)
	w.add(admit)
	clear(w.orders) // as a worker does when it begins to write
	w.add(evict)
	if orders := w.orders[evict.(admission.Evict).Stage]; len(orders) != 1 || orders[0].String() != evict.String() {
		t.Errorf("%v are to be written, want the eviction", orders)
	}
}

// An admission takes back a refusal that is not written yet.
func TestAdmissionReplacesTheRefusal(t *testing.T) {
	w, admit, _ := preempted(t)
	w.add(admission.Refuse{Stage: admit.(admission.Admit).Stage})
	w.add(admit)
	if len(w.refusals.refused) > 0 {
		t.Error("the refusal of an admitted stage is left to be written")
	}
}
