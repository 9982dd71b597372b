package bench_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/admission"
)

// BenchmarkDue has 1,000 stages that run, one for which all quota that is released is kept, and many that wait since they would delay it, with no time limit, the
// same or each its own. In each operation one stage finishes and one is created that comes first and takes its place.
func BenchmarkDue(b *testing.B) {
	for _, limit := range []int32{0, 3600} {
		for _, shapes := range []int{1, 1000} {
			for _, pending := range []int{100, 10_000} {
				b.Run(fmt.Sprintf("limit=%d/shapes=%d/pending=%d", limit, shapes, pending), func(b *testing.B) {
					passDue(b, pending, shapes, 2*limit, func(int) int32 { return limit })
				})
			}
		}
	}
	for _, pending := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("limit=own/shapes=1/pending=%d", pending), func(b *testing.B) {
			passDue(b, pending, 1, 7200, func(i int) int32 { return int32(3600 + i*7919%pending) })
		})
		b.Run(fmt.Sprintf("limit=falling/shapes=1/pending=%d", pending), func(b *testing.B) {
			passDue(b, pending, 1, 7200, func(i int) int32 { return int32(3600 + pending - i) })
		})
	}
}

func passDue(b *testing.B, pending, shapes int, limitOfRunning int32, limitOf func(int) int32) {
	b.Helper()
	const running = 1000
	c := newClusterOf(b, running, admission.Config{Reservation: admission.Reservation{IsEnabled: true}})
	for range running {
		c.addDue(1, 1, limitOfRunning)
	}
	c.decide()
	c.addDue(0, running, 0)
	for i := range pending {
		c.addDue(0, int64(1+i%shapes), limitOf(i))
	}
	c.decide()
	for b.Loop() {
		c.finishOldest()
		c.decide()
		c.addDue(1, 1, limitOfRunning)
		if n := c.decide(); n != 1 {
			b.Fatalf("%d stages admitted, want the one that comes first", n)
		}
	}
	record(b)
}

// BenchmarkDueQueues has one cohort of full ClusterQueues, each with a due stage and with stages of other sizes that wait since they would delay it. In each
// operation a stage of one ClusterQueue finishes, its due stage takes the place, and the next stage is due.
func BenchmarkDueQueues(b *testing.B) {
	for _, queues := range []int{10, 1000} {
		for _, isEnabled := range []bool{false, true} {
			b.Run(fmt.Sprintf("reserves=%t/queues=%d", isEnabled, queues), func(b *testing.B) {
				f := newFleet(b, shape{queues: queues, perCohort: queues, running: 4}, 0, admission.Config{Reservation: admission.Reservation{IsEnabled: isEnabled}})
				running := make([][]admission.StageKey, queues)
				for i := range queues {
					for n := range 4 {
						running[i] = append(running[i], admission.StageKey{Namespace: "ns", Name: fmt.Sprintf("w%d", 1+4*i+n)})
					}
				}
				for range 2 {
					for i := range queues {
						f.observe(f.workload(i, 1))
					}
				}
				for i := range queues {
					for cpus := range int64(3) {
						f.observe(f.workload(i, 2+cpus))
					}
				}
				f.decide()
				for n := 0; b.Loop(); n++ {
					i := n % queues
					f.gone(running[i][:1])
					f.observe(f.workload(i, 1))
					admitted := f.decide()
					if len(admitted) != 1 {
						b.Fatalf("%d stages admitted, want the due one", len(admitted))
					}
					running[i] = append(running[i][1:], admitted...)
				}
				record(b)
			})
		}
	}
}

// addDue submits a stage that has waited for quota for long when it is first observed.
func (c *cluster) addDue(priority int32, gpus int64, limitSeconds int32) {
	wl := c.submit(fmt.Sprintf("wl-%d", c.names), gpus)
	wl.CreationTimestamp = metav1.NewTime(time.Unix(int64(c.names)-1_000_000_000, 0))
	wl.Spec.Priority = &priority
	if limitSeconds > 0 {
		wl.Spec.MaximumExecutionTimeSeconds = &limitSeconds
	}
	c.observe(wl)
}
