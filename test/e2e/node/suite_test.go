// Package node_test runs JobSets and Jobs through the real manager binary on a real node: a kubelet and containerd. What an accelerator is occupied by are
// the processes of its containers, which are counted by the kernel of this machine, whatever a status says. Fake nodes run beside it.
package node_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
	_ "github.com/tranche-dev/tranche/test/progress"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	gpu = corev1.ResourceName("nvidia.com/gpu")

	poll     = 100 * time.Millisecond
	patience = 90 * time.Second
	// specTimeout is for the containers of a spec on a busy machine.
	specTimeout = 4 * time.Minute
)

var (
	env     *testenv.World
	manager *testenv.Manager
	auditor *invariants.Auditor
	suite   context.Context
)

func TestNode(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Tranche on a real node")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var cancel context.CancelFunc
	suite, cancel = context.WithCancel(context.Background())
	DeferCleanup(cancel)
	root, err := testenv.Root()
	Expect(err).NotTo(HaveOccurred())
	env, err = testenv.Start(suite, controlplane.Config{
		NodePools: []controlplane.NodePool{{Name: "fake", Count: 1, Labels: map[string]string{"pool": "fake"}, Allocatable: sample.Amounts("cpu", "64", "memory", "1Ti")}},
		RealNode: &controlplane.RealNode{
			Labels:   map[string]string{"pool": "real"},
			Extended: sample.Amounts(string(gpu), "64"),
			Images:   []controlplane.Image{{Name: groupStartImage(root), Program: filepath.Join(root, "bin", "tranche")}},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
	Expect(env.Admin.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}})).To(Succeed())
	Expect(env.Admin.Create(ctx, &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: "real"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "real"}},
	})).To(Succeed())
	Expect(env.Admin.Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000})).To(Succeed())
	auditor, err = invariants.Start(suite, env.Admin)
	Expect(err).NotTo(HaveOccurred())
	port, err := controlplane.FreePort()
	Expect(err).NotTo(HaveOccurred())
	manager = startManager(port, port)
	DeferCleanup(func() error { return manager.Stop() })
}, NodeTimeout(5*time.Minute))

// groupStartImage returns the image of the containers in which pods wait for their group, as the policies name it.
func groupStartImage(root string) string {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(root, "config", "policies", "parameters.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var parameters corev1.ConfigMap
	Expect(yaml.Unmarshal(data, &parameters)).To(Succeed())
	return parameters.Data["groupStartImage"]
}

// startManager starts a manager that answers pods on one port, and names another to them.
func startManager(listens, named int) *testenv.Manager {
	GinkgoHelper()
	m, err := env.StartManager(suite, testenv.ManagerOptions{Settings: map[string]any{
		"groupStart": map[string]any{
			"bindAddress": fmt.Sprintf("0.0.0.0:%d", listens), "address": net.JoinHostPort(env.Plane.Gateway(), strconv.Itoa(named)),
		},
		// The victim is the one that has lost least since its last checkpoint.
		"preemption": map[string]any{"leastWork": true},
	}})
	Expect(err).NotTo(HaveOccurred())
	return m
}

var _ = AfterEach(func(ctx SpecContext) {
	violations, err := auditor.Violations(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(violations).To(BeEmpty(), "the auditor found breaches of the invariants")
}, NodeTimeout(patience))
