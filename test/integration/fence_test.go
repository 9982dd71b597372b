package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/testenv"
)

// A writeLog is the sequence of writes that the API server has accepted, each with the replica that sent it.
type writeLog struct {
	mu      sync.Mutex
	entries []string
}

func (l *writeLog) add(entry string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entry)
}

func (l *writeLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

// startLogged starts a replica whose accepted writes are added to a log under its name.
func (l *writeLog) startLogged(ctx context.Context, name, lease string) *testenv.Manager {
	GinkgoHelper()
	proxy, err := env.StartProxy()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Stop)
	proxy.AfterWrite(func(n int) {
		writes := proxy.Writes()
		l.add(name + ": " + writes[n-1])
	})
	m, err := env.StartManager(ctx, testenv.ManagerOptions{Server: proxy.URL(), Settings: map[string]any{"leaderElection": map[string]any{
		"leaderElect": true, "resourceName": lease, "leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms",
	}}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return m.Stop() })
	return m
}

var _ = Describe("A leader that was stopped for longer than its Lease", func() {
	It("writes nothing after its successor has written, and exits", func(ctx SpecContext) {
		const lease = "fence-test"
		createFlavors(ctx)
		var log writeLog
		old := log.startLogged(ctx, "old", lease)
		first := leaderOf(ctx, lease)
		log.startLogged(ctx, "new", lease)

		t := newQueue(ctx)
		t.onlyOnDemand(ctx, "20", func(*kueue.ClusterQueueSpec) {})
		var all []*kueue.Workload
		for i := range 60 {
			all = append(all, create(ctx, t.workload(fmt.Sprintf("w%02d", i), "1")))
		}
		expect(ctx, all[19], "Admitted=True Admitted")
		expect(ctx, all[59], "tranche.dev/Waiting=True WaitingForQuota")

		Expect(old.Signal(syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(func() error { return old.Signal(syscall.SIGCONT) })
		for _, w := range all[:20] {
			finish(ctx, w)
		}
		Eventually(func() string { return leaderOf(ctx, lease) }).WithContext(ctx).ShouldNot(Equal(first))
		Eventually(log.all).WithContext(ctx).Should(ContainElement(HavePrefix("new: ")))
		// Both have many writes: the old leader also observes now that these have finished.
		for _, w := range all[20:30] {
			finish(ctx, w)
		}
		Expect(old.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(old.Done()).WithContext(ctx).Should(BeClosed(), "the old leader ends when it sees the holder of the Lease")
		// All quota is held again. Which of the others hold it depends on whose admission was written at the first attempt.
		Eventually(func(g Gomega) {
			admitted := 0
			for _, w := range all[30:] {
				if apimeta.IsStatusConditionTrue(get(ctx, w).Status.Conditions, kueue.WorkloadAdmitted) {
					admitted++
				}
			}
			g.Expect(admitted).To(Equal(20))
		}).WithContext(ctx).Should(Succeed())

		entries := log.all()
		from := slices.IndexFunc(entries, func(e string) bool { return strings.HasPrefix(e, "new: ") })
		Expect(entries[from:]).NotTo(ContainElement(HavePrefix("old: ")))
	}, SpecTimeout(2*patience))
})
