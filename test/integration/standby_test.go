package integration_test

import (
	"context"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

// Two processes of the manager, of which the second does not lead before the first has ended.
var _ = Describe("A replica that does not lead", func() {
	const lease = "standby-test"

	It("explains stages as the leader does, and takes over when the leader stops", func(ctx SpecContext) {
		createFlavors(ctx)
		leader := startReplica(ctx, lease, nil)
		before := leaderOf(ctx, lease)
		address := freeAddress()
		installVisibility(ctx, address)
		startReplica(ctx, lease, map[string]any{"visibility": map[string]any{"enable": true, "bindAddress": address}})

		t := newQueue(ctx)
		t.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
		expect(ctx, create(ctx, t.workload("holder", "2")), "Admitted=True Admitted")
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.adminClient.DeleteAllOf(ctx, &jobsetapi.JobSet{}, client.InNamespace(t.namespace))).To(Succeed())
		})
		Expect(env.adminClient.Create(ctx, t.twoStages("staged", "3"))).To(Succeed())
		expect(ctx, t.stageOf(ctx, "staged", "train"), "tranche.dev/Waiting=True WaitingForQuota")
		Expect(env.adminClient.Create(ctx, t.twoStages("wide", "5"))).To(Succeed())
		expect(ctx, t.stageOf(ctx, "wide", "ps"), "tranche.dev/Waiting=True ExceedsMaxQuota")

		pending := "/namespaces/" + t.namespace + "/localqueues/queue/pendingworkloads"
		Eventually(func(g Gomega) {
			summary, err := readerAs("").read(ctx, pending)
			g.Expect(err).NotTo(HaveOccurred())
			train, ps := t.stageOf(ctx, "staged", "train"), t.stageOf(ctx, "wide", "ps")
			g.Expect(places(summary)).To(Equal([]string{train.Name + " queue 0/0", ps.Name + " queue 1/1"}))
			for _, w := range []*kueue.Workload{train, ps} {
				summary, err = readerAs("").read(ctx, pending, "fieldSelector=metadata.name="+w.Name)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(summary.Items).To(HaveLen(1))
				x, said := explanationOf(summary), find(w, apis.WaitingCondition)
				g.Expect([]string{x.Reason, x.Message}).To(Equal([]string{said.Reason, said.Message}))
			}
		}).WithContext(ctx).Should(Succeed())
		Expect(leaderOf(ctx, lease)).To(Equal(before), "the first has led all the time")

		Expect(leader.Kill()).To(Succeed())
		finish(ctx, t.workload("holder", "2"))
		expect(ctx, t.stageOf(ctx, "staged", "train"), "Admitted=True Admitted")
		Expect(leaderOf(ctx, lease)).NotTo(Equal(before))
	}, SpecTimeout(4*patience))
})

// startReplica starts a manager that leads if no other one has the Lease.
func startReplica(ctx context.Context, lease string, settings map[string]any) *testenv.Manager {
	GinkgoHelper()
	all := map[string]any{"leaderElection": map[string]any{
		"leaderElect": true, "resourceName": lease, "leaseDuration": "10s", "renewDeadline": "8s", "retryPeriod": "1s",
	}}
	maps.Copy(all, settings)
	m, err := env.StartManager(ctx, testenv.ManagerOptions{Settings: all})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return m.Stop() })
	return m
}

// leaderOf waits until a Lease has a holder, and returns it.
func leaderOf(ctx context.Context, name string) string {
	GinkgoHelper()
	var lease coordinationv1.Lease
	Eventually(func(g Gomega) {
		g.Expect(env.adminClient.Get(ctx, client.ObjectKey{Namespace: apis.SystemNamespace, Name: name}, &lease)).To(Succeed())
		g.Expect(ptr.Deref(lease.Spec.HolderIdentity, "")).NotTo(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
	return *lease.Spec.HolderIdentity
}

// twoStages makes a JobSet that holds 1 cpu, for as long as it exists, while it waits for more.
func (t *tenant) twoStages(name, more string) *jobsetapi.JobSet {
	js := newQueued(t.namespace, name, "ps", "train")
	js.Labels[apis.QueueLabel] = "queue"
	for i, cpus := range []string{"1", more} {
		pod := &js.Spec.ReplicatedJobs[i].Template.Spec.Template
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, controlplane.FakeExit, controlplane.FakeExitNever)
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
	}
	js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "ps", Status: jobset.DependencyReady}}
	return js
}

// stageOf waits for the quota Workload of a stage.
func (t *tenant) stageOf(ctx context.Context, jobSet, stage string) *kueue.Workload {
	GinkgoHelper()
	var list kueue.WorkloadList
	Eventually(func(g Gomega) {
		g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(t.namespace),
			client.MatchingLabels{apis.JobSetLabel: jobSet, apis.StageLabel: stage})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
	}).WithContext(ctx).Should(Succeed())
	return &list.Items[0]
}
