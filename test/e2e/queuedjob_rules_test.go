package e2e_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadname"
	"github.com/tranche-dev/tranche/test/sample"
)

// check creates an active AdmissionCheck that the ClusterQueue of the team requires.
func (t team) check(ctx context.Context) kueue.AdmissionCheckReference {
	GinkgoHelper()
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/check"}}
	Expect(env.Admin.Create(ctx, check)).To(Succeed())
	apimeta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active"})
	Expect(env.Admin.Status().Update(ctx, check)).To(Succeed())
	t.patchQueue(ctx, `{"spec":{"admissionChecksStrategy":{"admissionChecks":[{"name":"`+check.Name+`"}]}}}`)
	return kueue.AdmissionCheckReference(check.Name)
}

var _ = Describe("A queued Job, by the rules of its queue,", func() {
	It("waits for AdmissionChecks, follows its user to another queue before they are Ready, and gets what they add", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "other"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.namespace)},
		})).To(Succeed())
		check := t.check(ctx)
		Expect(env.Admin.Create(ctx, t.newJob("checked", 2, "2"))).To(Succeed())
		reserved := func(g Gomega, queue string) *kueue.Workload {
			job, w := t.queued(ctx, g, "checked")
			g.Expect(w.Spec.QueueName).To(Equal(kueue.LocalQueueName(queue)))
			g.Expect(quotaworkload.HoldsQuota(w)).To(BeTrue())
			g.Expect(w.Status.AdmissionChecks).To(HaveLen(1))
			g.Expect(*job.Spec.Suspend).To(BeTrue())
			return w
		}
		Eventually(func(g Gomega) { reserved(g, "queue") }).WithContext(ctx).Should(Succeed())
		t.patchJob(ctx, "checked", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`)
		Eventually(func(g Gomega) {
			w := reserved(g, "other")
			g.Expect(applyStatus(ctx, w, "checks", kueue.WorkloadStatus{AdmissionChecks: []kueue.AdmissionCheckState{{
				Name: check, State: kueue.CheckStateReady, LastTransitionTime: metav1.Now(), PodSetUpdates: []kueue.PodSetUpdate{{
					Name: kueue.DefaultPodSetName, Labels: map[string]string{"batch": "7"}, Annotations: map[string]string{"consume": "request-1"},
					Tolerations: []corev1.Toleration{{Key: "new", Operator: corev1.TolerationOpExists}},
				}},
			}}})).To(Succeed())
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.expectJob(ctx, "checked", "ready")
		for _, pod := range t.podsOfJob(ctx, Default, "checked") {
			Expect(pod.Labels).To(And(HaveKeyWithValue("batch", "7"), HaveKeyWithValue(apis.LocalQueueLabel, "other")))
			Expect(pod.Annotations).To(HaveKeyWithValue("consume", "request-1"))
			Expect(pod.Spec.Tolerations).To(ContainElement(HaveField("Key", "new")))
		}

		By("evicting it")
		t.evictJob(ctx, "checked", preemption)
		Eventually(func(g Gomega) {
			job, w := t.queued(ctx, g, "checked")
			g.Expect(w.Status.AdmissionChecks).To(ConsistOf(HaveField("State", kueue.CheckStatePending)))
			g.Expect(*job.Spec.Suspend).To(BeTrue())
			g.Expect(job.Spec.Template.Labels).NotTo(HaveKey("batch"))
			g.Expect(job.Spec.Template.Annotations).NotTo(HaveKey("consume"))
			g.Expect(job.Spec.Template.Spec.Tolerations).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
	}, SpecTimeout(specTimeout))

	It("goes on while the queue is held, and is evicted when the queue is drained", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		Expect(env.Admin.Create(ctx, t.newJob("runs", 1, "2"))).To(Succeed())
		t.expectJob(ctx, "runs", "ready")
		t.patchQueue(ctx, `{"spec":{"stopPolicy":"Hold"}}`)
		Eventually(func(g Gomega) {
			var queue kueue.ClusterQueue
			g.Expect(env.Admin.Get(ctx, client.ObjectKey{Name: t.namespace}, &queue)).To(Succeed())
			g.Expect(apimeta.IsStatusConditionFalse(queue.Status.Conditions, kueue.ClusterQueueActive)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		Expect(env.Admin.Create(ctx, t.newJob("late", 1, "2"))).To(Succeed())
		t.expectJob(ctx, "late", "waiting")
		t.expectJob(ctx, "runs", "ready")
		newTeam(ctx, "1", "0").awaitHandled(ctx) // this queue admits nothing
		for name, state := range map[string]string{"late": "waiting", "runs": "ready"} {
			_, w := t.queued(ctx, Default, name)
			Expect(stateOfStage(w)).To(Equal(state), name)
		}
		t.patchQueue(ctx, `{"spec":{"stopPolicy":"HoldAndDrain"}}`)
		t.expectJob(ctx, "runs", "waiting")
		t.expectEvent(ctx, "runs", "Stopped")
		t.patchQueue(ctx, `{"spec":{"stopPolicy":"None"}}`)
		t.expectJob(ctx, "runs", "ready")
		t.expectJob(ctx, "late", "ready")
	}, SpecTimeout(specTimeout))

	It("runs on when quota is cut below what runs, and starts after a cut only what fits", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		setQuota := func(gpus string) {
			Eventually(func(g Gomega) {
				var queue kueue.ClusterQueue
				g.Expect(env.Admin.Get(ctx, client.ObjectKey{Name: t.namespace}, &queue)).To(Succeed())
				queue.Spec.ResourceGroups[1].Flavors[0].Resources[0].NominalQuota = sample.Amounts("gpu", gpus)["gpu"]
				g.Expect(env.Admin.Update(ctx, &queue)).To(Succeed())
			}).WithContext(ctx).Should(Succeed())
		}
		Expect(env.Admin.Create(ctx, t.newJob("runs", 4, "1"))).To(Succeed())
		t.expectJob(ctx, "runs", "ready")
		setQuota("2")
		Expect(env.Admin.Create(ctx, t.newJob("small", 1, "1"))).To(Succeed())
		t.expectJob(ctx, "small", "waiting")
		t.endPodsOf(ctx, Default, "runs", 2) // it uses all of the quota
		t.expectReserved(ctx, "2")
		t.expectJob(ctx, "small", "waiting")
		t.expectJob(ctx, "runs", "ready")
		t.endPodsOf(ctx, Default, "runs", 1)
		t.expectJob(ctx, "small", "ready")
		t.expectReserved(ctx, "2")

		By("evicting it while there is no quota")
		setQuota("0")
		t.evictJob(ctx, "runs", preemption)
		t.expectJob(ctx, "runs", "waiting")
		t.expectReserved(ctx, "1")
		setQuota("2")
		t.expectJob(ctx, "runs", "ready")
		t.expectJob(ctx, "small", "ready")
	}, SpecTimeout(specTimeout))

	It("reports a foreign Workload of the name of its quota Workload, and waits until that is deleted", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		job := t.newJob("taken", 1, "2")
		job.Labels, job.Spec.Suspend = map[string]string{"team": "ml"}, new(true)
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		foreign := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Namespace: t.namespace, Name: workloadname.Of(workloadname.Owner{Kind: "Job", Group: batchv1.GroupName, Name: job.Name, UID: job.UID}, ""),
		}, Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1, Template: *job.Spec.Template.DeepCopy()}}}}
		foreign.Spec.PodSets[0].Template.Labels = nil
		Expect(env.Admin.Create(ctx, foreign)).To(Succeed())
		t.patchJob(ctx, "taken", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"queue"}}}`)
		t.expectEvent(ctx, "taken", "Misconfigured")
		Expect(t.podsOfJob(ctx, Default, "taken")).To(BeEmpty())
		Expect(env.Admin.Delete(ctx, foreign)).To(Succeed())
		// The manager looks again after a while; a change of the Job lets it look at once.
		t.patchJob(ctx, "taken", `{"metadata":{"labels":{"look":"again"}}}`)
		t.expectJob(ctx, "taken", "ready")
	}, SpecTimeout(specTimeout))

	It("is one that the CronJob controller creates", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		job := t.newJob("", 1, "2")
		cron := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "nightly"},
			Spec: batchv1.CronJobSpec{
				Schedule: "* * * * *", StartingDeadlineSeconds: new(int64(600)), ConcurrencyPolicy: batchv1.ForbidConcurrent,
				JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: job.Labels}, Spec: job.Spec},
			},
		}
		Expect(env.Admin.Create(ctx, cron)).To(Succeed())
		// The CronJob controller makes up for the runs that were missed since then.
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(cron), cron)).To(Succeed())
			cron.Status.LastScheduleTime = &metav1.Time{Time: time.Now().Add(-2 * time.Minute)}
			g.Expect(env.Admin.Status().Update(ctx, cron)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		var name string
		Eventually(func(g Gomega) {
			var jobs batchv1.JobList
			g.Expect(env.Admin.List(ctx, &jobs, client.InNamespace(t.namespace))).To(Succeed())
			g.Expect(jobs.Items).NotTo(BeEmpty())
			g.Expect(metav1.IsControlledBy(&jobs.Items[0], cron)).To(BeTrue())
			g.Expect(jobs.Items[0].Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued))
			name = jobs.Items[0].Name
		}).WithContext(ctx).Should(Succeed())
		t.expectJob(ctx, name, "ready")
		t.expectReserved(ctx, "2")
		Expect(env.Admin.Delete(ctx, cron, client.PropagationPolicy("Background"))).To(Succeed())
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))
})
