package bench_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/unblock"
	"github.com/tranche-dev/tranche/snapshot"
)

// BenchmarkExplain answers why one of the pending JobSets waits, when it starts and what would let it in, from the directory of a snapshot. Its
// ClusterQueues are full, with 100 pending JobSets each: 10 in each cohort, or all in one cohort, of which they may reclaim quota. Where it does not
// say read, the snapshot is in memory.
func BenchmarkExplain(b *testing.B) {
	for _, pending := range []int{1000, 10_000, 100_000} {
		s := backlogIn(b, pending/100, pending)
		fill(s)
		last := s.Workloads[pending-1]
		files := writeSnapshot(b, s)
		b.Run(fmt.Sprintf("alone/pending=%d", pending), func(b *testing.B) {
			for b.Loop() {
				explain(b, s, last)
			}
			record(b)
		})
		b.Run(fmt.Sprintf("read/pending=%d", pending), func(b *testing.B) {
			for b.Loop() {
				read, err := snapshot.ReadDir(files)
				if err != nil {
					b.Fatal(err)
				}
				explain(b, read, last)
			}
			record(b)
		})
		if pending > 10_000 {
			continue // takes minutes
		}
		b.Run(fmt.Sprintf("one-cohort/pending=%d", pending), func(b *testing.B) {
			join(s)
			for b.Loop() {
				explain(b, s, last)
			}
			record(b)
		})
	}
}

// BenchmarkExplainStages does the same for JobSets of one and of two stages, of 12 kinds in each ClusterQueue of one cohort, as they are read from files: for
// the first, one in the middle and the last of a ClusterQueue.
func BenchmarkExplainStages(b *testing.B) {
	const pending = 1000
	s := backlogIn(b, pending/100, pending)
	addStages(b, s)
	fill(s)
	join(s)
	read, err := snapshot.ReadDir(writeSnapshot(b, s))
	if err != nil {
		b.Fatal(err)
	}
	for _, tc := range []struct {
		place  string
		number int
	}{{"first", pending/100 - 1}, {"middle", pending/2 - 1}, {"last", pending - 1}} {
		i := slices.IndexFunc(read.Workloads, func(w *kueue.Workload) bool { return w.Labels[apis.JobSetLabel] == s.JobSets[tc.number].Name })
		b.Run(fmt.Sprintf("%s/pending=%d", tc.place, pending), func(b *testing.B) {
			for b.Loop() {
				explain(b, read, read.Workloads[i])
			}
			record(b)
		})
	}
}

// BenchmarkExplainLiveStages answers from the engine of a manager why one of these JobSets waits, and where, as BenchmarkExplainLive does for quota Workloads
// of no JobSet.
func BenchmarkExplainLiveStages(b *testing.B) {
	const pending = 1000
	s := backlogIn(b, pending/100, pending)
	addStages(b, s)
	fill(s)
	join(s)
	engine := observed(b, s)
	longest := time.Duration(0)
	for i := 0; b.Loop(); i++ {
		w := s.Workloads[(i*7919+pending-1)%pending]
		key := admission.StageKey{Namespace: w.Namespace, Name: w.Name}
		began := time.Now()
		_, isPending := engine.PendingStage(key)
		x, _ := engine.Explanation(key)
		longest = max(longest, time.Since(began))
		if isGated := w.Annotations[apis.AdmissionGatedByAnnotation] != ""; isPending == isGated || isPending && len(x.Alternatives) == 0 {
			b.Fatalf("%s: %+v", key, x)
		}
	}
	if longest > time.Second {
		b.Errorf("an answer took %s, at most 1s is promised", longest)
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
	record(b)
}

// observed returns an engine that has observed a snapshot, and has decided.
func observed(b *testing.B, s *snapshot.Snapshot) *admission.Engine {
	b.Helper()
	engine, err := admission.New(admission.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for _, o := range s.Namespaces {
		engine.Apply(admission.NamespaceObserved{Name: o.Name, Labels: o.Labels})
	}
	for _, o := range s.ResourceFlavors {
		engine.Apply(admission.FlavorObserved{Flavor: o})
	}
	for _, o := range s.ClusterQueues {
		engine.Apply(admission.ClusterQueueObserved{ClusterQueue: o})
	}
	for _, o := range s.LocalQueues {
		engine.Apply(admission.LocalQueueObserved{LocalQueue: o})
	}
	for _, js := range s.JobSets {
		plan, err := stageplan.New(&js.Spec)
		if err != nil {
			b.Fatal(err)
		}
		owner := admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: js.Namespace, Name: js.Name}}
		engine.Apply(admission.PlanObserved{Owner: owner, UID: js.UID, Submitted: js.CreationTimestamp.Time, Plan: plan})
	}
	for _, w := range s.Workloads {
		engine.Apply(admission.WorkloadObserved{Workload: w})
	}
	engine.Decide(s.TakenAt)
	return engine
}

// addStages adds a stage to two of three JobSets of a snapshot, which begins when the first is ready or has succeeded, and gives those of a ClusterQueue
// different sizes.
func addStages(b *testing.B, s *snapshot.Snapshot) {
	b.Helper()
	first := s.Workloads
	s.Workloads = nil
	for i, js := range s.JobSets {
		kind, pods := i/len(s.ClusterQueues)%12, int32(1+i/len(s.ClusterQueues)%4)
		w := first[i]
		train := &js.Spec.ReplicatedJobs[0]
		train.Template.Spec.Parallelism, train.Template.Spec.Completions, w.Spec.PodSets[0].Count = &pods, &pods, pods
		s.Workloads = append(s.Workloads, w)
		if kind < 4 {
			continue
		}
		evaluate := *train.DeepCopy()
		evaluate.Name, evaluate.DependsOn = "evaluate", []jobset.DependsOn{{Name: train.Name, Status: jobset.DependencyReady}}
		if kind < 8 {
			evaluate.DependsOn[0].Status = jobset.DependencyComplete
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, evaluate)
		plan, err := stageplan.New(&js.Spec)
		if err != nil {
			b.Fatal(err)
		}
		gated := w.DeepCopy()
		for stage, w := range []*kueue.Workload{w, gated} {
			w.Name = jobsetstate.WorkloadName(js, plan, stage, 0)
			w.UID = types.UID(w.Name)
			w.Labels[apis.StageLabel], w.Labels[apis.StageIndexLabel] = plan.Stages[stage].Name, fmt.Sprint(stage)
			w.Spec.PodSets[0].Name = kueue.PodSetReference(js.Spec.ReplicatedJobs[stage].Name)
		}
		gated.Annotations[apis.AdmissionGatedByAnnotation] = apis.StageGate
		s.Workloads = append(s.Workloads, gated)
	}
}

// join puts all ClusterQueues of a snapshot into one cohort.
func join(s *snapshot.Snapshot) {
	for _, q := range s.ClusterQueues {
		q.Spec.CohortName = "all"
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{
			ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyLowerPriority,
		}
	}
}

// fill adds to each ClusterQueue of a snapshot a running quota Workload for all its quota.
func fill(s *snapshot.Snapshot) {
	for i, q := range s.ClusterQueues {
		pods, name, seconds := int32(8), fmt.Sprintf("runs-%04d", i), int32(3600+i)
		admitted := metav1.NewTime(s.TakenAt.Add(-time.Minute))
		w := &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1", CreationTimestamp: admitted},
			Spec: kueue.WorkloadSpec{
				QueueName: kueue.LocalQueueName(q.Name), Priority: new(int32(0)), Active: new(true), MaximumExecutionTimeSeconds: &seconds,
				PodSets: []kueue.PodSet{{Name: "main", Count: pods, Template: pod(1)}},
			},
		}
		assignment := kueue.PodSetAssignment{Name: "main", Count: &pods, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"gpu": "a100"}}
		assignment.ResourceUsage = corev1.ResourceList{"gpu": resource.MustParse("8")}
		w.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(q.Name), PodSetAssignments: []kueue.PodSetAssignment{assignment}}
		for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition, LastTransitionTime: admitted})
		}
		s.Workloads = append(s.Workloads, w)
	}
}

// explain answers all questions about a quota Workload.
func explain(b *testing.B, s *snapshot.Snapshot, w *kueue.Workload) {
	b.Helper()
	key := admission.StageKey{Namespace: w.Namespace, Name: w.Name}
	durations := &simulator.Durations{PastRuns: simulator.PastRunsOf(s)}
	part := simulator.Around(s, key)
	inspection, err := simulator.Inspect(part, key)
	if err != nil {
		b.Fatal(err)
	}
	forecast, err := simulator.ForecastOf(part, durations, s.TakenAt.Add(7*24*time.Hour), key)
	if err != nil {
		b.Fatal(err)
	}
	found, err := unblock.Find(simulator.NewLaboratory(part, durations, key))
	if err != nil {
		b.Fatal(err)
	}
	why, isQueued := inspection.Why(key)
	isPredicted := len(forecast.Starts) == 1 && (forecast.Starts[0].Certainty() != simulator.Unknown || forecast.Interrupted != nil)
	if !isQueued || why.Check != "QuotaFits" || !isPredicted || len(found.Sets) == 0 && found.Why == "" {
		b.Fatalf("%v, %v, %v", why, forecast.Starts, found)
	}
}
