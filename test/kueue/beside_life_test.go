package kueue_test

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

var _ = Describe("Stages that Kueue admits", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		startBeside(ctx)
	}, NodeTimeout(patience))

	It("run one after the other, each on its own quota", func(ctx SpecContext) {
		tenant(ctx, "in-order", 2)
		js := stagedJobSet("in-order", map[string]string{apis.QueueLabel: "queue"}, "1")
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		awaitCompletion(ctx, js)
		for _, name := range []string{"first", "second"} {
			w := stageOf(ctx, js, name)
			Expect(w).To(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadFinishedReasonSucceeded))
		}
		Expect(stageOf(ctx, js, "second").Status.Conditions).To(ContainElement(HaveField("Type", kueue.WorkloadAdmitted)))
		job := childOf(ctx, js, "second")
		Expect(job.Spec.Template.Spec.NodeSelector).To(HaveKeyWithValue("pool", "gpu"))
		Expect(job.Spec.Template.Annotations).To(HaveKeyWithValue(kueue.WorkloadAnnotation, stageOf(ctx, js, "second").Name))
	}, NodeTimeout(patience))

	It("name their queue in a label of Tranche, also where a LocalQueue default exists", func(ctx SpecContext) {
		tenant(ctx, "own-label", 2)
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "own-label", Name: "default"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "own-label"},
		})).To(Succeed())
		js := stagedJobSet("own-label", map[string]string{apis.OwnQueueLabel: "queue"}, "1")
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		awaitCompletion(ctx, js)
		Expect(read(ctx, js)(NewGomega(Fail)).Labels).NotTo(HaveKey(apis.QueueLabel))
		var jobs batchv1.JobList
		Expect(env.Admin.List(ctx, &jobs, client.InNamespace("own-label"))).To(Succeed())
		for i := range jobs.Items {
			Expect(jobs.Items[i].Labels).NotTo(HaveKey(apis.QueueLabel))
		}
		var workloads kueue.WorkloadList
		Expect(env.Admin.List(ctx, &workloads, client.InNamespace("own-label"))).To(Succeed())
		Expect(workloads.Items).To(HaveLen(2), "only the stages have a Workload")
	}, NodeTimeout(patience))

	It("are evicted by a Job of a higher priority, and come back", func(ctx SpecContext) {
		tenant(ctx, "preempted", 2, func(cq *kueue.ClusterQueue) {
			cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
		})
		Expect(env.Admin.Create(ctx, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000})).To(Succeed())
		js := stagedJobSet("preempted", map[string]string{apis.QueueLabel: "queue"}, "1")
		js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = "600"
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "second")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())

		urgent := newJob("preempted", 2)
		urgent.Labels[apis.PriorityClassLabel] = "urgent"
		Expect(env.Admin.Create(ctx, urgent)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, urgent))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		second := stageOf(ctx, js, "second")
		Eventually(read(ctx, second)).WithContext(ctx).Should(haveCondition(kueue.WorkloadAdmitted, metav1.ConditionTrue, ""))
		Expect(stageOf(ctx, js, "first")).To(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""), "a finished stage does not run again")
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "second")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
		Expect(second.Status.SchedulingStats).To(HaveField("Evictions", ContainElement(HaveField("Reason", kueue.WorkloadEvictedByPreemption))))
	}, NodeTimeout(patience))

	It("share a cohort with Jobs of Kueue", func(ctx SpecContext) {
		inCohort := func(cq *kueue.ClusterQueue) { cq.Spec.CohortName = "shared" }
		tenant(ctx, "lends", 2, inCohort)
		tenant(ctx, "borrows", 0, inCohort)
		js := stagedJobSet("borrows", map[string]string{apis.QueueLabel: "queue"}, "1")
		js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = "600"
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		second := func() *kueue.Workload { return stageOf(ctx, js, "second") }
		Eventually(func() *kueue.Workload { return second() }).WithContext(ctx).Should(haveCondition(kueue.WorkloadAdmitted, metav1.ConditionTrue, ""))
		job := newJob("lends", 2)
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, job))).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""), "the stage holds the quota")
		Expect(env.Admin.Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, job))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
	}, NodeTimeout(patience))

	It("end when their Workload is deactivated, and go on when it is active again", func(ctx SpecContext) {
		tenant(ctx, "deactivated", 2)
		js := stagedJobSet("deactivated", map[string]string{apis.QueueLabel: "queue"}, "1")
		js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = "600"
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "second")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
		second := stageOf(ctx, js, "second")
		Expect(env.Admin.Patch(ctx, second, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"active":false}}`)))).To(Succeed())
		Eventually(read(ctx, second)).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "second")).To(BeFalse()) }).WithContext(ctx).Should(Succeed())
		Expect(env.Admin.Patch(ctx, second, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"active":true}}`)))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "second")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(patience))

	It("run in one domain of a topology", func(ctx SpecContext) {
		rackTopology(ctx)
		tenant(ctx, "topology", 4, func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups[0].Flavors[0].Name = "racks" })
		js := stagedJobSet("topology", map[string]string{apis.QueueLabel: "queue"}, "1")
		for i := range js.Spec.ReplicatedJobs {
			js.Spec.ReplicatedJobs[i].Template.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = rack
		}
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		awaitCompletion(ctx, js)
		second := stageOf(ctx, js, "second")
		Expect(second.Spec.PodSets[0].TopologyRequest).To(And(
			HaveField("Required", HaveValue(Equal(rack))), HaveField("PodIndexLabel", HaveValue(Equal(batchv1.JobCompletionIndexAnnotation))),
			HaveField("SubGroupIndexLabel", HaveValue(Equal(jobset.JobIndexKey))), HaveField("SubGroupCount", HaveValue(BeEquivalentTo(1)))))
		var pods corev1.PodList
		Expect(env.Admin.List(ctx, &pods, client.InNamespace("topology"), client.MatchingLabels{jobset.ReplicatedJobNameKey: "second"})).To(Succeed())
		Expect(pods.Items).To(HaveLen(2))
		racks := map[string]bool{}
		for i := range pods.Items {
			Expect(pods.Items[i].Spec.NodeSelector).To(HaveKey(rack), "Kueue's manager has placed the pod")
			racks[pods.Items[i].Spec.NodeSelector[rack]] = true
		}
		Expect(racks).To(HaveLen(1))
	}, NodeTimeout(patience))

	It("get what an AdmissionCheck asks for, and lose only their reservation when it asks for a retry", func(ctx SpecContext) {
		check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "booking"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/booking"}}
		Expect(env.Admin.Create(ctx, check)).To(Succeed())
		before := check.DeepCopy()
		meta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Test"})
		Expect(env.Admin.Status().Patch(ctx, check, client.MergeFrom(before))).To(Succeed())
		Expect(env.Admin.Create(ctx, &kueue.AdmissionCheck{
			ObjectMeta: metav1.ObjectMeta{Name: "booked-stages"}, Spec: kueue.AdmissionCheckSpec{ControllerName: apis.StageSafetyController},
		})).To(Succeed())
		bookNode(ctx)
		tenant(ctx, "booked", 4, checked("booking", "booked-stages"))
		js := stagedJobSet("booked", map[string]string{apis.QueueLabel: "queue"}, "600")
		js.Spec.ReplicatedJobs[1].DependsOn[0].Status = jobset.DependencyReady
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		answerBooking(ctx, js, "first", kueue.CheckStateReady)
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "first")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
		expectBooked(ctx, js, "first")

		var started []corev1.Pod
		Eventually(func(g Gomega) {
			started = podsOf(ctx, g, js, "first")
			g.Expect(started).To(HaveLen(2))
		}).WithContext(ctx).Should(Succeed())
		answerBooking(ctx, js, "second", kueue.CheckStateRetry)
		Eventually(func() *kueue.Workload { return stageOf(ctx, js, "second") }).WithContext(ctx).Should(
			HaveField("Status.SchedulingStats.Evictions", ContainElement(HaveField("Reason", kueue.WorkloadEvictedByAdmissionCheck))))
		answerBooking(ctx, js, "second", kueue.CheckStateReady)
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "second")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
		expectBooked(ctx, js, "second")
		Expect(podsOf(ctx, NewGomega(Fail), js, "first")).To(HaveExactElements(HaveField("UID", started[0].UID), HaveField("UID", started[1].UID)), "the first stage runs on")
	}, NodeTimeout(patience))

	It("are protected from all users but the two managers", func(ctx SpecContext) {
		tenant(ctx, "protected", 0) // nothing is admitted
		js := stagedJobSet("protected", map[string]string{apis.QueueLabel: "queue"}, "1")
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		second := stageOf(ctx, js, "second")
		user, err := env.As("editor", "system:masters") // the policies apply to a user who may do everything else
		Expect(err).NotTo(HaveOccurred())
		kueues, err := env.As(controlplane.KueueUser)
		Expect(err).NotTo(HaveOccurred())
		change := func(c client.Client, patch string) error {
			return c.Patch(ctx, second.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)), client.DryRunAll)
		}
		for patch, message := range map[string]string{
			`{"metadata":{"annotations":{"kueue.x-k8s.io/admission-gated-by":null}}}`: "removes gates that begin with tranche.dev/",
			`{"metadata":{"labels":{"tranche.dev/stage":"first"}}}`:                   "labels that begin with tranche.dev/",
			`{"metadata":{"labels":{"kueue.x-k8s.io/job-uid":"other"}}}`:              "kueue.x-k8s.io/job-uid cannot be changed",
			`{"metadata":{"ownerReferences":null}}`:                                   "metadata.ownerReferences: cannot be changed",
			`{"spec":{"queueName":"other"}}`:                                          "changes podSets and queueName",
		} {
			Expect(change(user, patch)).To(MatchError(ContainSubstring(message)), patch)
			Expect(change(kueues, patch)).To(MatchError(ContainSubstring(message)), "Kueue's manager: "+patch)
		}
		Expect(change(user, `{"metadata":{"finalizers":null}}`)).To(MatchError(ContainSubstring("removes tranche.dev/quota-in-use")))
		Expect(change(kueues, `{"metadata":{"finalizers":null}}`)).To(MatchError(ContainSubstring("removes tranche.dev/quota-in-use")))
		// Its integration of JobSets finishes the Workloads of a JobSet that is being deleted.
		finished := second.DeepCopy()
		finished.Status.Conditions = append(finished.Status.Conditions, condition(kueue.WorkloadFinished, metav1.ConditionTrue))
		Expect(kueues.Status().Patch(ctx, finished, client.MergeFrom(second), client.DryRunAll)).To(MatchError(ContainSubstring("only Tranche's manager adds Finished")))
		Expect(change(user, `{"spec":{"active":false}}`)).To(Succeed())
		Expect(change(kueues, `{"spec":{"active":false}}`)).To(Succeed())
		both := stagedJobSet("protected", map[string]string{apis.QueueLabel: "queue", apis.OwnQueueLabel: "other"}, "1")
		both.Name = "both"
		Expect(user.Create(ctx, both, client.DryRunAll)).To(MatchError(ContainSubstring("must be equal to kueue.x-k8s.io/queue-name")))
	}, NodeTimeout(patience))

	It("are told apart from JobSets that Kueue manages as well", func(ctx SpecContext) {
		tenant(ctx, "twice", 2)
		js := stagedJobSet("twice", map[string]string{apis.QueueLabel: "queue"}, "1")
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		foreign := stageOf(ctx, js, "first").DeepCopy()
		foreign.ObjectMeta = metav1.ObjectMeta{
			Namespace: "twice", Name: "jobset-js-12345", Labels: map[string]string{apis.JobUIDLabel: string(js.UID)}, OwnerReferences: foreign.OwnerReferences,
		}
		foreign.Spec.Active, foreign.Status = new(false), kueue.WorkloadStatus{}
		Expect(env.Admin.Create(ctx, foreign)).To(Succeed())
		Expect(env.Admin.Patch(ctx, js, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"touched":"true"}}}`)))).To(Succeed())
		Eventually(func(g Gomega) {
			c := meta.FindStatusCondition(read(ctx, js)(g).Status.Conditions, "StageAdmitted")
			g.Expect(c).To(HaveField("Message", And(ContainSubstring(`Workload "jobset-js-12345" exists for the JobSet`), ContainSubstring(apis.OwnQueueLabel))))
		}).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(patience))

	It("release their quota while the user suspends the JobSet", func(ctx SpecContext) {
		tenant(ctx, "suspended", 2)
		js := stagedJobSet("suspended", map[string]string{apis.QueueLabel: "queue"}, "1")
		js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = "600"
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "second")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
		suspend := func(value bool) {
			GinkgoHelper()
			Expect(env.Admin.Patch(ctx, js, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, value)))).To(Succeed())
		}
		suspend(true)
		second := stageOf(ctx, js, "second")
		Eventually(read(ctx, second)).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))
		Expect(second).To(haveCondition(kueue.WorkloadRequeued, metav1.ConditionFalse, "AdmissionGated:suspended"))
		other := newJob("suspended", 2)
		Expect(env.Admin.Create(ctx, other)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, other))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		Expect(read(ctx, second)(NewGomega(Fail))).To(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""), "Kueue leaves the gated stage alone")
		suspend(false)
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "second")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(patience))
})

// rack is the label of the topology's domains.
const rack = "example.com/rack"

// rackTopology makes a Topology of racks with 2 nodes each, and the flavor "racks" of it.
func rackTopology(ctx context.Context) {
	GinkgoHelper()
	var nodes corev1.NodeList
	Expect(env.Admin.List(ctx, &nodes)).To(Succeed())
	for i := range nodes.Items {
		label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"r%d"}}}`, rack, i/2)
		Expect(env.Admin.Patch(ctx, &nodes.Items[i], client.RawPatch("application/merge-patch+json", label))).To(Succeed())
	}
	Expect(env.Admin.Create(ctx, &kueue.Topology{
		ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: rack}}},
	})).To(Succeed())
	Expect(env.Admin.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{"pool": "gpu"}, TopologyName: new(kueue.TopologyReference("racks")),
	}})).To(Succeed())
}

// booking is the key of what an AdmissionCheck asks for.
const booking = "example.com/booking"

var bookedTolerations = []corev1.Toleration{{Key: booking, Operator: corev1.TolerationOpEqual, Value: "seven", Effect: corev1.TaintEffectNoSchedule}}

// bookNode makes one node that only pods with the booking may use.
func bookNode(ctx context.Context) {
	GinkgoHelper()
	var nodes corev1.NodeList
	Expect(env.Admin.List(ctx, &nodes, client.MatchingLabels{"pool": "gpu"})).To(Succeed())
	name := nodes.Items[len(nodes.Items)-1].Name
	Expect(env.Admin.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
		`{"metadata":{"labels":{%q:"seven"}},"spec":{"taints":[{"key":%q,"value":"seven","effect":"NoSchedule"}]}}`, booking, booking)))).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		restore := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}},"spec":{"taints":null}}`, booking))
		Expect(env.Admin.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, restore)).To(Succeed())
	}, NodeTimeout(patience))
}

// expectBooked expects that the pods of a stage have what the check "booking" asks for, besides what the flavor asks for.
func expectBooked(ctx context.Context, js *jobsetapi.JobSet, stage string) {
	GinkgoHelper()
	template := childOf(ctx, js, stage).Spec.Template
	Expect(template.Labels).To(HaveKeyWithValue(booking, "7"))
	Expect(template.Annotations).To(HaveKeyWithValue(booking, "for "+stage))
	for _, pod := range podsOf(ctx, NewGomega(Fail), js, stage) {
		Expect(pod.Labels).To(HaveKeyWithValue(booking, "7"))
		Expect(pod.Annotations).To(HaveKeyWithValue(booking, "for "+stage))
		Expect(pod.Spec.NodeSelector).To(And(HaveKeyWithValue(booking, "seven"), HaveKeyWithValue("pool", "gpu")))
		Expect(pod.Spec.Tolerations).To(ContainElements(bookedTolerations))
	}
}

// answerBooking sets the state of the check "booking" of a stage, once its quota is reserved.
func answerBooking(ctx context.Context, js *jobsetapi.JobSet, stage string, state kueue.CheckState) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		w := stageOf(ctx, js, stage)
		g.Expect(w).To(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, ""))
		g.Expect(w).NotTo(haveCondition(kueue.WorkloadEvicted, metav1.ConditionTrue, ""))
		i := slices.IndexFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.Name == "booking" })
		g.Expect(i).To(BeNumerically(">=", 0))
		check := &w.Status.AdmissionChecks[i]
		check.State, check.Message, check.LastTransitionTime = state, "by the test", metav1.Now()
		if state == kueue.CheckStateReady {
			check.PodSetUpdates = []kueue.PodSetUpdate{{
				Name: kueue.NewPodSetReference(stage), Labels: map[string]string{booking: "7"}, Annotations: map[string]string{booking: "for " + stage},
				NodeSelector: map[string]string{booking: "seven"}, Tolerations: bookedTolerations,
			}}
		}
		g.Expect(env.Admin.Status().Update(ctx, w)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// stagedJobSet returns the JobSet "js" with the stages first and second, of 2 pods with 1 GPU each that run for some seconds.
func stagedJobSet(namespace string, labels map[string]string, seconds string) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "js", Labels: labels}}
	for _, name := range []string{"first", "second"} {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs,
			sample.ReplicatedJob(name, 2, sample.Amounts(string(gpu), "1"), map[string]string{controlplane.FakeRunTime: seconds}))
	}
	js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "first", Status: jobset.DependencyComplete}}
	return js
}

// awaitCompletion waits until a JobSet has completed.
func awaitCompletion(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(meta.IsStatusConditionTrue(read(ctx, js)(g).Status.Conditions, string(jobset.JobSetCompleted))).To(BeTrue(), "%+v", js.Status.Conditions)
	}).WithContext(ctx).Should(Succeed())
	Eventually(func(g Gomega) {
		var list kueue.WorkloadList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(js.Namespace), client.MatchingLabels{apis.JobSetLabel: js.Name})).To(Succeed())
		for i := range list.Items {
			g.Expect(&list.Items[i]).To(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		}
	}).WithContext(ctx).Should(Succeed())
}

// stageOf returns the quota Workload of a stage, once it exists.
func stageOf(ctx context.Context, js *jobsetapi.JobSet, stage string) *kueue.Workload {
	GinkgoHelper()
	var list kueue.WorkloadList
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(js.Namespace), client.MatchingLabels{apis.JobSetLabel: js.Name, apis.StageLabel: stage})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
	}).WithContext(ctx).Should(Succeed())
	return &list.Items[0]
}

// childOf returns the first Job of a ReplicatedJob.
func childOf(ctx context.Context, js *jobsetapi.JobSet, replicatedJob string) *batchv1.Job {
	GinkgoHelper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: js.Namespace, Name: js.Name + "-" + replicatedJob + "-0"}}
	Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
	return job
}

// podsOf returns the pods of a ReplicatedJob that have not terminated.
func podsOf(ctx context.Context, g Gomega, js *jobsetapi.JobSet, replicatedJob string) []corev1.Pod {
	var list corev1.PodList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(js.Namespace),
		client.MatchingLabels{jobset.JobSetNameKey: js.Name, jobset.ReplicatedJobNameKey: replicatedJob})).To(Succeed())
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	})
}

// runs reports whether pods of a ReplicatedJob are running.
func runs(ctx context.Context, g Gomega, js *jobsetapi.JobSet, replicatedJob string) bool {
	return slices.ContainsFunc(podsOf(ctx, g, js, replicatedJob), func(pod corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
}
