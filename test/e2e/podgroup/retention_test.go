package podgroup_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

var _ = Describe("objectRetentionPolicies", func() {
	It("delete finished quota Workloads, and those that the manager has deactivated", func(ctx SpecContext) {
		Expect(manager.Stop()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(manager.Stop()).To(Succeed())
			var err error
			manager, err = startManager(ctx)
			Expect(err).NotTo(HaveOccurred())
		}, NodeTimeout(patience))
		var err error
		manager, err = startManagerWith(ctx, map[string]any{"objectRetentionPolicies": map[string]any{
			"workloads": map[string]any{"afterFinished": "1s", "afterDeactivatedByKueue": "1s"},
		}})
		Expect(err).NotTo(HaveOccurred())
		t := newTeam(ctx, "10", "0")
		done, slow := t.jobSet(ctx, "done", controlplane.FakeExitSucceed, ""), t.jobSet(ctx, "slow", controlplane.FakeExitNever, "1")
		doneJob := t.queuedJob(ctx, "done-job", controlplane.FakeExitSucceed, "")
		group := t.podGroup(ctx, coscheduling, "done", map[string]any{"minMember": int64(1)}, nil)
		create(ctx, t.member("done-0", 0).label(apis.CoschedulingLabel, "done"))

		By("finishing a JobSet, a Job and a gang")
		t.end(ctx, corev1.PodSucceeded, "done-0")
		Eventually(func(g Gomega) {
			g.Expect(isGone(ctx, g, done)).To(BeFalse())
			g.Expect(done.Status.TerminalState).To(Equal(string(jobset.JobSetCompleted)))
			g.Expect(t.workloadsOf(ctx, g, "done")).To(BeZero())
			g.Expect(t.standing(ctx, g, "done-")).To(ContainElement("done-0=succeeded"))
		}).WithContext(ctx).Should(Succeed())
		expectNoted(ctx, group, "All pods of the gang have succeeded")
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(doneJob), doneJob)).To(Succeed())
			g.Expect(doneJob.Status.CompletionTime).NotTo(BeNil())
			g.Expect(t.workloadsOf(ctx, g, doneJob.Name)).To(BeZero())
		}).WithContext(ctx).Should(Succeed())

		By("exceeding the maximum execution time of a JobSet")
		Eventually(func(g Gomega) { g.Expect(isGone(ctx, g, slow)).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
		t.expectTold(ctx, "JobSet", "slow", "Warning Deleted: Deleted the JobSet 1s after its quota Workload")

		By("exceeding the maximum execution time of a Job")
		slowJob := t.queuedJob(ctx, "slow-job", controlplane.FakeExitNever, "1")
		Eventually(func() bool {
			return apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(slowJob), slowJob))
		}).WithContext(ctx).Should(BeTrue())
		t.expectTold(ctx, "Job", slowJob.Name, "Warning Deleted: Deleted the Job 1s after its quota Workload")
		Eventually(func(g Gomega) { g.Expect(t.workloads(ctx, g)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())

		By("exceeding the maximum execution time of a gang, whose pods are evicted, and creating another pod of it")
		queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.name}}
		merge := func(object client.Object, patch string) {
			GinkgoHelper()
			Expect(env.Admin.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		}
		merge(queue, `{"spec":{"stopPolicy":"Hold"}}`)
		t.podGroup(ctx, coscheduling, "slow", map[string]any{"minMember": int64(1)}, nil)
		create(ctx, t.member("slow-0", 0).label(apis.CoschedulingLabel, "slow"))
		Eventually(func(g Gomega) { g.Expect(t.workloads(ctx, g)).To(HaveLen(1)) }).WithContext(ctx).Should(Succeed())
		merge(&t.workloads(ctx, Default)[0], `{"spec":{"maximumExecutionTimeSeconds":1}}`)
		merge(queue, `{"spec":{"stopPolicy":"None"}}`)
		t.expectTold(ctx, "Pod", "slow-0", "no controller will recreate it")
		Eventually(func(g Gomega) { g.Expect(t.standing(ctx, g, "slow-0")).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		create(ctx, t.member("slow-1", 0).label(apis.CoschedulingLabel, "slow"))
		Eventually(func(g Gomega) { g.Expect(t.standing(ctx, g, "slow-1")).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		t.expectTold(ctx, "Pod", "slow-1", "has been deactivated for 1s (objectRetentionPolicies.workloads.afterDeactivatedByKueue)")
	}, SpecTimeout(specTimeout))
})

// jobSet creates a JobSet of one pod with a fate, whose admission is limited to so many seconds unless that is empty.
func (t team) jobSet(ctx context.Context, name, fate, seconds string) *jobsetapi.JobSet {
	GinkgoHelper()
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: name, Labels: map[string]string{apis.QueueLabel: "main"}}}
	if seconds != "" {
		js.Labels[apis.MaxExecTimeLabel] = seconds
	}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{sample.ReplicatedJob("main", 1, sample.Amounts("cpu", "1"), map[string]string{controlplane.FakeExit: fate})}
	Expect(env.Admin.Create(ctx, js)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
	}, NodeTimeout(patience))
	return js
}

// queuedJob creates a Job of one pod, as jobSet does.
func (t team) queuedJob(ctx context.Context, name, fate, seconds string) *batchv1.Job {
	GinkgoHelper()
	r := sample.ReplicatedJob("main", 1, sample.Amounts("cpu", "1"), map[string]string{controlplane.FakeExit: fate})
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: name, Labels: map[string]string{apis.QueueLabel: "main"}}, Spec: r.Template.Spec}
	if seconds != "" {
		job.Labels[apis.MaxExecTimeLabel] = seconds
	}
	Expect(env.Admin.Create(ctx, job)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
	}, NodeTimeout(patience))
	return job
}

// workloadsOf counts the quota Workloads of the JobSet, the Job and the gang of a name.
func (t team) workloadsOf(ctx context.Context, g Gomega, name string) int {
	n := 0
	for _, w := range t.workloads(ctx, g) {
		if w.Labels[apis.JobSetLabel] == name || len(w.OwnerReferences) > 0 && w.OwnerReferences[0].Name == name {
			n++
		}
	}
	return n
}
