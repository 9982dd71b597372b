package e2e_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// newElasticJob returns an Indexed Job whose pods request one GPU each.
func (t team) newElasticJob(name string, pods int32) *batchv1.Job {
	job := t.newJob(name, pods, "1")
	job.Annotations = map[string]string{apis.ElasticJobAnnotation: "true"}
	job.Spec.CompletionMode = new(batchv1.IndexedCompletion)
	return job
}

// resizeJob changes parallelism and completions of a Job.
func (t team) resizeJob(ctx context.Context, name string, pods int) {
	GinkgoHelper()
	t.patchJob(ctx, name, fmt.Sprintf(`{"spec":{"parallelism":%d,"completions":%d}}`, pods, pods))
}

// podsByUID returns the pods of a Job that are not terminal.
func (t team) podsByUID(ctx context.Context, g Gomega, name string) []types.UID {
	var uids []types.UID
	for _, pod := range t.podsOfJob(ctx, g, name) {
		uids = append(uids, pod.UID)
	}
	return uids
}

// expectQuota waits until the quota Workloads of a Job, its growths last, are in states such as "ready for 2", and the Job has so many pods, among
// them those that it had before.
func (t team) expectQuota(ctx context.Context, name string, pods int, before []types.UID, states ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list kueue.WorkloadList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingLabels{apis.JobLabel: name})).To(Succeed())
		var now []string
		for _, isGrowth := range []bool{false, true} {
			for _, w := range list.Items {
				if (w.Labels[apis.GrowthLabel] != "") == isGrowth {
					count := w.Spec.PodSets[0].Count
					for _, reclaimable := range w.Status.ReclaimablePods {
						count -= reclaimable.Count
					}
					now = append(now, fmt.Sprintf("%s for %d", stateOfStage(&w), count))
				}
			}
		}
		g.Expect(now).To(Equal(states))
		uids := t.podsByUID(ctx, g, name)
		g.Expect(uids).To(HaveLen(pods))
		for _, uid := range before {
			if !g.Expect(uids).To(ContainElement(uid)) {
				StopTrying("a pod that ran has ended").Now()
			}
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

var _ = Describe("An elastic queued Job", func() {
	It("grows when there is quota, while its pods run on, releases quota when it shrinks, and finishes with its last size", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "5")
		Expect(env.Admin.Create(ctx, t.newElasticJob("a", 2))).To(Succeed())
		t.expectJob(ctx, "a", "ready")
		Expect(env.Admin.Create(ctx, t.newJob("rival", 1, "2"))).To(Succeed())
		t.expectJob(ctx, "rival", "ready")
		before := t.podsByUID(ctx, Default, "a")

		By("growing: quota for one pod is left, and it needs two")
		t.resizeJob(ctx, "a", 4)
		t.expectQuota(ctx, "a", 2, before, "ready for 2", "waiting for 2")
		t.expectReserved(ctx, "4")
		t.expectEvent(ctx, "a", "Grows")
		By("wanting less")
		t.resizeJob(ctx, "a", 3)
		t.expectQuota(ctx, "a", 3, before, "ready for 2", "ready for 1")
		t.expectReserved(ctx, "5")
		t.expectEvent(ctx, "a", "Resized")

		By("growing again, when the rival ends")
		before = t.podsByUID(ctx, Default, "a")
		t.resizeJob(ctx, "a", 5)
		t.expectQuota(ctx, "a", 3, before, "ready for 2", "ready for 1", "waiting for 2")
		t.endPodsOf(ctx, Default, "rival", 1)
		t.expectQuota(ctx, "a", 5, before, "ready for 2", "ready for 1", "ready for 2")

		By("shrinking below its first size")
		t.resizeJob(ctx, "a", 1)
		t.expectQuota(ctx, "a", 1, nil, "ready for 1")
		t.expectReserved(ctx, "1")
		Expect(env.Admin.Create(ctx, t.newJob("second", 1, "4"))).To(Succeed())
		t.expectJob(ctx, "second", "ready")
		t.resizeJob(ctx, "a", 2)
		t.expectQuota(ctx, "a", 1, nil, "ready for 1", "waiting for 1")
		t.endPodsOf(ctx, Default, "second", 1)
		t.expectQuota(ctx, "a", 2, nil, "ready for 1", "ready for 1")
		Eventually(func(g Gomega) {
			t.endPodsOf(ctx, g, "a", 2)
			var job batchv1.Job
			g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: "a"}, &job)).To(Succeed())
			g.Expect(job.Status.CompletionTime).NotTo(BeNil())
			g.Expect(job.Status.Succeeded).To(Equal(int32(2)))
		}).WithContext(ctx).Should(Succeed())
		t.expectQuota(ctx, "a", 0, nil, "Succeeded for 1")
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))

	It("loses only the pods of an evicted growth, and queues for all of its pods when it is evicted itself", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		Expect(env.Admin.Create(ctx, t.newElasticJob("a", 2))).To(Succeed())
		t.expectJob(ctx, "a", "ready")
		before := t.podsByUID(ctx, Default, "a")
		t.resizeJob(ctx, "a", 3)
		t.expectQuota(ctx, "a", 3, before, "ready for 2", "ready for 1")
		Expect(env.Admin.Create(ctx, t.newJob("rival", 1, "2"))).To(Succeed())
		t.expectJob(ctx, "rival", "waiting")
		setActive := func(active bool) {
			Eventually(func(g Gomega) {
				var list kueue.WorkloadList
				g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingLabels{apis.GrowthLabel: "1"})).To(Succeed())
				g.Expect(list.Items).To(HaveLen(1))
				list.Items[0].Spec.Active = &active
				g.Expect(env.Admin.Update(ctx, &list.Items[0])).To(Succeed())
			}).WithContext(ctx).Should(Succeed())
		}
		setActive(false)
		t.expectQuota(ctx, "a", 2, before, "ready for 2", "waiting for 1")
		t.expectJob(ctx, "rival", "ready")
		setActive(true)
		t.expectReserved(ctx, "4")
		t.endPodsOf(ctx, Default, "rival", 1)
		t.expectQuota(ctx, "a", 3, before, "ready for 2", "ready for 1")

		By("suspending it")
		t.patchJob(ctx, "a", `{"spec":{"suspend":true}}`)
		t.expectQuota(ctx, "a", 0, nil, "closed for 3")
		t.expectReserved(ctx, "0")
		t.patchJob(ctx, "a", `{"spec":{"suspend":false}}`)
		t.expectQuota(ctx, "a", 3, nil, "ready for 3")
	}, SpecTimeout(specTimeout))
})
