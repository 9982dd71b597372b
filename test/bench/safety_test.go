package bench_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
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

// A yard has one cohort of ClusterQueues with three flavors, in which JobSets hold quota of their first stages, and need more for a second
// and a third.
type yard struct {
	b      *testing.B
	engine *admission.Engine
	queues int
	// policy is the annotation stage-admission of the JobSets.
	policy  string
	version int
	made    int
	objects map[admission.StageKey]*kueue.Workload
	// began are the JobSets whose first stage is admitted, in this order.
	began []int
}

func newYard(b *testing.B, queues int, gpus int64, strategy kueue.QueueingStrategy, config admission.Config) *yard {
	b.Helper()
	engine, err := admission.New(config)
	if err != nil {
		b.Fatal(err)
	}
	y := &yard{b: b, engine: engine, queues: queues, objects: map[admission.StageKey]*kueue.Workload{}}
	engine.Apply(admission.NamespaceObserved{Name: "ns"})
	flavors := []string{"a100", "h100", "v5e"}
	for _, f := range flavors {
		engine.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: f}}})
	}
	for i := range queues {
		name := "q" + strconv.Itoa(i)
		group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu", "gpu"}}
		for _, f := range flavors {
			group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(f), Resources: []kueue.ResourceQuota{
				{Name: "cpu", NominalQuota: *resource.NewQuantity(1000, resource.DecimalSI)},
				{Name: "gpu", NominalQuota: *resource.NewQuantity(gpus/int64(queues*len(flavors)), resource.DecimalSI)},
			}})
		}
		q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		q.Spec = kueue.ClusterQueueSpec{
			CohortName: "c", NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{group}, QueueingStrategy: strategy,
		}
		engine.Apply(admission.ClusterQueueObserved{ClusterQueue: q})
		engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
		}})
	}
	return y
}

// submit creates a JobSet whose first stage is open. It holds 1 to 4 GPUs, and will need up to 16 more.
func (y *yard) submit() {
	y.b.Helper()
	i := y.made
	y.made++
	name, uid := fmt.Sprintf("js-%d", i), types.UID(fmt.Sprintf("js-%d", i))
	sizes := []int64{int64(1 + i%4), int64(2 + i*7%9), int64(1 + i*5%6)}
	spec := &jobsetapi.JobSetSpec{}
	for k, stage := range []string{"data", "train", "eval"} {
		r := jobsetapi.ReplicatedJob{}
		r.Name, r.Replicas, r.Template = stage, 1, batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod(sizes[k])}}
		if k > 0 {
			r.DependsOn = []jobset.DependsOn{{Name: spec.ReplicatedJobs[k-1].Name, Status: jobset.DependencyReady}}
		}
		spec.ReplicatedJobs = append(spec.ReplicatedJobs, r)
	}
	plan, err := stageplan.New(spec)
	if err != nil {
		y.b.Fatal(err)
	}
	y.engine.Apply(admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: name}}, UID: uid, Submitted: time.Unix(int64(i), 0), Plan: plan, StageAdmission: y.policy,
	})
	for k := range plan.Stages {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("%s-%d", name, k), UID: types.UID(fmt.Sprintf("%s-%d", name, k)), Generation: 1,
			CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0)),
			Labels:            map[string]string{apis.StageIndexLabel: strconv.Itoa(k)},
			OwnerReferences:   []metav1.OwnerReference{{Kind: "JobSet", Name: name, UID: uid, Controller: new(true)}},
		}}
		if k > 0 {
			wl.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
		}
		wl.Spec.QueueName = kueue.LocalQueueName("q" + strconv.Itoa(i%y.queues))
		wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: pod(sizes[k])}}
		y.observe(wl)
	}
}

func (y *yard) observe(wl *kueue.Workload) {
	y.version++
	wl.ResourceVersion = strconv.Itoa(y.version)
	y.objects[admission.StageKey{Namespace: wl.Namespace, Name: wl.Name}] = wl
	y.engine.Apply(admission.WorkloadObserved{Workload: wl})
}

// decide writes what is decided, and returns how much that was and how long it took to decide.
func (y *yard) decide() (admitted, refused int, took time.Duration) {
	began := time.Now()
	decisions := y.engine.Decide(time.Unix(0, 0))
	took = time.Since(began)
	for _, d := range decisions {
		switch d := d.(type) {
		case admission.Admit:
			wl := y.objects[d.Stage]
			wl.Status.Admission = &d.Admission
			wl.Status.Conditions = []metav1.Condition{
				{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}, {Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue},
			}
			y.observe(wl)
			y.engine.Settle(d.ID)
			admitted++
			if wl.Labels[apis.StageIndexLabel] == "0" {
				n, err := strconv.Atoi(d.Stage.Name[len("js-") : len(d.Stage.Name)-2])
				if err != nil {
					y.b.Fatal(err)
				}
				y.began = append(y.began, n)
			}
		case admission.Refuse:
			refused++
		case admission.Evict, admission.Notice:
			y.b.Fatalf("%s", d)
		}
	}
	return admitted, refused, took
}

// open opens a later stage of a JobSet.
func (y *yard) open(i, stage int) {
	wl := y.objects[admission.StageKey{Namespace: "ns", Name: fmt.Sprintf("js-%d-%d", i, stage)}]
	if wl.Annotations != nil {
		wl.Annotations = nil
		y.observe(wl)
	}
}

// end removes a JobSet and releases its quota.
func (y *yard) end(i int) {
	for stage := range 3 {
		key := admission.StageKey{Namespace: "ns", Name: fmt.Sprintf("js-%d-%d", i, stage)}
		delete(y.objects, key)
		y.engine.Apply(admission.WorkloadGone{Key: key})
	}
	y.engine.Apply(admission.PlanGone{UID: types.UID(fmt.Sprintf("js-%d", i))})
}

// BenchmarkStagedCohort measures one cohort of 20 ClusterQueues with three flavors, in which many JobSets hold quota for their first
// stages: in each step the oldest ends, another opens its second stage, another its third, and a new one is created. Where quota is ample,
// every stage that asks is admitted; where it is scarce, many ask at each step, and most are refused. Under StrictFIFO those that are
// refused block others, and with policy Reserve the later stages of each JobSet have a peak reservation. With co-start all stages of a JobSet
// are admitted only if there is quota for all of them, and with reservations the first of each queue keeps what is released.
func BenchmarkStagedCohort(b *testing.B) {
	coStart := admission.Config{Accelerators: []corev1.ResourceName{"gpu"}, CoStart: admission.CoStart{IsEnabled: true, ReserveFor: 5 * time.Minute}}
	for _, bc := range []struct {
		name string
		// gpus for each JobSet that holds quota.
		gpus     int64
		strategy kueue.QueueingStrategy
		policy   string
		config   admission.Config
	}{
		{"ample", 18, kueue.BestEffortFIFO, "", admission.Config{}},
		{"ample-costart", 18, kueue.BestEffortFIFO, "", coStart},
		{"scarce", 4, kueue.BestEffortFIFO, "", admission.Config{}},
		{"scarce-costart", 4, kueue.BestEffortFIFO, "", coStart},
		{"scarce-due", 4, kueue.BestEffortFIFO, "", admission.Config{Reservation: admission.Reservation{IsEnabled: true}}},
		{"strict", 4, kueue.StrictFIFO, "", admission.Config{}},
		{"strict-costart", 4, kueue.StrictFIFO, "", coStart},
		{"reserve", 4, kueue.BestEffortFIFO, "Reserve", admission.Config{}},
	} {
		for _, holders := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/holders=%d", bc.name, holders), func(b *testing.B) {
				y := newYard(b, 20, max(bc.gpus*int64(holders), 60*20*3/10), bc.strategy, bc.config)
				y.policy = bc.policy
				for range holders {
					y.submit()
				}
				y.decide()
				y.live()
			})
		}
	}
}

func (y *yard) live() {
	y.b.Helper()
	steps, answers := 0, 0
	var took time.Duration
	runtime.GC()
	for y.b.Loop() {
		y.b.StopTimer()
		if len(y.began) == 0 {
			y.b.Fatal("no stage runs")
		}
		oldest := y.began[0]
		y.began = y.began[1:]
		y.end(oldest)
		if n := len(y.began); n > 2 {
			y.open(y.began[steps*7%n], 1)
			y.open(y.began[steps*3%n], 2)
		}
		y.submit()
		y.b.StartTimer()
		admitted, refused, decided := y.decide()
		took += decided
		answers += admitted + refused
		steps++
	}
	per := took / time.Duration(max(answers, 1))
	y.b.ReportMetric(float64(per.Nanoseconds())/1e3, "µs/answer")
	y.b.ReportMetric(float64(answers)/float64(steps), "answers/step")
	y.b.ReportMetric(float64(len(y.began)), "holders")
	note(y.b, per)
}
