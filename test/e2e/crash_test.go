package e2e_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("A manager that is killed", beginsFirst, func() {
	var proxy *testenv.Proxy

	BeforeEach(func(ctx SpecContext) {
		Expect(manager.Stop()).To(Succeed())
		var err error
		proxy, err = env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { proxy.Stop() })
	})

	// bringBack restarts the manager of the suite before the last created team is cleared.
	bringBack := func() {
		DeferCleanup(func(ctx SpecContext) {
			var err error
			manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
			Expect(err).NotTo(HaveOccurred())
		})
	}

	It("reaches the same final state after a crash at any write", func(ctx SpecContext) {
		t := newTeam(ctx, "4", "15")
		bringBack()
		struck := true
		for n := 1; struck; n++ {
			By(fmt.Sprintf("killing it after write %d", n))
			managers, err := env.StartRelay(proxy, n, testenv.ManagerOptions{})
			Expect(err).NotTo(HaveOccurred())
			name := fmt.Sprintf("run-%d", n)
			js := submit(ctx, t.fineTune(name))
			t.crashRun(ctx, name)
			struck, err = managers.Stop()
			Expect(err).NotTo(HaveOccurred())
			Expect(env.Admin.Delete(ctx, js, client.PropagationPolicy("Background"))).To(Succeed())
			if n > 40 {
				Fail("the manager writes without end: " + fmt.Sprint(proxy.Writes()))
			}
		}
	}, SpecTimeout(2*specTimeout))

	It("leaves all Jobs held while it is down, and resumes without loss", func(ctx SpecContext) {
		t := newTeam(ctx, "4", "15")
		bringBack()
		js := submit(ctx, t.fineTune("patient"))
		Eventually(func(g Gomega) { g.Expect(t.jobs(ctx, g, "")).To(HaveLen(2)) }).WithContext(ctx).Should(Succeed())
		Expect(env.Admin.Patch(ctx, js, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`)))).To(Succeed())
		Expect(*js.Spec.Suspend).To(BeTrue(), "the guard refuses the start")
		for _, job := range t.jobs(ctx, Default, "") {
			Expect(*job.Spec.Suspend).To(BeTrue(), job.Name)
		}
		Expect(t.pods(ctx, Default, "")).To(BeEmpty())

		m, err := env.StartManager(ctx, testenv.ManagerOptions{Server: proxy.URL()})
		Expect(err).NotTo(HaveOccurred())
		t.expectStages(ctx, "patient", "initializer=ready", "trainer-node=closed")
		Expect(m.Stop()).To(Succeed())
	}, SpecTimeout(specTimeout))
})

// crashRun runs a fine-tuning JobSet until it finishes.
func (t team) crashRun(ctx SpecContext, name string) {
	GinkgoHelper()
	for _, step := range []string{"initializer", "trainer-node"} {
		Eventually(func(g Gomega) {
			t.endOnce(ctx, g, name, step)
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
	}
	Eventually(func(g Gomega) {
		for _, stage := range []string{"initializer", "trainer-node"} {
			g.Expect(t.stage(ctx, g, name, stage)).To(Equal("Succeeded"), stage)
		}
		var js jobsetapi.JobSet
		g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: name}, &js)).To(Succeed())
		g.Expect(js.Status.TerminalState).To(Equal(string(jobset.JobSetCompleted)))
		for _, w := range t.workloads(ctx, g) {
			if w.Labels["tranche.dev/jobset"] == name {
				g.Expect(w.Finalizers).To(BeEmpty(), w.Name)
			}
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// endOnce ends the pods of a ReplicatedJob that run, and fails while its Job has not completed.
func (t team) endOnce(ctx SpecContext, g Gomega, jobSet, replicatedJob string) {
	for _, pod := range t.pods(ctx, g, replicatedJob) {
		if pod.Labels[jobset.JobSetNameKey] == jobSet && pod.Status.Phase == corev1.PodRunning {
			pod.Status.Phase = corev1.PodSucceeded
			g.Expect(env.Admin.Status().Update(ctx, &pod)).To(Succeed())
		}
	}
	complete := 0
	for _, job := range t.jobs(ctx, g, replicatedJob) {
		if job.Labels[jobset.JobSetNameKey] == jobSet && job.Status.CompletionTime != nil {
			complete++
		}
	}
	g.Expect(complete).To(Equal(1))
}
