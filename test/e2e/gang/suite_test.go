// Package gang_test runs gangs through the real manager binary and real schedulers: that of Kubernetes, with the feature gates on that place them whole,
// Coscheduling and Volcano's.
package gang_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
	_ "github.com/tranche-dev/tranche/test/progress"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	gpu       = corev1.ResourceName("nvidia.com/gpu")
	namespace = "ml"

	poll     = 100 * time.Millisecond
	patience = 90 * time.Second
)

var (
	env     *testenv.World
	auditor *invariants.Auditor
	manager *testenv.Manager
)

func TestGangs(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Gangs end to end")
}

// There are three nodes of 4 GPUs, and quota for more: only the scheduler determines that a gang does not fit.
var _ = BeforeSuite(func(ctx SpecContext) {
	suite, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	root, err := testenv.Root()
	Expect(err).NotTo(HaveOccurred())
	env, err = testenv.Start(suite, controlplane.Config{
		CRDs: []string{filepath.Join(root, "test", "testenv", "podgroups")}, GangSchedulers: true,
		// An unschedulable gang would be tried hundreds of times per second.
		FeatureGates:  []string{"GenericWorkload=true", "GangScheduling=true", "SchedulerPopFromBackoffQ=false"},
		RuntimeConfig: []string{"scheduling.k8s.io/v1alpha2=true"},

		JobSetFeatureGates: map[string]bool{"ElasticJobSet": true},
		NodePools: []controlplane.NodePool{{
			Name: "gpu", Count: 3, Allocatable: corev1.ResourceList{"cpu": resource.MustParse("32"), "memory": resource.MustParse("256Gi"), gpu: resource.MustParse("4")},
		}},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
	auditor, err = invariants.Start(suite, env.Admin)
	Expect(err).NotTo(HaveOccurred())
	turnOn(ctx)
	startManager(suite)
	DeferCleanup(func() error { return manager.Stop() })
	makeQueues(ctx)
}, NodeTimeout(5*time.Minute))

func startManager(ctx context.Context) {
	GinkgoHelper()
	var err error
	manager, err = env.StartManager(ctx, testenv.ManagerOptions{Settings: settings()})
	Expect(err).NotTo(HaveOccurred())
}

func settings() map[string]any {
	return map[string]any{"gang": map[string]any{"provider": "Kube", "diagnoseAfter": "1s", "coscheduling": map[string]any{"timeoutSeconds": 60}}}
}

// startAnew restarts the manager as Kubernetes does after it has noticed a change of the served APIs.
func startAnew(ctx context.Context) {
	GinkgoHelper()
	Eventually(manager.Done()).WithContext(ctx).Should(BeClosed())
	startManager(ctx)
}

// turnOn sets the parameters of the guards for gangs, and waits until the API server applies them.
func turnOn(ctx context.Context) {
	GinkgoHelper()
	setGuards(ctx, "Kube", "")
	expectBorn(ctx, nil, "default-scheduler probe-all-r0-0f")
}

func makeQueues(ctx context.Context) {
	GinkgoHelper()
	Expect(env.CreateNamespace(ctx, namespace, nil)).To(Succeed())
	for _, object := range []client.Object{
		newFlavor("gpu", ""), newFlavor("small", "Volcano"), newFlavor("large", "Koordinator"),
		newClusterQueue("ml", "gpu", "1k"), newClusterQueue("flavored", "small", "2", "large", "1k"),
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "flavored"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "flavored"}},
		newLocalQueue("ml", ""), newLocalQueue("coscheduling", "Coscheduling"), newLocalQueue("volcano", "Volcano"),
		newLocalQueue("koordinator", "Koordinator"), newLocalQueue("none", "None"),
		newHeldQueue(),
	} {
		Expect(env.Admin.Create(ctx, object)).To(Succeed())
	}
}

// newFlavor makes a ResourceFlavor on which a scheduler places gangs.
func newFlavor(name, scheduler string) *kueue.ResourceFlavor {
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if scheduler != "" {
		flavor.Annotations = map[string]string{apis.GangProviderAnnotation: scheduler}
	}
	return flavor
}

// newClusterQueue makes a ClusterQueue with these flavors, each with so many GPUs.
func newClusterQueue(name string, flavors ...string) *kueue.ClusterQueue {
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu", gpu}}
	for i := 0; i < len(flavors); i += 2 {
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavors[i]), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("1k")}, {Name: gpu, NominalQuota: resource.MustParse(flavors[i+1])},
		}})
	}
	return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{group},
	}}
}

// newHeldQueue creates a LocalQueue with stopPolicy Hold.
func newHeldQueue() *kueue.LocalQueue {
	queue := newLocalQueue("held", "")
	queue.Spec.StopPolicy = new(kueue.Hold)
	return queue
}

// newLocalQueue makes a LocalQueue whose gangs are placed by a scheduler, or by that of the configuration.
func newLocalQueue(name, scheduler string) *kueue.LocalQueue {
	queue := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: "ml"}}
	if scheduler != "" {
		queue.Annotations = map[string]string{apis.GangProviderAnnotation: scheduler}
	}
	return queue
}

var _ = AfterEach(func(ctx SpecContext) {
	violations, err := auditor.Violations(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(violations).To(BeEmpty(), "the auditor found breaches of the invariants")
}, NodeTimeout(patience))
