package e2e_test

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// untilStopped is for pods that terminate only when stopPods ends them.
const untilStopped = "3600"

// uidsOf returns the UIDs of the live pods of a Job.
func (t team) uidsOf(ctx context.Context, g Gomega, job string) (uids []types.UID) {
	for _, pod := range t.podsOfJob(ctx, g, job) {
		uids = append(uids, pod.UID)
	}
	return uids
}

// stopPods ends the pods of a Job that are being deleted, as the kubelet does when their containers have ended.
func (t team) stopPods(ctx context.Context, g Gomega, job string) {
	for _, pod := range t.podsOfJob(ctx, g, job) {
		if pod.DeletionTimestamp != nil {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`))
			g.Expect(client.IgnoreNotFound(env.Admin.Status().Patch(ctx, &pod, patch))).To(Succeed())
		}
	}
}

// expectTerminating waits until the Job controller has noticed that so many pods of a Job terminate, and checks that the Job has no others than before.
func (t team) expectTerminating(ctx context.Context, name string, count int32, before []types.UID) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var job batchv1.Job
		g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: name}, &job)).To(Succeed())
		g.Expect(ptr.Deref(job.Status.Terminating, 0)).To(Equal(count))
	}).WithContext(ctx).Should(Succeed())
	Expect(t.uidsOf(ctx, Default, name)).To(ConsistOf(before), "a pod was created in addition to those that quota is charged for")
}

// expectReplaced waits until the terminating pods of a Job have ended and all of its pods run, of which so many are new.
func (t team) expectReplaced(ctx context.Context, name string, before []types.UID, replaced int) (now []types.UID) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		t.stopPods(ctx, g, name)
		now = t.uidsOf(ctx, g, name)
		g.Expect(now).To(HaveLen(len(before)))
		for _, pod := range t.podsOfJob(ctx, g, name) {
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
		}
		isKept := func(uid types.UID) bool { return slices.Contains(before, uid) }
		g.Expect(slices.DeleteFunc(slices.Clone(now), isKept)).To(HaveLen(replaced))
	}).WithContext(ctx).Should(Succeed())
	return now
}

// deletePod deletes a pod of a Job as its tenant.
func (t team) deletePod(ctx context.Context, tenant client.Client, job string) {
	GinkgoHelper()
	Expect(tenant.Delete(ctx, &t.podsOfJob(ctx, Default, job)[0], client.GracePeriodSeconds(3000))).To(Succeed())
}

var _ = Describe("Quota that is charged for pods which terminate slowly", func() {
	It("is not used twice by a queued Job whose pods are deleted, or which is suspended and resumed", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		tenant := t.editor(ctx, "alice")
		job := t.newJob("train", 2, "2")
		endSlowly(&job.Spec.Template, untilStopped)
		job.Spec.BackoffLimit = new(int32(9))
		Expect(tenant.Create(ctx, job)).To(Succeed())
		t.expectJob(ctx, "train", "ready")

		pods := t.uidsOf(ctx, Default, "train")
		t.deletePod(ctx, tenant, "train")
		t.expectTerminating(ctx, "train", 1, pods)
		pods = t.expectReplaced(ctx, "train", pods, 1)

		By("suspending and resuming it, twice")
		for _, suspend := range []string{"true", "false", "true", "false"} {
			Expect(tenant.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":`+suspend+`}}`)))).To(Succeed())
			t.expectTerminating(ctx, "train", 2, pods)
		}
		t.expectEvent(ctx, "train", "AwaitsPods")
		Expect(t.uidsOf(ctx, Default, "train")).To(ConsistOf(pods))
		held, workload := t.queued(ctx, Default, "train")
		Expect(*held.Spec.Suspend).To(BeTrue())
		Expect(workload.Status.Admission).NotTo(BeNil())
		t.expectReplaced(ctx, "train", pods, 2)
		t.expectJob(ctx, "train", "ready")
		Eventually(func(g Gomega) {
			t.endPodsOf(ctx, g, "train", 2)
			_, workload := t.queued(ctx, g, "train")
			g.Expect(stateOfStage(workload)).To(Equal("Succeeded"))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("is not used twice by a JobSet whose pods are deleted, or which is suspended and resumed", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		tenant := t.editor(ctx, "alice")
		js := slowly(t.newJobSet("train", replicatedJob{name: "node", pods: 2, cpus: "1", gpus: "2"}), untilStopped)
		js.Spec.ReplicatedJobs[0].Template.Spec.BackoffLimit = new(int32(9))
		Expect(tenant.Create(ctx, js)).To(Succeed())
		t.expectStages(ctx, "train", "node=ready")

		pods := t.uidsOf(ctx, Default, "train-node-0")
		t.deletePod(ctx, tenant, "train-node-0")
		t.expectTerminating(ctx, "train-node-0", 1, pods)

		By("suspending and resuming it, twice")
		for _, suspend := range []string{"true", "false", "true", "false"} {
			Expect(tenant.Patch(ctx, js, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":`+suspend+`}}`)))).To(Succeed())
			t.expectTerminating(ctx, "train-node-0", 2, pods)
		}
		Eventually(func(g Gomega) {
			said := apimeta.FindStatusCondition(t.jobSet(ctx, g, "train").Status.Conditions, jobsetstatus.StageAdmitted)
			g.Expect(said).NotTo(BeNil())
			g.Expect(said.Message).To(ContainSubstring("held Jobs: 1, until the pods of their previous run have terminated"))
		}).WithContext(ctx).Should(Succeed())
		Expect(t.uidsOf(ctx, Default, "train-node-0")).To(ConsistOf(pods))
		t.expectReplaced(ctx, "train-node-0", pods, 2)
		t.expectStages(ctx, "train", "node=ready")
		t.end(ctx, "train", "node", corev1.PodSucceeded)
		t.expectOver(ctx, "train", jobset.JobSetCompleted)
	}, SpecTimeout(specTimeout))
})
