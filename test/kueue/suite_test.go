// Package kueue_test runs Tranche beside the real Kueue manager on a real control plane.
//
// All specs share one control plane with Kueue's own CRDs and the JobSet CRD of Tranche. What else of Tranche is installed beside Kueue, and its manager,
// is shared by all containers of specs that need it; those about Kueue alone remove it first. Each spec has a namespace and queues of its own.
package kueue_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	_ "github.com/tranche-dev/tranche/test/progress"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	gpu = corev1.ResourceName("nvidia.com/gpu")

	poll     = 100 * time.Millisecond
	patience = 90 * time.Second
	// flavor is that of all queues. Its nodes have the label pool=gpu.
	flavor = "gpus"
)

// auditPolicy logs who requests what.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// env is the control plane.
var env *testenv.World

func TestKueue(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Beside Kueue")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	suite, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	policy := filepath.Join(GinkgoT().TempDir(), "audit.yaml")
	Expect(os.WriteFile(policy, []byte(auditPolicy), 0o600)).To(Succeed())
	var err error
	env, err = testenv.Start(suite, controlplane.Config{Kueue: &controlplane.KueueOptions{}, AuditPolicy: policy, NodePools: []controlplane.NodePool{
		{Name: "gpu", Count: 8, Labels: map[string]string{"pool": "gpu"}, Allocatable: sample.Amounts("cpu", "256", "memory", "1Ti", string(gpu), "64")},
		{Name: "a100", Count: 6, Labels: map[string]string{"accelerator": "a100"}, Allocatable: sample.Amounts("cpu", "64", "memory", "512Gi", string(gpu), "8")},
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
	DeferCleanup(killBeside)
	Expect(env.Admin.Create(ctx, &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: flavor}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "gpu"}},
	})).To(Succeed())
}, NodeTimeout(5*time.Minute))

// tenant makes a namespace with a ClusterQueue of the same name, which has so many GPUs, and the LocalQueue "queue". The spec leaves no JobSets, Jobs and
// quota Workloads in it.
func tenant(ctx context.Context, name string, gpus int64, change ...func(*kueue.ClusterQueue)) {
	GinkgoHelper()
	Expect(env.CreateNamespace(ctx, name, nil)).To(Succeed())
	createQueues(ctx, name, gpus, change...)
}

// createQueues creates the LocalQueue "queue" of a namespace, and its ClusterQueue.
func createQueues(ctx context.Context, name string, gpus int64, change ...func(*kueue.ClusterQueue)) {
	GinkgoHelper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}},
		ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{gpu},
			Flavors: []kueue.FlavorQuotas{{Name: flavor, Resources: []kueue.ResourceQuota{
				{Name: gpu, NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI)},
			}}},
		}},
	}}
	for _, f := range change {
		f(cq)
	}
	Expect(env.Admin.Create(ctx, cq)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { empty(ctx, name) }, NodeTimeout(patience))
	Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "queue"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
	})).To(Succeed())
}

// empty deletes all that runs in a namespace, and waits until it is gone.
func empty(ctx context.Context, namespace string) {
	GinkgoHelper()
	// Kueue makes the quota Workload of a Job again that still exists.
	for _, kind := range []struct {
		object client.Object
		list   client.ObjectList
	}{{&jobsetapi.JobSet{}, &jobsetapi.JobSetList{}}, {&batchv1.Job{}, &batchv1.JobList{}}, {&kueue.Workload{}, &kueue.WorkloadList{}}} {
		object, list := kind.object, kind.list
		Expect(env.Admin.DeleteAllOf(ctx, object, client.InNamespace(namespace), client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
			g.Expect(meta.LenList(list)).To(BeZero())
		}).WithContext(ctx).Should(Succeed())
	}
}

// read returns a function for Eventually that reads an object again and returns it.
func read[T client.Object](ctx context.Context, object T) func(Gomega) T {
	return func(g Gomega) T {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		return object
	}
}

// haveCondition matches a condition of a quota Workload by its type, status and reason. An empty reason is any.
func haveCondition(conditionType string, status metav1.ConditionStatus, reason string) OmegaMatcher {
	return WithTransform(func(w *kueue.Workload) string {
		c := meta.FindStatusCondition(w.Status.Conditions, conditionType)
		if c == nil {
			return "missing"
		}
		if reason == "" {
			return string(c.Status)
		}
		return fmt.Sprintf("%s %s", c.Status, c.Reason)
	}, Equal(joined(status, reason)))
}

func joined(status metav1.ConditionStatus, reason string) string {
	if reason == "" {
		return string(status)
	}
	return fmt.Sprintf("%s %s", status, reason)
}
