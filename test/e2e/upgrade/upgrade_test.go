package upgrade_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("An upgrade and a rollback", Ordered, func() {
	var before map[types.UID]string

	BeforeAll(func(ctx SpecContext) {
		want := count{}
		for _, groups := range [][]group{advanced(), runs(), waits()} {
			submitTo(ctx, team, groups, &want)
			Eventually(func(g Gomega) { g.Expect(counted(ctx, g, team)).To(Equal(want)) }).WithContext(ctx).Should(Succeed())
		}
		visiting, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		go submitGuests(visiting)
		// Until these have completed, the controllers have also noted in the status of Jobs what runs.
		expectProgress(ctx)
		before = states(ctx, Default, team)
	}, NodeTimeout(specTimeout))

	expectUndisturbed := func(ctx context.Context) {
		GinkgoHelper()
		Expect(cmp.Diff(before, states(ctx, Default, team))).To(BeEmpty())
		expectNoEviction(ctx)
	}

	It("begins with a release that writes what its corpus says", func(ctx SpecContext) {
		expectRecords(ctx, "previous")
	}, SpecTimeout(specTimeout))

	It("upgrades the manager, and then the policies", func(ctx SpecContext) {
		installForeign(ctx)
		current.installManager(ctx)
		expectUndisturbed(ctx)
		current.installPolicies(ctx)
		expectProgress(ctx)
		expectUndisturbed(ctx)
	}, SpecTimeout(specTimeout))

	It("upgrades to a release that writes what its corpus says", func(ctx SpecContext) {
		expectRecords(ctx, "current")
	}, SpecTimeout(specTimeout))

	It("reads the configuration of the release before, which refuses a field of a later one and names it", func(ctx SpecContext) {
		manager, err := current.StartManager(ctx, testenv.ManagerOptions{Settings: previous.settings()})
		Expect(err).NotTo(HaveOccurred())
		Expect(manager.Stop()).To(Succeed())

		later := current.settings()
		later["fieldOfALaterRelease"] = true
		data, err := yaml.Marshal(later)
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), "config.yaml")
		Expect(os.WriteFile(file, data, 0o600)).To(Succeed())
		output, err := exec.CommandContext(ctx, filepath.Join(previous.Root, "bin", "tranche"), "manager", "--config", file).CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(output)).To(ContainSubstring("fieldOfALaterRelease"))
	}, SpecTimeout(specTimeout))

	It("rolls the manager back, and then the policies", func(ctx SpecContext) {
		previous.installManager(ctx)
		expectUndisturbed(ctx)
		previous.installPolicies(ctx)
		expectProgress(ctx)
		expectUndisturbed(ctx)
	}, SpecTimeout(specTimeout))

	It("upgrades the policies, and then the manager", func(ctx SpecContext) {
		current.installPolicies(ctx)
		expectProgress(ctx)
		current.installManager(ctx)
		expectUndisturbed(ctx)

		By("letting a part end, and what waits for it")
		expectEnd(ctx, "prepare-00", "train-00", "train-01", "evaluate-00", "rules-00", "together-00", "job-00", "job-01", "gang-00", "gang-01", "wait")
		expectNoEviction(ctx)
		expectProgress(ctx)
		before = states(ctx, Default, team)
	}, SpecTimeout(specTimeout))

	It("rolls the policies back, and then the manager", func(ctx SpecContext) {
		previous.installPolicies(ctx)
		expectProgress(ctx)
		previous.installManager(ctx)
		expectUndisturbed(ctx)

		By("letting the rest end")
		expectEnd(ctx, "prepare", "train", "evaluate", "rules", "together", "unqueued", "job", "gang")
		expectNoEviction(ctx)
		removeAll(ctx, team)
		Eventually(func(g Gomega) {
			for _, name := range []string{"research", "product"} {
				var queue kueue.ClusterQueue
				g.Expect(current.Admin.Get(ctx, client.ObjectKey{Name: name}, &queue)).To(Succeed())
				g.Expect(queue.Status.ReservingWorkloads).To(BeZero(), name)
			}
		}).WithContext(ctx).Should(Succeed())
		body, err := testenv.ReadMetrics(ctx, leader.Metrics)
		Expect(err).NotTo(HaveOccurred())
		Expect(body).NotTo(ContainSubstring("tranche_ledger_mismatch_total{"))
	}, SpecTimeout(specTimeout))
})
