package admission

import (
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobset "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// TestNothingIsLeftBehind creates and deletes tenants, each with names of its own, and counts what the Engine still stores about them.
func TestNothingIsLeftBehind(t *testing.T) {
	e, err := New(Config{StageAdmission: Reserve})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e.Apply(FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})
	e.Apply(ClusterQueueObserved{ClusterQueue: queueOf(4)})
	for i := range 50 {
		namespace := fmt.Sprintf("ns%d", i)
		comeAndGo(e, namespace, now)
		now = now.Add(time.Second)
	}
	e.Changed()
	counts := map[string]int{
		"stages": len(e.model.Stages), "jobSets": len(e.model.JobSets), "shapes": len(e.model.Demand.Demands), "timers": e.model.Timers.Len(), "overdue": len(e.model.Overdue),
		"inFlight": len(e.model.InFlight), "namespaces": len(e.model.Namespaces), "localQueues": len(e.model.LocalQueues), "dirty": len(e.model.Schedule.Dirty),
		"claimants": e.model.Bank.Len(), "unreserved peaks": len(e.model.UnreservedPeaks), "peak reservers": len(e.model.ClusterQueue("q").PeakReservers), "preemptors": len(e.model.ClusterQueue("q").Preemptors), "charged": len(e.model.ClusterQueue("q").Charged.All), "line": e.model.ClusterQueue("q").PendingQueue.Len(),
		"co-admission groups": len(e.model.CoAdmissionGroups), "stuck": len(e.model.Stuck), "held": len(e.cycle.Held),
		"line without a queue": e.model.ClusterQueue("").PendingQueue.Len(), "changedLocalQueues": len(e.model.Changes.ChangedLocalQueues),
		"kept": len(e.model.ClusterQueue("q").AdvanceReserved.Usage()), "reserved": len(e.model.ClusterQueue("q").QueueTotals.Reserved.Usage()),
	}
	for name, count := range counts {
		if count > 0 {
			t.Errorf("%d %s are left", count, name)
		}
	}
	for topic, queues := range e.model.ClusterQueue("q").CohortTree.Parked {
		if e.model.ClusterQueue("q").PendingQueue.Sleeps(topic) || len(queues) > 1 {
			t.Errorf("a stage is still parked on topic %d", topic)
		}
	}
}

// TestNoQueueIsLeftBehind lets administrators rename ClusterQueues and Cohorts again and again, also while stages hold quota there.
func TestNoQueueIsLeftBehind(t *testing.T) {
	e, err := New(Config{StageAdmission: Reserve})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e.Apply(NamespaceObserved{Name: "ns"})
	e.Apply(FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})
	for i := range 50 {
		q := queueOf(4)
		q.Name, q.Spec.CohortName = fmt.Sprintf("q%d", i), kueue.CohortReference(fmt.Sprintf("c%d", i))
		e.Apply(ClusterQueueObserved{ClusterQueue: q})
		root := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: string(q.Spec.CohortName)}}
		root.Spec.ParentName = kueue.CohortReference(fmt.Sprintf("root%d", i))
		e.Apply(CohortObserved{Cohort: root})
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: q.Name}}
		lq.Spec.ClusterQueue = kueue.ClusterQueueReference(q.Name)
		e.Apply(LocalQueueObserved{LocalQueue: lq})
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: q.Name, UID: types.UID(q.Name), ResourceVersion: "1"}}
		wl.Spec.QueueName = kueue.LocalQueueName(lq.Name)
		wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: podsOf(1)}}
		e.Apply(WorkloadObserved{Workload: wl})
		if decisions := e.Decide(now); len(decisions) != 1 {
			t.Fatalf("decided %v, want an admission", decisions)
		}
		e.Apply(ClusterQueueGone{Name: q.Name})
		e.Apply(CohortGone{Name: root.Name})
		e.Decide(now)
		if held := e.model.ClusterQueues[q.Name]; held == nil || len(held.Charged.All) != 1 {
			t.Fatalf("ClusterQueue %s is forgotten while a stage holds its quota", q.Name)
		}
		e.Apply(LocalQueueGone{Key: types.NamespacedName{Namespace: "ns", Name: lq.Name}})
		e.Apply(WorkloadGone{Key: StageKey{Namespace: "ns", Name: wl.Name}})
		e.Apply(ClusterQueueObserved{ClusterQueue: queueOf(int64(i + 1))})
		e.Decide(now)
		if len(e.model.ClusterQueues) != 2 || len(e.model.Cohorts.All()) > 0 {
			t.Fatalf("%d ClusterQueues and %d Cohorts are known, want the one and that of those without", len(e.model.ClusterQueues), len(e.model.Cohorts.All()))
		}
	}
	for d := range maps.Values(e.model.Demand.Demands) {
		if len(d.Options) > 1 {
			t.Errorf("a shape knows what %d ClusterQueues offer", len(d.Options))
		}
	}
}

func queueOf(gpus int64) *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	q.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"gpu"},
		Flavors: []kueue.FlavorQuotas{{Name: "a", Resources: []kueue.ResourceQuota{{
			Name: "gpu", NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI),
		}}}},
	}}
	return q
}

// comeAndGo lets a tenant have a JobSet of two stages, and quota Workloads that are admitted, wait, back off, or are to leave.
func comeAndGo(e *Engine, namespace string, now time.Time) {
	e.Apply(NamespaceObserved{Name: namespace})
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "l"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"}}
	e.Apply(LocalQueueObserved{LocalQueue: lq})
	spec := &jobset.JobSetSpec{StartupPolicy: &jobset.StartupPolicy{}}
	spec.StartupPolicy.StartupPolicyOrder = "InOrder"
	for _, name := range []string{"first", "second"} {
		r := jobset.ReplicatedJob{}
		r.Name, r.Replicas = name, 1
		r.Template.Spec.Template = podsOf(1)
		spec.ReplicatedJobs = append(spec.ReplicatedJobs, r)
	}
	plan, err := stageplan.New(spec)
	if err != nil {
		panic(err)
	}
	uid := types.UID(namespace + "-js")
	e.Apply(PlanObserved{Owner: Owner{Kind: JobSetOwner, Key: types.NamespacedName{Namespace: namespace, Name: "js"}}, UID: uid, Submitted: now, Plan: plan})
	yes := true
	names := []string{"js-0", "js-1", "waits", "large", "backs-off", "lost", "nowhere"}
	for i, name := range names {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), ResourceVersion: "1"}}
		wl.Spec.QueueName = "l"
		wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: podsOf(int64(i) + 1)}}
		switch name {
		case "js-0", "js-1":
			wl.Labels = map[string]string{apis.StageIndexLabel: strconv.Itoa(i)}
			wl.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: "js", UID: uid, Controller: &yes}}
			wl.Spec.PodSets[0].Template = podsOf(1)
		case "backs-off":
			wl.Status.RequeueState = &kueue.RequeueState{RequeueAt: &metav1.Time{Time: now.Add(24 * time.Hour)}}
		case "nowhere":
			wl.Spec.QueueName = "nowhere"
		case "waits", "large":
			wl.Labels = map[string]string{apis.AdmitTogetherLabel: namespace}
			wl.Annotations = map[string]string{apis.AdmitTogetherCountAnnotation: "2"}
		}
		for version := range 3 {
			wl.ResourceVersion = strconv.Itoa(version + 1)
			e.Apply(WorkloadObserved{Workload: wl})
		}
	}
	e.Decide(now)
	stop := kueue.HoldAndDrain
	lq.Spec.StopPolicy = &stop
	e.Apply(LocalQueueObserved{LocalQueue: lq})
	for _, name := range names {
		e.Apply(WorkloadGone{Key: StageKey{Namespace: namespace, Name: name}})
	}
	e.Apply(PlanGone{UID: uid})
	e.Apply(LocalQueueGone{Key: types.NamespacedName{Namespace: namespace, Name: "l"}})
	e.Apply(NamespaceGone{Name: namespace})
	e.Decide(now)
	e.Changed()
}

func podsOf(gpus int64) corev1.PodTemplateSpec {
	requests := corev1.ResourceList{"gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}}}
}
