package kueue_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// What Kueue does with objects that others write: Tranche relies on it, so that a version of Kueue that does otherwise must be noticed.
var _ = Describe("Facts about Kueue", func() {
	BeforeEach(removeBeside, NodeTimeout(patience))

	It("admits a Job, also after its manager was killed", func(ctx SpecContext) {
		tenant(ctx, "alone", 4)
		Expect(env.Plane.KillComponent(controlplane.Kueue)).To(Succeed())
		Expect(env.Plane.StartComponent(ctx, controlplane.Kueue)).To(Succeed())
		job := newJob("alone", 2)
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		w := workloadOf(ctx, job)
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		Expect(meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted)).To(BeTrue())
		Expect(read(ctx, job)(NewGomega(Fail)).Spec.Template.Spec.NodeSelector).To(HaveKeyWithValue("pool", "gpu"))
	}, NodeTimeout(2*patience))

	It("has the permissions of its own manifests only", func(ctx SpecContext) {
		kueues, err := env.As(controlplane.KueueUser)
		Expect(err).NotTo(HaveOccurred())
		Expect(kueues.List(ctx, &kueue.WorkloadList{})).To(Succeed())
		Expect(kueues.List(ctx, &corev1.SecretList{})).To(MatchError(ContainSubstring("forbidden")))
	}, NodeTimeout(patience))

	It("lets another engine admit a Job in a held queue, and evict it", func(ctx SpecContext) {
		tenant(ctx, "held", 4, held)
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "held"}}
		job := newJob("held", 2)
		job.Spec.Template.Annotations = map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		w := workloadOf(ctx, job)
		By("saying that the queue is not active, on the queue and on what waits")
		Eventually(func(g Gomega) {
			active := meta.FindStatusCondition(read(ctx, cq)(g).Status.Conditions, kueue.ClusterQueueActive)
			g.Expect(active).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", kueue.ClusterQueueActiveReasonStopped)))
			reserved := meta.FindStatusCondition(read(ctx, w)(g).Status.Conditions, kueue.WorkloadQuotaReserved)
			g.Expect(reserved).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", "ClusterQueue held is inactive")))
		}).WithContext(ctx).Should(Succeed())

		By("resuming the Job with the flavor's node labels")
		apply(ctx, w, admission(w, "held", kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted))
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadPodsReady, metav1.ConditionTrue, ""))
		Expect(read(ctx, job)(NewGomega(Fail)).Spec.Template.Spec.NodeSelector).To(HaveKeyWithValue("pool", "gpu"))

		By("counting it in the status of both queues")
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "held", Name: "queue"}}
		Eventually(read(ctx, cq)).WithContext(ctx).Should(HaveField("Status.AdmittedWorkloads", BeEquivalentTo(1)))
		Eventually(read(ctx, lq)).WithContext(ctx).Should(HaveField("Status.AdmittedWorkloads", BeEquivalentTo(1)))

		By("clearing the admission once the pods of an evicted Job are gone")
		apply(ctx, w, withEviction(admission(w, "held", kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted)))
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))
		Expect(w.Status.Admission).To(BeNil())
		Expect(w.Status.Conditions).To(ContainElement(And(HaveField("Type", kueue.WorkloadEvicted), HaveField("Status", metav1.ConditionTrue))))
		Expect(read(ctx, job)(NewGomega(Fail)).Spec.Suspend).To(HaveValue(BeTrue()))
		Expect(job.Status.Active).To(BeZero())

		By("clearing the next admission at once if it leaves Evicted as it is")
		apply(ctx, w, admission(w, "held", kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted))
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))
		Expect(w.Status.Admission).To(BeNil())

		By("resuming the Job again if it sets Evicted and Preempted to False")
		again := admission(w, "held", kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted)
		for _, name := range []string{kueue.WorkloadEvicted, kueue.WorkloadPreempted} {
			again.Conditions = append(again.Conditions, condition(name, metav1.ConditionFalse))
		}
		apply(ctx, w, again)
		Eventually(read(ctx, job)).WithContext(ctx).Should(HaveField("Status.Active", BeEquivalentTo(2)))
		Expect(read(ctx, w)(NewGomega(Fail))).To(haveCondition(kueue.WorkloadAdmitted, metav1.ConditionTrue, ""))
	}, NodeTimeout(2*patience))

	It("stops an elastic Job whose slice is evicted, but not while a larger slice waits", func(ctx SpecContext) {
		const queue = "sliced"
		tenant(ctx, queue, 4, held)
		job := named(lasting(newJob(queue, 1), "600"), "elastic")
		job.Annotations, job.Spec.Completions = map[string]string{apis.ElasticJobAnnotation: "true"}, new(int32(2))
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		slice := workloadOf(ctx, job)
		isAdmitted := admission(slice, queue, kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted)
		apply(ctx, slice, isAdmitted)
		awaitRunning(ctx, job, slice, 1)
		apply(ctx, slice, withEviction(isAdmitted.DeepCopy()))
		Eventually(read(ctx, slice)).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))
		Expect(read(ctx, job)(NewGomega(Fail)).Spec.Suspend).To(HaveValue(BeTrue()))

		isAdmitted.Conditions = append(isAdmitted.Conditions, condition(kueue.WorkloadEvicted, metav1.ConditionFalse))
		apply(ctx, slice, isAdmitted)
		awaitRunning(ctx, job, slice, 1)
		Expect(env.Admin.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"parallelism":2}}`)))).To(Succeed())
		larger := awaitLargerSlice(ctx, slice)

		By("releasing its quota at once")
		apply(ctx, slice, withEviction(admission(slice, queue, kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted)))
		Eventually(read(ctx, slice)).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadSliceReplaced))

		By("letting its pod run on, also after another Job has come and gone")
		other := named(newJob(queue, 1), "other")
		Expect(env.Admin.Create(ctx, other)).To(Succeed())
		w := workloadOf(ctx, other)
		apply(ctx, w, admission(w, queue, kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted))
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		Expect(read(ctx, job)(NewGomega(Fail))).To(And(HaveField("Spec.Suspend", HaveValue(BeFalse())), HaveField("Status.Ready", HaveValue(BeEquivalentTo(1)))))
		Expect(read(ctx, larger)(NewGomega(Fail)).Status.Admission).To(BeNil())
		removePods(ctx, queue)
	}, NodeTimeout(2*patience))

	It("clears a reservation in a held queue while AdmissionChecks are pending, and else admits it", func(ctx SpecContext) {
		newCheck(ctx, "never-answered")
		tenant(ctx, "reserved", 4, held)
		tenant(ctx, "checked", 4, held, checked("never-answered"))
		kept, cleared := newWorkload(ctx, "reserved", nil), newWorkload(ctx, "checked", nil)
		for _, w := range []*kueue.Workload{kept, cleared} {
			apply(ctx, w, admission(w, kueue.ClusterQueueReference(w.Namespace), kueue.WorkloadQuotaReserved))
		}
		Eventually(read(ctx, kept)).WithContext(ctx).Should(haveCondition(kueue.WorkloadAdmitted, metav1.ConditionTrue, ""))
		Eventually(read(ctx, cleared)).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))
		Expect(cleared.Status.Admission).To(BeNil())
	}, NodeTimeout(patience))

	It("clears an admission of what is gated", func(ctx SpecContext) {
		tenant(ctx, "gated", 4)
		job := newJob("gated", 1)
		job.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		w := workloadOf(ctx, job)
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, kueue.WorkloadAdmissionGated))
		apply(ctx, w, admission(w, "gated", kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted))
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))
		Expect(w.Status.Admission).To(BeNil())
		// Its Job may have been resumed in between.
		Eventually(read(ctx, job)).WithContext(ctx).Should(HaveField("Spec.Suspend", HaveValue(BeTrue())))
	}, NodeTimeout(patience))

	It("reserves quota for the Workloads of others, and asks the controllers of AdmissionChecks", func(ctx SpecContext) {
		const check = "facts-check"
		newCheck(ctx, check)
		tenant(ctx, "others", 4, checked(check))
		js := newJobSet("others", "owner")
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		w := newWorkload(ctx, "others", func(w *kueue.Workload) {
			w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetKind)}
			w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
		})
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, kueue.WorkloadAdmissionGated))

		By("reserving when the gate is removed, and waiting for the check")
		before := w.DeepCopy()
		w.Annotations = nil
		Expect(env.Admin.Patch(ctx, w, client.MergeFrom(before))).To(Succeed())
		Eventually(read(ctx, w)).WithContext(ctx).Should(And(
			haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, ""), haveCheck(check, kueue.CheckStatePending)))
		Expect(w.Status.Conditions).NotTo(ContainElement(And(HaveField("Type", kueue.WorkloadAdmitted), HaveField("Status", metav1.ConditionTrue))))

		By("evicting for Retry, and leaving the reservation to the controller of the job")
		answer(ctx, w, check, kueue.CheckStateRetry)
		Eventually(read(ctx, w)).WithContext(ctx).Should(And(
			haveCondition(kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByAdmissionCheck), haveCheck(check, kueue.CheckStatePending)))
		Expect(w).To(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, ""))
		clearReservation(ctx, w)

		By("reserving again, and admitting for Ready")
		Eventually(read(ctx, w)).WithContext(ctx).Should(And(
			haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, ""), haveCondition(kueue.WorkloadEvicted, metav1.ConditionFalse, "")))
		answer(ctx, w, check, kueue.CheckStateReady)
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadAdmitted, metav1.ConditionTrue, ""))
	}, NodeTimeout(2*patience))

	It("puts the LocalQueue default on pods, and on the Jobs of a JobSet, without a queue", func(ctx SpecContext) {
		tenant(ctx, "defaulted", 4)
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "defaulted", Name: "default"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "defaulted"},
		})).To(Succeed())
		Eventually(func(g Gomega) {
			job := newJob("defaulted", 1)
			job.Labels = nil
			g.Expect(env.Admin.Create(ctx, job, client.DryRunAll)).To(Succeed())
			g.Expect(job.Labels).To(HaveKeyWithValue(apis.QueueLabel, "default"))
		}).WithContext(ctx).Should(Succeed())
		for _, owners := range [][]metav1.OwnerReference{nil, {{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "x", Controller: new(true)}}} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "defaulted", GenerateName: "agent-", OwnerReferences: owners}, Spec: newJob("defaulted", 1).Spec.Template.Spec}
			Expect(env.Admin.Create(ctx, pod, client.DryRunAll)).To(Succeed())
			Expect(pod.Labels).To(HaveKeyWithValue(apis.QueueLabel, "default"))
			Expect(pod.Spec.SchedulingGates).To(ContainElement(HaveField("Name", apis.PodAdmissionGate)))
		}
		js := newJobSet("defaulted", "owner")
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "defaulted", Name: "owner-main-0"}}
		Eventually(func() error { return env.Admin.Get(ctx, client.ObjectKeyFromObject(child), child) }).WithContext(ctx).Should(Succeed())
		Expect(child.Labels).To(HaveKeyWithValue(apis.QueueLabel, "default"), "it is queued by itself, since no integration manages its JobSet")
		Expect(workloadOf(ctx, child).Spec.QueueName).To(BeEquivalentTo("default"))
	}, NodeTimeout(patience))
})

// held stops a ClusterQueue for Kueue's scheduler.
func held(cq *kueue.ClusterQueue) { cq.Spec.StopPolicy = new(kueue.Hold) }

// checked asks AdmissionChecks before a ClusterQueue admits.
func checked(names ...kueue.AdmissionCheckReference) func(*kueue.ClusterQueue) {
	return func(cq *kueue.ClusterQueue) {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
		for _, name := range names {
			checks := &cq.Spec.AdmissionChecksStrategy.AdmissionChecks
			*checks = append(*checks, kueue.AdmissionCheckStrategyRule{Name: name})
		}
	}
}
