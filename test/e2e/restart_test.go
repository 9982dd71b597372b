package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/testenv"
)

func applied(fields map[string]any) runtime.ApplyConfiguration {
	return client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: fields})
}

var _ = Describe("A manager that is killed among 1,000 admissions and preemptions", beginsFirst, func() {
	const (
		workloads = 1000
		atOnce    = 100
		// kills and evictions are how many there are at least before the manager that empties the queues starts.
		kills     = 12
		evictions = 10
	)

	It("exceeds no quota, loses no quota Workload and admits none twice", func(ctx SpecContext) {
		seed := uint64(GinkgoRandomSeed())
		Expect(manager.Stop()).To(Succeed())
		proxy, err := env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { proxy.Stop() })
		DeferCleanup(func(ctx SpecContext) {
			manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
			Expect(err).NotTo(HaveOccurred())
		})
		h := newChurn(ctx, seed)
		running, cancel := context.WithCancel(ctx)
		DeferCleanup(cancel)
		began := time.Now()
		h.begin(running, workloads, atOnce)

		random := rand.New(rand.NewPCG(seed, kills))
		// Where the machine is slow, quota Workloads end before others need their quota, and it takes more kills until there are as many evictions.
		for killed := 0; killed < kills || h.tally().evictions < evictions; killed++ {
			h.killAfter(ctx, proxy, 20+random.IntN(80))
		}
		before := h.tally()
		Expect(before.finished).To(BeNumerically("<", workloads), "the manager that started last has nothing to admit")
		m, err := env.LaunchManager(testenv.ManagerOptions{Server: proxy.URL()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return m.Stop() })
		Eventually(func() int { return h.tally().finished }).WithContext(ctx).WithTimeout(4*patience).
			Should(Equal(workloads), func() string { return h.unfinished(ctx) })
		after := h.tally()
		AddReportEntry("result", fmt.Sprintf("%d quota Workloads with %d evictions in %s, %d of them and %d evictions before the last kill",
			after.finished, after.evictions, time.Since(began).Round(time.Second), before.finished, before.evictions))
		Expect(after.problems).To(BeEmpty())
		Expect(env.Admin.DeleteAllOf(ctx, &kueue.Workload{}, client.InNamespace(h.namespace))).To(Succeed())
	}, SpecTimeout(6*time.Minute))
})

// killAfter runs a manager and kills it after so many writes, before it gets the answer to the last write.
func (h *churn) killAfter(ctx context.Context, proxy *testenv.Proxy, writes int) {
	GinkgoHelper()
	launched := make(chan *testenv.Manager, 1)
	proxy.AfterWrite(func(n int) {
		if n == writes {
			m := <-launched
			launched <- m
			_ = m.Kill()
		}
	})
	m, err := env.LaunchManager(testenv.ManagerOptions{Server: proxy.URL()})
	Expect(err).NotTo(HaveOccurred())
	// If it is not killed, it must not run at the same time as the manager of the specs that follow.
	DeferCleanup(m.Kill)
	launched <- m
	Eventually(m.Done()).WithContext(ctx).WithTimeout(2*patience).Should(BeClosed(), func() string {
		return fmt.Sprintf("the manager has written %d times, not %d; %d have finished, and not:\n%s",
			len(proxy.Writes()), writes, h.tally().finished, h.unfinished(ctx))
	})
}
