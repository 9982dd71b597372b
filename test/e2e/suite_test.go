// Package e2e_test runs whole JobSets through the real manager binary on a real control plane.
package e2e_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
	_ "github.com/tranche-dev/tranche/test/progress"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	gpu = corev1.ResourceName("nvidia.com/gpu")

	poll     = 100 * time.Millisecond
	patience = 2 * time.Minute
	// firstAudit is by when a manager has audited its books: it does so once a minute.
	firstAudit = 90 * time.Second

	// beginsFirst is the priority of specs that take minutes: they must not begin when the others of the suite have ended.
	beginsFirst = SpecPriority(1)
)

var (
	env     *testenv.World
	manager *testenv.Manager
	auditor *invariants.Auditor
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Tranche end to end")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	suite, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	var err error
	gates := map[string]bool{"RestartJob": true, "InPlaceRestart": true, "ElasticJobSet": true}
	env, err = testenv.Start(suite, controlplane.Config{JobSetFeatureGates: gates, NodePools: []controlplane.NodePool{
		{Name: "cpu", Count: 4, Labels: map[string]string{"pool": "cpu"}, Allocatable: sample.Amounts("cpu", "256", "memory", "1Ti")},
		{
			Name: "a100", Count: 8, Labels: map[string]string{"accelerator": "a100"},
			Taints:      []corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}},
			Allocatable: sample.Amounts("cpu", "256", "memory", "1Ti", string(gpu), "64"),
		},
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
	for _, flavor := range []*kueue.ResourceFlavor{
		{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "a100"}, Spec: kueue.ResourceFlavorSpec{
			NodeLabels:  map[string]string{"accelerator": "a100"},
			Tolerations: []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		}},
	} {
		Expect(env.Admin.Create(ctx, flavor)).To(Succeed())
	}
	auditor, err = invariants.Start(suite, env.Admin)
	Expect(err).NotTo(HaveOccurred())
	manager, err = env.StartManager(suite, testenv.ManagerOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		expectBooksRight(ctx)
		Expect(manager.Stop()).To(Succeed())
	}, NodeTimeout(firstAudit+patience))
}, NodeTimeout(5*time.Minute))

// expectBooksRight waits for the first quota audit of the last manager, which the last spec may have just started, and checks that none has found a mismatch.
func expectBooksRight(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (string, error) { return testenv.ReadMetrics(ctx, manager.Metrics) }).WithTimeout(firstAudit).
		Should(MatchRegexp(`tranche_ledger_audits_total [1-9]`))
	body, err := testenv.ReadMetrics(ctx, manager.Metrics)
	Expect(err).NotTo(HaveOccurred())
	Expect(body).NotTo(ContainSubstring("tranche_ledger_mismatch_total{"))
}

var _ = AfterEach(func(ctx SpecContext) {
	violations, err := auditor.Violations(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(violations).To(BeEmpty(), "the auditor found breaches of the invariants")
}, NodeTimeout(patience))
