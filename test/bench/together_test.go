package bench_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/tranche-dev/tranche/apis"
)

// addBundle submits stages of so many GPUs each that are admitted together or not at all.
func (c *cluster) addBundle(stages int, gpus int64) {
	id := fmt.Sprintf("bundle-%d", c.names)
	for range stages {
		wl := c.submit(fmt.Sprintf("wl-%d", c.names), gpus)
		wl.Labels = map[string]string{apis.AdmitTogetherLabel: id}
		wl.Annotations = map[string]string{apis.AdmitTogetherCountAnnotation: strconv.Itoa(stages)}
		c.observe(wl)
	}
}

// BenchmarkTogether has stages that wait to be admitted together with others.
func BenchmarkTogether(b *testing.B) {
	const stages = 4
	for _, pending := range []int{100, 10_000} {
		// Pending groups are too large for the released quota, and each operation is that of BenchmarkAdmit: a stage outside of groups
		// finishes, another one takes its quota, and one is newly created.
		b.Run(fmt.Sprintf("passed/pending=%d", pending), func(b *testing.B) {
			c := newCluster(b, 1000)
			for c.names < 1000 {
				c.addLone(1)
			}
			c.decide()
			for c.names < 1000+pending {
				c.addBundle(stages, 100)
			}
			c.addLone(1)
			c.decide()
			c.turnOver(b, 1)
		})
		// All stages of 100 groups run. Each operation ends those of one group, admits the next one, and creates a new one.
		b.Run(fmt.Sprintf("admitted/pending=%d", pending), func(b *testing.B) {
			c := newCluster(b, 100*stages)
			for c.names < 100*stages+pending {
				c.addBundle(stages, 1)
			}
			c.decide()
			for b.Loop() {
				for range stages {
					c.finishOldest()
				}
				c.addBundle(stages, 1)
				if n := c.decide(); n != stages {
					b.Fatalf("%d stages admitted, want %d", n, stages)
				}
			}
			record(b)
		})
	}
}
