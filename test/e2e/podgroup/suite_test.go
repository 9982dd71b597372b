// Package podgroup_test runs gangs of pods through the real manager binary, with the PodGroups of Coscheduling and Koordinator.
package podgroup_test

import (
	"context"
	"maps"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
	_ "github.com/tranche-dev/tranche/test/progress"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	gpu = corev1.ResourceName("nvidia.com/gpu")

	poll        = 100 * time.Millisecond
	patience    = 90 * time.Second
	specTimeout = 5 * time.Minute
)

var (
	env     *testenv.World
	auditor *invariants.Auditor
	manager *testenv.Manager
)

func TestPodGroups(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "PodGroups end to end")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	suite, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	nodes := corev1.ResourceList{"cpu": resource.MustParse("1k"), "memory": resource.MustParse("4Ti"), gpu: resource.MustParse("1k"), "pods": resource.MustParse("1k")}
	var err error
	env, err = testenv.Start(suite, controlplane.Config{
		NodePools: []controlplane.NodePool{
			{Name: "cpu", Count: 1, Allocatable: nodes},
			{Name: "gpu", Count: 1, Allocatable: nodes, Labels: map[string]string{"accelerator": "a100"}, Taints: []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
	// Those of Volcano come later: see "A PodGroup whose API".
	Expect(env.InstallPodGroups("scheduling.x-k8s.io", "scheduling.sigs.k8s.io", "scheduling.incubator.k8s.io", "incubator.scheduling.k8s.io")).To(Succeed())
	auditor, err = invariants.Start(suite, env.Admin)
	Expect(err).NotTo(HaveOccurred())
	manager, err = startManager(suite)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return manager.Stop() })
}, NodeTimeout(5*time.Minute))

// startManager starts a manager with a back-off of one second only.
func startManager(ctx context.Context) (*testenv.Manager, error) {
	return startManagerWith(ctx, nil)
}

// startManagerWith starts it with further settings.
func startManagerWith(ctx context.Context, more map[string]any) (*testenv.Manager, error) {
	settings := map[string]any{"waitForPodsReady": map[string]any{"requeuingStrategy": map[string]any{"backoffBaseSeconds": 1, "backoffMaxSeconds": 1}}}
	maps.Copy(settings, more)
	return env.StartManager(ctx, testenv.ManagerOptions{Settings: settings})
}

var _ = AfterEach(func(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		there, err := env.KubectlOutput(ctx, "get", "workloads.kueue.x-k8s.io,podgroups.scheduling.sigs.k8s.io,podgroups.scheduling.x-k8s.io", "-A", "-o", "yaml", "--show-managed-fields=false")
		GinkgoWriter.Printf("What there is (%v):\n%s\n", err, there)
	}
	violations, err := auditor.Violations(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(violations).To(BeEmpty(), "the auditor found breaches of the invariants")
}, NodeTimeout(patience))
