// Package upgrade_test upgrades Tranche from the release before, and rolls it back, while JobSets, Jobs and gangs of pods run and wait.
package upgrade_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
	_ "github.com/tranche-dev/tranche/test/progress"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	poll        = 300 * time.Millisecond
	patience    = 3 * time.Minute
	specTimeout = 10 * time.Minute
	// recordTimeout is how long the status of queues and JobSets may take to settle.
	recordTimeout = 30 * time.Second
	// logEnd is how much of the log of each manager is printed if a spec fails.
	logEnd = 16 << 10
)

// A release is one version of Tranche on the control plane that both share.
type release struct {
	*testenv.World

	name string
}

var (
	previous, current *release
	auditor           *invariants.Auditor
	// leader is the manager that leads, of either release, and started are all managers.
	leader  *testenv.Manager
	started []*testenv.Manager
)

func TestUpgrade(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Upgrade and rollback")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	suite, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	before, err := controlplane.PreviousDir(suite)
	Expect(err).NotTo(HaveOccurred())
	env, err := testenv.StartRelease(suite, before, controlplane.Config{NodePools: []controlplane.NodePool{
		{Name: "cpu", Count: 2, Allocatable: sample.Amounts("cpu", "256", "memory", "1Ti")},
		{Name: "a100", Count: 2, Labels: map[string]string{"accelerator": "a100"}, Allocatable: sample.Amounts("cpu", "256", "memory", "1Ti", gpu, "64")},
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
	now := *env
	now.Root, err = testenv.Root()
	Expect(err).NotTo(HaveOccurred())
	previous, current = &release{env, "the release before"}, &release{&now, "this release"}
	Expect(previous.Install(ctx)).To(Succeed())
	createQueues(ctx)
	auditor, err = invariants.Start(suite, env.Admin)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error {
		var failed []error
		for _, manager := range started {
			failed = append(failed, manager.Stop())
		}
		return errors.Join(failed...)
	})
	leader = previous.start(ctx)
}, NodeTimeout(5*time.Minute))

var _ = AfterEach(func(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		existing, err := current.KubectlOutput(ctx, "get", "jobsets,jobs,pods,workloads.kueue.x-k8s.io", "-A", "-o", "wide")
		GinkgoWriter.Printf("%s%v\n", existing, err)
		for _, manager := range started {
			log, err := os.ReadFile(manager.Log)
			GinkgoWriter.Printf("%s: %v\n%s\n", manager.Log, err, log[max(0, len(log)-logEnd):])
		}
	}
	violations, err := auditor.Violations(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(violations).To(BeEmpty(), "the auditor found breaches of the invariants")
}, NodeTimeout(patience))

// start starts the manager of a release with the configuration that the release installs. It leads if no other manager does.
func (r *release) start(ctx context.Context) *testenv.Manager {
	GinkgoHelper()
	manager, err := r.StartManager(ctx, testenv.ManagerOptions{Settings: r.settings()})
	Expect(err).NotTo(HaveOccurred())
	started = append(started, manager)
	return manager
}

// settings returns the configuration file of a release, and a Lease that a busy machine does not lose.
func (r *release) settings() map[string]any {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(r.Root, "config", "manager", "config.yaml"))
	Expect(err).NotTo(HaveOccurred())
	settings := map[string]any{}
	Expect(yaml.Unmarshal(data, &settings)).To(Succeed())
	maps.Copy(settings, map[string]any{"leaderElection": map[string]any{
		"leaderElect": true, "leaseDuration": "40s", "renewDeadline": "30s", "retryPeriod": "1s",
	}})
	return settings
}
