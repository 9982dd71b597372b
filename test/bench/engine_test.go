// Package bench_test measures the engine and holds the results against bounds.yaml.
package bench_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
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
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A bound limits how many times as long as another a benchmark may take.
type bound struct {
	Benchmark string  `json:"benchmark"`
	Than      string  `json:"than"`
	Most      float64 `json:"most"`
}

// slack is for a machine that is busy, or for few runs.
var slack = flag.Float64("slack", 1, "how many times as much as a bound allows a benchmark may take")

// measured has the time of one operation, by benchmark.
var measured = map[string]time.Duration{}

func TestMain(m *testing.M) {
	code := m.Run()
	printGrowth()
	if code == 0 && len(measured) > 0 {
		if err := checkBounds(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// checkBounds returns all bounds that are exceeded.
func checkBounds() error {
	content, err := os.ReadFile("bounds.yaml")
	if err != nil {
		return err
	}
	var file struct {
		Bounds []bound `json:"bounds"`
	}
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		return fmt.Errorf("read bounds.yaml: %w", err)
	}
	var exceeded error
	checked := 0
	for _, b := range file.Bounds {
		one, other := measured[b.Benchmark], measured[b.Than]
		if one == 0 || other == 0 {
			continue
		}
		checked++
		if ratio, most := float64(one)/float64(other), b.Most**slack; ratio > most {
			exceeded = errors.Join(exceeded, fmt.Errorf("%s takes %.3g times as long as %s, may take %.3g times", b.Benchmark, ratio, b.Than, most))
		}
	}
	_, _ = fmt.Fprintf(os.Stdout, "%d bounds checked\n", checked)
	return exceeded
}

// record notes how long an operation of a benchmark took.
func record(b *testing.B) {
	b.Helper()
	note(b, b.Elapsed()/time.Duration(b.N))
}

// note keeps the shortest time of an operation: what other processes cost is no property of the code.
func note(b *testing.B, took time.Duration) {
	b.Helper()
	if before, isKnown := measured[b.Name()]; !isKnown || took < before {
		measured[b.Name()] = took
	}
}

// A cluster has one ClusterQueue, whose quota is full.
type cluster struct {
	engine  *admission.Engine
	version int
	names   int
	running []*kueue.Workload
	objects map[admission.StageKey]*kueue.Workload
}

func newCluster(b *testing.B, gpus int64) *cluster {
	b.Helper()
	return newClusterOf(b, gpus, admission.Config{})
}

func newClusterOf(b *testing.B, gpus int64, config admission.Config) *cluster {
	b.Helper()
	engine, err := admission.New(config)
	if err != nil {
		b.Fatal(err)
	}
	c := &cluster{engine: engine, objects: map[admission.StageKey]*kueue.Workload{}}
	engine.Apply(admission.NamespaceObserved{Name: "ns"})
	engine.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "a100"}}})
	engine.Apply(admission.ClusterQueueObserved{ClusterQueue: &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec: kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{"gpu"},
			Flavors: []kueue.FlavorQuotas{{Name: "a100", Resources: []kueue.ResourceQuota{{
				Name: "gpu", NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI),
			}}}},
		}}},
	}})
	engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"},
	}})
	return c
}

func pod(gpus int64) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}},
	}}}}
}

func (c *cluster) submit(name string, gpus int64) *kueue.Workload {
	c.names++
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Generation: 1,
			CreationTimestamp: metav1.NewTime(time.Unix(int64(c.names), 0)),
		},
		Spec: kueue.WorkloadSpec{QueueName: "q", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: pod(gpus)}}},
	}
	return wl
}

func (c *cluster) observe(wl *kueue.Workload) {
	c.version++
	wl.ResourceVersion = strconv.Itoa(c.version)
	c.objects[admission.StageKey{Namespace: wl.Namespace, Name: wl.Name}] = wl
	c.engine.Apply(admission.WorkloadObserved{Workload: wl})
}

func (c *cluster) addLone(gpus int64) { c.observe(c.submit(fmt.Sprintf("wl-%d", c.names), gpus)) }

// decide settles all that is decided and returns how many stages were admitted.
func (c *cluster) decide() int {
	n := 0
	for _, d := range c.engine.Decide(time.Unix(0, 0)) {
		admit, ok := d.(admission.Admit)
		if !ok {
			continue
		}
		wl := c.objects[admit.Stage]
		wl.Status.Admission = &admit.Admission
		wl.Status.Conditions = []metav1.Condition{
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}, {Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue},
		}
		c.observe(wl)
		c.engine.Settle(admit.ID)
		c.running = append(c.running, wl)
		n++
	}
	return n
}

func (c *cluster) finishOldest() {
	wl := c.running[0]
	c.running = c.running[1:]
	delete(c.objects, admission.StageKey{Namespace: wl.Namespace, Name: wl.Name})
	c.engine.Apply(admission.WorkloadGone{Key: admission.StageKey{Namespace: wl.Namespace, Name: wl.Name}})
}

// turnOver measures one stage that finishes, the one that takes its quota, and one that is newly created.
func (c *cluster) turnOver(b *testing.B, sizes int) {
	b.Helper()
	for b.Loop() {
		c.finishOldest()
		c.addLone(int64(1 + c.names%sizes))
		c.decide()
	}
	record(b)
}

// BenchmarkAdmit has 1,000 stages that run and many that wait, all of one demand or of many.
func BenchmarkAdmit(b *testing.B) {
	for _, shapes := range []int{1, 8} {
		for _, pending := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("shapes=%d/pending=%d", shapes, pending), func(b *testing.B) {
				c := newCluster(b, int64(1000*(1+shapes)/2))
				for c.names < 1000+pending {
					c.addLone(int64(1 + c.names%shapes))
				}
				c.decide()
				c.turnOver(b, shapes)
			})
		}
	}
}

// BenchmarkAdmitSafely has JobSets that hold quota for one stage while they may need it for another, and measures one more that
// wants to begin.
func BenchmarkAdmitSafely(b *testing.B) {
	for _, holders := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("holders=%d", holders), func(b *testing.B) {
			c := newCluster(b, int64(holders+9))
			for i := range holders {
				c.addStaged(b, fmt.Sprintf("js-%d", i))
			}
			if n := c.decide(); n != holders {
				b.Fatalf("%d of %d JobSets hold quota", n, holders)
			}
			i := holders
			for b.Loop() {
				name := fmt.Sprintf("js-%d", i)
				i++
				c.addStaged(b, name)
				if c.decide() != 1 {
					b.Fatal("not admitted")
				}
				last := len(c.running) - 1
				c.running[0], c.running[last] = c.running[last], c.running[0]
				c.finishOldest()
				c.engine.Apply(admission.PlanGone{UID: types.UID(name)})
			}
			record(b)
		})
	}
}

// addStaged submits a JobSet that holds 1 GPU and will need 8 more at the same time.
func (c *cluster) addStaged(b *testing.B, name string) {
	b.Helper()
	first, second := jobsetapi.ReplicatedJob{}, jobsetapi.ReplicatedJob{}
	first.Name, first.Replicas, first.Template = "first", 1, batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod(1)}}
	second.Name, second.Replicas, second.Template = "second", 1, batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod(8)}}
	second.DependsOn = []jobset.DependsOn{{Name: "first", Status: jobset.DependencyReady}}
	plan, err := stageplan.New(&jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{first, second}})
	if err != nil {
		b.Fatal(err)
	}
	c.engine.Apply(admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: name}}, UID: types.UID(name), Submitted: time.Unix(int64(c.names), 0), Plan: plan,
	})
	yes := true
	wl := c.submit(name+"-first", 1)
	wl.Labels = map[string]string{apis.StageIndexLabel: "0"}
	wl.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: name, UID: types.UID(name), Controller: &yes}}
	c.observe(wl)
}
