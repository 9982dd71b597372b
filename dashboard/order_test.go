package dashboard_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
)

// TestLineIsThatOfTheEngine shows the same objects to the engine and to a Model, and compares the order of the pending quota Workloads.
func TestLineIsThatOfTheEngine(t *testing.T) {
	config, err := configapi.Load("")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		engine, err := admission.New(admission.ConfigOf(config))
		if err != nil {
			t.Fatal(err)
		}
		m := dashboard.New()
		queue, local := clusterQueue("q", "", "10"), localQueue("team", "lq", "q")
		engine.Apply(admission.NamespaceObserved{Name: "team"})
		engine.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}})
		engine.Apply(admission.ClusterQueueObserved{ClusterQueue: queue})
		engine.Apply(admission.LocalQueueObserved{LocalQueue: local})
		m.Observe(queue)
		m.Observe(local)
		drawn := &drawing{engine: engine, m: m, deleted: map[string]int{}}
		for number := range 5 {
			drawn.submit(number)
		}
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			drawn.step(t)
			want, _ := engine.PendingInClusterQueue("q", admission.Page{Limit: 100})
			page, _ := m.Workloads(dashboard.Viewer{}, "q", dashboard.WorkloadFilter{}, dashboard.Window{Limit: 100})
			var got, expected []string
			for i := range want {
				expected = append(expected, want[i].Stage.Name)
			}
			for i := range page.Items {
				got = append(got, page.Items[i].Name)
				if *page.Items[i].Position != i {
					t.Fatalf("position %d at index %d", *page.Items[i].Position, i)
				}
			}
			if !slices.Equal(got, expected) {
				t.Fatalf("the line is %v, that of the engine %v", got, expected)
			}
			drawn.compareHeld(t)
		}
	})
}

// compareHeld compares what the quota Workloads hold with what the engine charges.
func (d *drawing) compareHeld(t *rapid.T) {
	want, got := map[string]string{}, map[string]string{}
	for _, st := range d.engine.ChargeSnapshot().Stages {
		for _, a := range st.Amounts {
			want[st.Key.Name] = fmt.Sprint(a.Amount)
		}
	}
	page, _ := d.m.Workloads(dashboard.Viewer{}, "q", dashboard.WorkloadFilter{List: dashboard.ListHolding}, dashboard.Window{Limit: 100})
	if view, _ := d.engine.ClusterQueue("q"); page.Total != int(view.Reserving) {
		t.Fatalf("%d quota Workloads hold quota, the engine has %d", page.Total, view.Reserving)
	}
	for i := range page.Items {
		for _, a := range page.Items[i].Held {
			if a.Amount != "0" {
				got[page.Items[i].Name] = a.Amount
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("quota Workloads hold %v, the engine charges %v", got, want)
	}
}

// A drawing makes random changes to up to five JobSets with two stages each.
type drawing struct {
	engine  *admission.Engine
	m       *dashboard.Model
	version int
	// deleted counts how often a quota Workload was deleted: the next one of its name has another UID.
	deleted map[string]int
}

// submit observes the JobSet with a number. The engine does not queue the stages of an unknown JobSet.
func (d *drawing) submit(number int) {
	uid := types.UID(fmt.Sprintf("js-%d", number))
	object := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: string(uid), UID: uid, CreationTimestamp: metav1.NewTime(time.Unix(int64(number%3+1), 0)),
	}}
	d.engine.Apply(admission.PlanObserved{
		Owner: admission.Owner{Kind: "JobSet", Key: types.NamespacedName{Namespace: "team", Name: string(uid)}}, UID: uid,
		Submitted: object.CreationTimestamp.Time, Plan: &stageplan.Plan{Stages: []stageplan.Stage{{Name: "a"}, {Name: "b"}}},
	})
	d.m.Observe(object)
}

func (d *drawing) step(t *rapid.T) {
	d.version++
	js := rapid.IntRange(0, 4).Draw(t, "JobSet")
	uid := types.UID(fmt.Sprintf("js-%d", js))
	at := func(label string) metav1.Time {
		return metav1.NewTime(time.Unix(int64(rapid.IntRange(1, 9).Draw(t, label)), 0))
	}
	stage := rapid.IntRange(0, 1).Draw(t, "stage")
	w := workload("team", fmt.Sprintf("w-%d-%d", js, stage), "lq")
	w.ResourceVersion, w.CreationTimestamp = fmt.Sprint(d.version), at("created")
	w.Spec.Priority = new(int32(rapid.IntRange(0, 2).Draw(t, "priority")))
	w.Labels = map[string]string{apis.StageIndexLabel: fmt.Sprint(stage)}
	isPlain := rapid.IntRange(0, 9).Draw(t, "plain") == 0
	if isPlain {
		w.Name, w.UID = "plain-"+w.Name, "plain-"+w.UID
	} else {
		w.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: string(uid), UID: uid, Controller: new(true)}}
		if rapid.IntRange(0, 4).Draw(t, "growth") == 0 {
			w.Labels[apis.GrowthLabel], w.Name, w.UID = "1", w.Name+"-growth", w.UID+"-growth"
		}
	}
	w.UID += types.UID(fmt.Sprint(d.deleted[w.Name]))
	if gone := rapid.IntRange(0, 9).Draw(t, "gone") == 0; gone && w.Labels[apis.GrowthLabel] != "" {
		d.engine.Apply(admission.WorkloadGone{Key: types.NamespacedName{Namespace: w.Namespace, Name: w.Name}})
		d.m.Forget(w)
		d.deleted[w.Name]++
		return
	}
	evicted := []string{"", kueue.WorkloadEvictedByPreemption, kueue.WorkloadEvictedByPodsReadyTimeout, kueue.WorkloadEvictedByAdmissionCheck}
	if reason := rapid.SampledFrom(evicted).Draw(t, "evicted"); reason != "" {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: at("at")})
	}
	switch rapid.SampledFrom([]string{"pending", "pending", "pending", "gated", "holds", "finished"}).Draw(t, "state") {
	case "gated":
		w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
	case "holds":
		const pods = 4
		w.Spec.PodSets[0].Count = pods
		admit(w, "q", "f", 2*pods)
		w.Status.Admission.PodSetAssignments[0].Count = new(int32(pods))
		if rapid.IntRange(0, 4).Draw(t, "without requests") == 0 {
			w.Status.Admission.PodSetAssignments[0].ResourceUsage = nil
		}
		if count := rapid.Int32Range(-1, pods+1).Draw(t, "reclaimable"); count != 0 {
			w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: count}}
		}
	case "finished":
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue})
	}
	d.engine.Apply(admission.WorkloadObserved{Workload: w.DeepCopy()})
	d.m.Observe(w)
}

const gpu = corev1.ResourceName("nvidia.com/gpu")

func clusterQueue(name, cohort, gpus string) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: kueue.ClusterQueueSpec{
		CohortName: kueue.CohortReference(cohort), NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{gpu},
			Flavors:          []kueue.FlavorQuotas{{Name: "f", Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: resource.MustParse(gpus)}}}},
		}},
	}}
}

func localQueue(namespace, name, clusterQueue string) *kueue.LocalQueue {
	return &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)},
	}
}

func workload(namespace, name, queue string) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(100, 0))},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue), PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{gpu: resource.MustParse("1")}}}},
		}}}}},
	}
}

// admit makes a quota Workload hold quota.
func admit(w *kueue.Workload, clusterQueue, flavor string, gpus int64) {
	w.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(clusterQueue), PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: kueue.ResourceFlavorReference(flavor)},
		ResourceUsage: corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)},
	}}}
	for _, conditionType := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(200, 0))})
	}
}
