// Package groupstart_test runs JobSets whose pods start together through the real manager binary, with fake kubelets: the waiting pods run
// the real binary, started by the tests.
package groupstart_test

import (
	"context"
	"net"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
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
	namespace = "ml"

	poll     = 100 * time.Millisecond
	patience = 90 * time.Second
	// A thousand pods take long on a busy machine.
	muchPatience = 10 * time.Minute
)

var (
	env     *testenv.World
	auditor *invariants.Auditor
	// leader is the manager that runs all the time.
	leader *testenv.Manager
	suite  context.Context
)

func TestGroupStart(t *testing.T) {
	RegisterFailHandler(Fail)
	// Each spec has a time of its own.
	SetDefaultEventuallyTimeout(muchPatience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Group start end to end")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var cancel context.CancelFunc
	suite, cancel = context.WithCancel(context.Background())
	DeferCleanup(cancel)
	var err error
	env, err = testenv.Start(suite, controlplane.Config{
		JobSetFeatureGates: map[string]bool{"RestartJob": true},
		NodePools: []controlplane.NodePool{{
			Name: "cpu", Count: 12, Allocatable: corev1.ResourceList{"cpu": resource.MustParse("128"), "memory": resource.MustParse("1Ti")},
		}},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
	auditor, err = invariants.Start(suite, env.Admin)
	Expect(err).NotTo(HaveOccurred())
	awaitPolicies(ctx)
	leader, _ = startManager()
	DeferCleanup(func() error { return leader.Stop() })
	makeQueues(ctx)
}, NodeTimeout(5*time.Minute))

// startManager starts a manager that leads if no other does, and returns where it answers pods.
func startManager() (manager *testenv.Manager, address string) {
	GinkgoHelper()
	listener, err := (&net.ListenConfig{}).Listen(suite, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	address = listener.Addr().String()
	Expect(listener.Close()).To(Succeed())
	manager, err = env.StartManager(suite, testenv.ManagerOptions{Settings: map[string]any{
		"groupStart": map[string]any{"bindAddress": address, "address": address},
		// The leader does not change, also on a busy machine.
		"leaderElection": map[string]any{"leaderElect": true, "leaseDuration": "2h", "renewDeadline": "1h"},
	}})
	Expect(err).NotTo(HaveOccurred())
	return manager, address
}

// awaitPolicies waits until the API server applies the policies about groups, which takes it a moment.
func awaitPolicies(ctx context.Context) {
	GinkgoHelper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: "probe", Labels: map[string]string{apis.HoldLabel: apis.HoldValue},
		Annotations: map[string]string{apis.GroupStartAnnotation: "1"},
	}}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "example.com/probe"}}}
	wrong := newJobSet("probe", role{name: "a", replicas: 1, pods: 1})
	wrong.Namespace, wrong.Annotations = metav1.NamespaceDefault, map[string]string{apis.GroupStartAnnotation: "soon"}
	Eventually(func(g Gomega) {
		created := job.DeepCopy()
		g.Expect(env.Admin.Create(ctx, created, client.DryRunAll)).To(Succeed())
		g.Expect(created.Spec.Template.Spec.InitContainers).To(HaveLen(1))
		g.Expect(env.Admin.Create(ctx, wrong.DeepCopy(), client.DryRunAll)).NotTo(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

func makeQueues(ctx context.Context) {
	GinkgoHelper()
	Expect(env.CreateNamespace(ctx, namespace, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})).To(Succeed())
	for _, object := range []client.Object{
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "ml"}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{"cpu"},
				Flavors:          []kueue.FlavorQuotas{{Name: "cpu", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("1200")}}}},
			}},
		}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ml"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "ml"}},
	} {
		Expect(env.Admin.Create(ctx, object)).To(Succeed())
	}
}

var _ = AfterEach(func(ctx SpecContext) {
	violations, err := auditor.Violations(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(violations).To(BeEmpty(), "the auditor found breaches of the invariants")
}, NodeTimeout(patience))
