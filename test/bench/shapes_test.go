package bench_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// A shape is how large a cluster is.
type shape struct {
	queues, perCohort int
	// running in each queue, whose nominal quota they fill up to what waits. Each has so many CPUs, or 1.
	running int
	cpus    int64
	// preemption is that of every queue.
	preemption *kueue.ClusterQueuePreemption
}

// A fleet is an engine with many ClusterQueues.
type fleet struct {
	b       *testing.B
	engine  *admission.Engine
	version int
	made    int
	waiting map[admission.StageKey]*kueue.Workload
}

func newFleet(b *testing.B, s shape, spare int64, config admission.Config) *fleet {
	b.Helper()
	engine, err := admission.New(config)
	if err != nil {
		b.Fatal(err)
	}
	f := &fleet{b: b, engine: engine, waiting: map[admission.StageKey]*kueue.Workload{}}
	engine.Apply(admission.NamespaceObserved{Name: "ns"})
	engine.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}}})
	for i := range s.queues {
		f.addQueue(i, s, int64(s.running)*max(s.cpus, 1)+spare)
	}
	for i := range s.queues {
		for range s.running {
			f.observe(f.workload(i, max(s.cpus, 1)))
		}
	}
	f.decide()
	return f
}

func (f *fleet) addQueue(i int, s shape, nominal int64) {
	name := fmt.Sprintf("q%d", i)
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	if s.perCohort > 0 {
		q.Spec.CohortName = kueue.CohortReference(fmt.Sprintf("c%d", i/s.perCohort))
	}
	q.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
		Flavors: []kueue.FlavorQuotas{{Name: "default", Resources: []kueue.ResourceQuota{{
			Name: corev1.ResourceCPU, NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI),
		}}}},
	}}
	q.Spec.Preemption = s.preemption
	f.engine.Apply(admission.ClusterQueueObserved{ClusterQueue: q})
	f.engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
	}})
}

func (f *fleet) workload(queue int, cpus int64) *kueue.Workload {
	f.made++
	name := "w" + strconv.Itoa(f.made)
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(int64(f.made), 0)),
		},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName("q" + strconv.Itoa(queue)),
			PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI),
				}},
			}}}}}},
		},
	}
}

func (f *fleet) observe(wl *kueue.Workload) {
	f.version++
	wl.ResourceVersion = strconv.Itoa(f.version)
	f.waiting[admission.StageKey{Namespace: wl.Namespace, Name: wl.Name}] = wl
	f.engine.Apply(admission.WorkloadObserved{Workload: wl})
}

// decide settles all decisions, and returns the admitted stages.
func (f *fleet) decide() []admission.StageKey {
	return f.settle(f.engine.Decide(time.Unix(0, 0)))
}

func (f *fleet) settle(decisions []admission.Decision) []admission.StageKey {
	var admitted []admission.StageKey
	for _, d := range decisions {
		admit, ok := d.(admission.Admit)
		if !ok {
			continue
		}
		wl := f.waiting[admit.Stage]
		wl.Status.Admission = &admit.Admission
		wl.Status.Conditions = []metav1.Condition{
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}, {Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue},
		}
		f.observe(wl)
		delete(f.waiting, admit.Stage)
		f.engine.Settle(admit.ID)
		admitted = append(admitted, admit.Stage)
	}
	return admitted
}

func (f *fleet) gone(keys []admission.StageKey) {
	for _, key := range keys {
		f.engine.Apply(admission.WorkloadGone{Key: key})
	}
}

// admitAll measures how long it takes to decide on stages that all fit, per stage.
func (f *fleet) admitAll(queues, perQueue int) {
	f.b.Helper()
	var admitted int
	var took time.Duration
	for f.b.Loop() {
		f.b.StopTimer()
		for range perQueue {
			for i := range queues {
				f.observe(f.workload(i, 1))
			}
		}
		runtime.GC()
		f.b.StartTimer()
		began := time.Now()
		decisions := f.engine.Decide(time.Unix(0, 0))
		took += time.Since(began)
		f.b.StopTimer()
		keys := f.settle(decisions)
		if len(keys) != queues*perQueue {
			f.b.Fatalf("%d admitted, want %d", len(keys), queues*perQueue)
		}
		admitted += len(keys)
		f.gone(keys)
		f.decide()
		f.b.StartTimer()
	}
	per := took / time.Duration(admitted)
	f.b.ReportMetric(float64(per.Nanoseconds()), "ns/admission")
	note(f.b, per)
}

// BenchmarkFit admits what fits, in clusters of several shapes.
func BenchmarkFit(b *testing.B) {
	for _, bc := range []struct {
		name     string
		shape    shape
		perQueue int
		config   admission.Config
	}{
		{"queues=30/cohorts-of=6", shape{queues: 30, perCohort: 6}, 50, admission.Config{}},
		{"queues=1/running=100", shape{queues: 1, running: 100}, 100, admission.Config{}},
		{"queues=1/running=1000", shape{queues: 1, running: 1000}, 100, admission.Config{}},
		{"queues=1/running=10000", shape{queues: 1, running: 10_000}, 100, admission.Config{}},
		{"queues=1000/cohorts-of=100/running=50", shape{queues: 1000, perCohort: 100, running: 50}, 1, admission.Config{}},
		{"queues=1000/cohorts-of=1000/running=50", shape{queues: 1000, perCohort: 1000, running: 50}, 1, admission.Config{}},
		{"fair/one-cohort/queues=30", shape{queues: 30, perCohort: 30}, 10, admission.Config{FairSharing: true}},
		{"fair/one-cohort/queues=1000", shape{queues: 1000, perCohort: 1000}, 1, admission.Config{FairSharing: true}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			f := newFleet(b, bc.shape, int64(bc.perQueue), bc.config)
			f.admitAll(bc.shape.queues, bc.perQueue)
		})
	}
}

// mostPerPending is how much memory the engine may use for a stage that waits, in bytes, besides the object.
const mostPerPending = 1024

// BenchmarkEnqueue adds a stage to a growing queue in which no stage fits.
func BenchmarkEnqueue(b *testing.B) {
	for _, pending := range []int{1000, 32_000, 1_000_000} {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			f := newFleet(b, shape{queues: 1}, 0, admission.Config{})
			// A cache has the objects in any case.
			cached := make([]*kueue.Workload, pending)
			for i := range cached {
				cached[i] = f.workload(0, 1)
			}
			before := heap()
			for _, wl := range cached {
				f.observe(wl)
				clear(f.waiting)
			}
			f.decide()
			perPending := float64(heap()-before) / float64(pending)
			if perPending > mostPerPending {
				b.Errorf("the engine uses %.0f B for each pending stage, must be at most %d", perPending, mostPerPending)
			}
			runtime.KeepAlive(cached)
			var took time.Duration
			n := 0
			for b.Loop() {
				b.StopTimer()
				// Many at a time, so that starting and stopping the clock does not count.
				batch := make([]*kueue.Workload, 1000)
				for i := range batch {
					batch[i] = f.workload(0, 1)
					f.version++
					batch[i].ResourceVersion = strconv.Itoa(f.version)
				}
				b.StartTimer()
				began := time.Now()
				for _, wl := range batch {
					f.engine.Apply(admission.WorkloadObserved{Workload: wl})
				}
				took += time.Since(began)
				n += len(batch)
			}
			per := took / time.Duration(n)
			b.ReportMetric(float64(per.Nanoseconds()), "ns/enqueue")
			// The loop has forgotten what was reported before it.
			b.ReportMetric(perPending, "B/pending")
			note(b, per)
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkIdleEvent releases a little quota where every pending stage needs more.
func BenchmarkIdleEvent(b *testing.B) {
	for _, pending := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			f := newFleet(b, shape{queues: 10, perCohort: 10, running: 100}, 0, admission.Config{})
			for i := range pending {
				f.observe(f.workload(i%10, 500))
				clear(f.waiting)
			}
			f.decide()
			runs := admission.StageKey{Namespace: "ns", Name: "w1"}
			for b.Loop() {
				f.engine.Apply(admission.WorkloadGone{Key: runs})
				f.engine.Decide(time.Unix(0, 0))
				b.StopTimer()
				f.observe(f.workload(0, 1))
				admitted := f.decide()
				if len(admitted) != 1 {
					b.Fatalf("%d admitted in its place, want 1", len(admitted))
				}
				runs = admitted[0]
				b.StartTimer()
			}
			record(b)
		})
	}
}

// BenchmarkPreempt has a head in each of 1,000 queues that has to preempt 20 of the 100 that run in its own queue, all in one cohort.
func BenchmarkPreempt(b *testing.B) {
	for _, queues := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			s := shape{queues: queues, perCohort: queues, running: 100, preemption: &kueue.ClusterQueuePreemption{
				WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyNever,
			}}
			f := newFleet(b, s, 0, admission.Config{})
			f.preemptAll(queues, 20*queues, 20)
		})
	}
}

// BenchmarkPreemptExcess does the same where the victims hold more than every other head needs: its preemption releases quota for others, so that all
// nominees of the cohort are checked again.
func BenchmarkPreemptExcess(b *testing.B) {
	for _, queues := range []int{10, 100} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			s := shape{queues: queues, perCohort: queues, running: 50, cpus: 2, preemption: &kueue.ClusterQueuePreemption{
				WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyNever,
			}}
			f := newFleet(b, s, 0, admission.Config{})
			f.preemptAll(queues, queues*19/2, 19)
		})
	}
}

// BenchmarkReclaim has queues that reclaim quota that others have borrowed, with and without fair sharing.
func BenchmarkReclaim(b *testing.B) {
	for _, fair := range []bool{false, true} {
		for _, queues := range []int{4, 40, 400} {
			b.Run(fmt.Sprintf("fair=%t/queues=%d", fair, queues), func(b *testing.B) {
				s := shape{queues: queues, perCohort: queues, running: 20, preemption: &kueue.ClusterQueuePreemption{
					WithinClusterQueue: kueue.PreemptionPolicyNever, ReclaimWithinCohort: kueue.PreemptionPolicyAny,
				}}
				f := newFleet(b, s, 0, admission.Config{FairSharing: fair})
				// The second half of the queues also uses the nominal quota of the first half.
				for i := range queues / 2 {
					for k := range 20 {
						f.gone([]admission.StageKey{{Namespace: "ns", Name: "w" + strconv.Itoa(i*20+k+1)}})
						f.observe(f.workload(queues/2+i, 1))
					}
				}
				f.decide()
				f.preemptAll(queues/2, queues/2*10, 10)
			})
		}
	}
}

// preemptAll measures one scheduling cycle in which the first queues each preempt for one head of this many CPUs.
func (f *fleet) preemptAll(queues, victims int, cpus int64) {
	f.b.Helper()
	var took time.Duration
	passes := 0
	for f.b.Loop() {
		f.b.StopTimer()
		var heads []admission.StageKey
		for i := range queues {
			wl := f.workload(i, cpus)
			wl.Spec.Priority = new(int32(1))
			f.observe(wl)
			heads = append(heads, admission.StageKey{Namespace: wl.Namespace, Name: wl.Name})
		}
		runtime.GC()
		f.b.StartTimer()
		began := time.Now()
		decisions := f.engine.Decide(time.Unix(0, 0))
		took += time.Since(began)
		passes++
		f.b.StopTimer()
		evicted := 0
		var ids []admission.DecisionID
		for _, d := range decisions {
			if d, ok := d.(admission.Evict); ok {
				evicted++
				ids = append(ids, d.ID)
			}
		}
		if evicted != victims {
			f.b.Fatalf("%d evicted, want %d", evicted, victims)
		}
		// No eviction is written, so that the next cycle finds the same state.
		f.gone(heads)
		for _, id := range ids {
			f.engine.Settle(id)
		}
		f.engine.Decide(time.Unix(0, 0))
		f.b.StartTimer()
	}
	per := took / time.Duration(passes)
	f.b.ReportMetric(float64(per.Nanoseconds())/1e6, "ms/pass")
	note(f.b, per)
}
