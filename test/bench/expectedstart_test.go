package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/forecast"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/simulator"
)

// BenchmarkExpectedStarts predicts the starts for all pending JobSets as the manager does in one round, without its pauses: ClusterQueues are full, 10 in
// each cohort, with 100 pending JobSets each, of which the first 10 get a start. MiB-live is the memory that is in use at once, besides the objects, and ms-cpu the processor time.
func BenchmarkExpectedStarts(b *testing.B) {
	limits := forecast.Limits{Horizon: 7 * 24 * time.Hour, First: 10, Workloads: 10_000, Work: time.Minute}
	for _, pending := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			s := backlogIn(b, pending/100, pending)
			fill(s)
			live, before := uint64(0), heapBytes()
			began := processorTime(b)
			for b.Loop() {
				answered := 0
				durations := &simulator.Durations{PastRuns: simulator.PastRunsOf(s)}
				for _, part := range simulator.Parts(s) {
					answers, err := forecast.Answers(context.Background(), part, durations, limits)
					if err != nil {
						b.Fatal(err)
					}
					for _, a := range answers {
						if isFirst := a.Expected.Position < limits.First; isFirst != (a.Expected.Certainty == jobsetstatus.StartBy) {
							b.Fatalf("%s: %+v", a.JobSet, a.Expected)
						}
					}
					answered += len(answers)
					live = max(live, inUse()-min(inUse(), before))
				}
				if answered != pending {
					b.Fatalf("%d answers", answered)
				}
			}
			b.ReportMetric(float64(live)/(1<<20), "MiB-live")
			b.ReportMetric(float64((processorTime(b)-began).Milliseconds())/float64(b.N), "ms-cpu")
			record(b)
		})
	}
}

// BenchmarkExpectedStartsUnknown does the same for one Cohort in which no JobSet has a limit: no start is known, and the manager explains why. There are
// 20 pending JobSets for each ClusterQueue, of which the first 10 are explained.
func BenchmarkExpectedStartsUnknown(b *testing.B) {
	limits := forecast.Limits{Horizon: 7 * 24 * time.Hour, First: 10, Workloads: 10_000, Work: time.Minute}
	for _, pending := range []int{240, 1000} {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			s := backlogIn(b, pending/20, pending)
			removeLimits(s)
			fill(s)
			for i := range s.ClusterQueues {
				s.ClusterQueues[i].Spec.CohortName = "c0"
				s.Workloads[pending+i].Spec.MaximumExecutionTimeSeconds = nil
			}
			began := processorTime(b)
			for b.Loop() {
				explained := 0
				for _, part := range simulator.Parts(s) {
					answers, err := forecast.Answers(context.Background(), part, &simulator.Durations{}, limits)
					if err != nil {
						b.Fatal(err)
					}
					for _, a := range answers {
						if a.Expected.Certainty == jobsetstatus.StartUnknown {
							explained++
						}
					}
				}
				if explained != pending/2 {
					b.Fatalf("%d are explained", explained)
				}
			}
			b.ReportMetric(float64((processorTime(b)-began).Milliseconds())/float64(b.N), "ms-cpu")
			record(b)
		})
	}
}

// processorTime returns the processor time that the benchmarks have taken so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// inUse returns the bytes of the heap that are in use, with those that no collection has freed yet.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkExplainLive answers from the engine of a manager why one of the pending quota Workloads waits, and where, as the visibility API does for
// tranche explain. The ClusterQueues are full, 10 in each cohort, with 100 pending quota Workloads each.
func BenchmarkExplainLive(b *testing.B) {
	for _, pending := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			queues := pending / 100
			f := newFleet(b, shape{queues: queues, perCohort: 10, running: 10}, 0, admission.Config{})
			var keys []admission.StageKey
			for i := range pending {
				w := f.workload(i%queues, 2)
				f.observe(w)
				keys = append(keys, admission.StageKey{Namespace: w.Namespace, Name: w.Name})
			}
			f.decide()
			longest := time.Duration(0)
			for i := 0; b.Loop(); i++ {
				key := keys[(i*7919+pending-1)%pending]
				began := time.Now()
				f.engine.Advance(time.Unix(1, 0))
				p, isPending := f.engine.PendingStage(key)
				x, _ := f.engine.Explanation(key)
				text, err := json.Marshal(x)
				longest = max(longest, time.Since(began))
				if err != nil || !isPending || p.InClusterQueue >= 100 || len(x.Alternatives) == 0 {
					b.Fatalf("%+v, %s, %v", p, text, err)
				}
			}
			if longest > time.Second {
				b.Errorf("an answer took %s, at most 1s is promised", longest)
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
			record(b)
		})
	}
}
