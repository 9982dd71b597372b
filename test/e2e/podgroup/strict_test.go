package podgroup_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/testenv"
)

// The story of the Coscheduling document: tasks of a job start together, or none does, and quota that a gang which does not fit would need
// is not left idle.
var _ = Describe("A gang of Coscheduling", func() {
	It("starts its parameter server and its workers together, and leaves quota that it cannot use to others", func(ctx SpecContext) {
		t := newTeam(ctx, "10", "8")
		group := t.podGroup(ctx, coscheduling, "tensorflow", map[string]any{"minMember": int64(5)}, nil)
		in := func(p pod, group string) pod { return p.label(apis.CoschedulingLabel, group) }
		create(ctx, in(t.member("tf-ps-0", 0), "tensorflow"), in(t.member("tf-worker-0", 2), "tensorflow"), in(t.member("tf-worker-1", 2), "tensorflow"))
		expectNoted(ctx, group, "fewer than the 5 pods")
		t.expectTold(ctx, "Pod", "tf-ps-0", "fewer than the 5 pods")
		t.expectPods(ctx, "tf-", "tf-ps-0=gated", "tf-worker-0=gated", "tf-worker-1=gated")

		By("having all of its pods")
		create(ctx, in(t.member("tf-worker-2", 2), "tensorflow"), in(t.member("tf-worker-3", 2), "tensorflow"))
		t.expectPods(ctx, "tf-", "tf-ps-0=running", "tf-worker-0=running", "tf-worker-1=running", "tf-worker-2=running", "tf-worker-3=running")
		t.expectUsage(ctx, gpu, 8)
		t.expectUsage(ctx, "cpu", 1)
		for _, p := range t.pods(ctx, Default) {
			want := "cpu-0"
			if p.Name != "tf-ps-0" {
				want = "gpu-0"
			}
			Expect(p.Spec.NodeName).To(Equal(want), p.Name)
			Expect(p.Labels).To(And(HaveKey(apis.PodSetLabel), HaveKeyWithValue(apis.LocalQueueLabel, "main"), HaveKeyWithValue(apis.ClusterQueueLabel, t.name)))
		}
		body, err := testenv.ReadMetrics(ctx, manager.Metrics)
		Expect(err).NotTo(HaveOccurred())
		Expect(body).To(ContainSubstring(`kueue_pod_scheduling_gate_removal_seconds_count{cluster_queue="` + t.name +
			`",is_group="true",name="kueue.x-k8s.io/admission",replica_role="standalone"} 5`))
		Expect(body).To(MatchRegexp(`kueue_workload_creation_latency_seconds_count\{job_kind="Pod",replica_role="standalone"\} [1-9]`))
		workloads := t.workloads(ctx, Default)
		Expect(workloads).To(HaveLen(1))
		Expect(workloads[0].Spec.PodSets).To(HaveLen(2))

		By("being followed by one that does not fit, and by one that does")
		t.end(ctx, corev1.PodSucceeded, "tf-worker-0")
		t.expectUsage(ctx, gpu, 6)
		large := t.podGroup(ctx, coscheduling, "large", map[string]any{"minMember": int64(2)}, nil)
		create(ctx, in(t.member("large-0", 2), "large"), in(t.member("large-1", 2), "large"))
		expectNoted(ctx, large, "2 of 8 free")
		t.podGroup(ctx, coscheduling, "small", map[string]any{"minMember": int64(2)}, nil)
		create(ctx, in(t.member("small-0", 1), "small"), in(t.member("small-1", 1), "small"))
		t.expectPods(ctx, "small-", "small-0=running", "small-1=running")
		t.expectPods(ctx, "large-", "large-0=gated", "large-1=gated")

		By("ending")
		t.end(ctx, corev1.PodSucceeded, "tf-ps-0", "tf-worker-1", "tf-worker-2", "tf-worker-3")
		t.expectFinished(ctx, workloads[0].Name)
		t.expectPods(ctx, "large-", "large-0=running", "large-1=running")
		t.expectUsage(ctx, gpu, 6)
		expectNoted(ctx, large, "has started")
		expectNoted(ctx, group, "All pods of the gang have succeeded")
		t.expectTold(ctx, "PodGroup", "tensorflow", "Normal GangFinished: All pods of the gang have succeeded")
		Expect(env.Admin.Delete(ctx, group)).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(isGone(ctx, g, &workloads[0])).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("reuses the quota of a lost pod for its replacement, and gives additional pods quota of their own", func(ctx SpecContext) {
		t := newTeam(ctx, "3", "0")
		group := t.podGroup(ctx, coscheduling, "job", map[string]any{"minMember": int64(2)}, nil)
		in := func(name string) pod { return t.member(name, 0).label(apis.CoschedulingLabel, "job") }
		create(ctx, in("p-0"), in("p-1"))
		t.expectPods(ctx, "p-", "p-0=running", "p-1=running")
		create(ctx, in("p-2"))
		t.expectPods(ctx, "p-", "p-0=running", "p-1=running", "p-2=running")
		t.expectUsage(ctx, "cpu", 3)
		create(ctx, in("p-3"))
		Eventually(func(g Gomega) { g.Expect(t.workloads(ctx, g)).To(HaveLen(3)) }).WithContext(ctx).Should(Succeed())
		t.expectPods(ctx, "p-", "p-0=running", "p-1=running", "p-2=running", "p-3=gated")
		expectNoted(ctx, group, "has started; pods created later wait for quota of their own: waits for quota in ClusterQueue")
		t.expectTold(ctx, "Pod", "p-3", "pods created later wait for quota of their own")

		By("losing one")
		Expect(env.Admin.Delete(ctx, in("p-0").Pod, client.GracePeriodSeconds(0))).To(Succeed())
		t.expectPods(ctx, "p-", "p-1=running", "p-2=running", "p-3=running")
		Eventually(func(g Gomega) { g.Expect(t.workloads(ctx, g)).To(HaveLen(2)) }).WithContext(ctx).Should(Succeed())
		t.end(ctx, corev1.PodSucceeded, "p-2")
		t.expectUsage(ctx, "cpu", 2)
	}, SpecTimeout(specTimeout))
})
