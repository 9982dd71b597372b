package bench_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
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
	study, err := simulator.NewStudy(s, durations, key)
	if err != nil {
		b.Fatal(err)
	}
	forecast, err := study.Forecast(s.TakenAt.Add(7 * 24 * time.Hour))
	if err != nil {
		b.Fatal(err)
	}
	found, err := unblock.Find(study.Laboratory(key))
	if err != nil {
		b.Fatal(err)
	}
	why, isQueued := study.Why(key)
	isPredicted := len(forecast.Starts) == 1 && (forecast.Starts[0].Certainty() != simulator.Unknown || forecast.Interrupted != nil)
	if !isQueued || why.Check != "QuotaFits" || !isPredicted || len(found.Sets) == 0 && found.Why == "" {
		b.Fatalf("%v, %v, %v", why, forecast.Starts, found)
	}
}
