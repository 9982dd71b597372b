package e2e_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/test/sample"
)

var _ = Describe("Bad input", func() {
	// expectRefusal waits until the JobSet reports why it waits, and then checks that it does not block another JobSet of the queue, and still holds no quota
	// when that one runs.
	expectRefusal := func(ctx SpecContext, t team, js *jobsetapi.JobSet, parts ...string) {
		GinkgoHelper()
		submit(ctx, js)
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
			c := apimeta.FindStatusCondition(js.Status.Conditions, "StageAdmitted")
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Status).To(Equal(metav1.ConditionFalse))
			for _, part := range parts {
				g.Expect(c.Message).To(ContainSubstring(part))
			}
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		submit(ctx, t.newJobSet("good", replicatedJob{name: "main", cpus: "1"}))
		t.expectStages(ctx, "good", "main=ready")
		for _, w := range t.workloads(ctx, Default) {
			if w.Labels[apis.JobSetLabel] == js.Name {
				Expect(quotaworkload.HoldsQuota(&w)).To(BeFalse(), "%s of a JobSet that is refused", w.Name)
			}
		}
	}

	It("names a LocalQueue that does not exist", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.fineTune("lost")
		js.Labels[apis.QueueLabel] = "nowhere"
		expectRefusal(ctx, t, js, "LocalQueue", "nowhere")

		By("admitting it as soon as the LocalQueue exists")
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "nowhere"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.namespace)},
		})).To(Succeed())
		t.expectStages(ctx, "lost", "initializer=ready")
	}, SpecTimeout(specTimeout))

	It("names a LocalQueue that cannot exist", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.fineTune("upper")
		js.Labels[apis.QueueLabel] = "Team_A"
		expectRefusal(ctx, t, js, "Team_A", apis.QueueLabel)
	}, SpecTimeout(specTimeout))

	It("has an annotation that a quota Workload cannot carry", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.fineTune("long")
		level := strings.Repeat("x", 400)
		js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = level
		expectRefusal(ctx, t, js, "trainer-node", "topologyRequest")
		Expect(t.stage(ctx, Default, "long", "initializer")).To(Equal("missing"), "nothing is reserved for it")
	}, SpecTimeout(specTimeout))

	It("uses a ClusterQueue with a flavor that does not exist", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		broken := clusterQueue(t.namespace+"-broken", "10", "15")
		broken.Spec.ResourceGroups[1].Flavors[0].Name = "b200"
		Expect(env.Admin.Create(ctx, broken)).To(Succeed())
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "broken"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(broken.Name)},
		})).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(broken), broken)).To(Succeed())
			c := apimeta.FindStatusCondition(broken.Status.Conditions, kueue.ClusterQueueActive)
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Reason).To(Equal(kueue.ClusterQueueActiveReasonFlavorNotFound))
			g.Expect(c.Message).To(ContainSubstring("b200"))
		}).WithContext(ctx).Should(Succeed())
		js := t.fineTune("broken")
		js.Labels[apis.QueueLabel] = "broken"
		expectRefusal(ctx, t, js, "b200")

		By("admitting it as soon as the flavor exists")
		Expect(env.Admin.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "b200"}})).To(Succeed())
		t.expectStages(ctx, "broken", "initializer=ready")
	}, SpecTimeout(specTimeout))

	It("requests more than the capacity of its queue", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "14")
		expectRefusal(ctx, t, t.fineTune("huge"), "trainer-node", "15", "14", string(gpu))
	}, SpecTimeout(specTimeout))

	It("has a peak above the capacity of its queue, and reads how much would fit", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "6")
		js := t.newJobSet("wide",
			replicatedJob{name: "ps", pods: 2, gpus: "1"},
			replicatedJob{name: "train", replicas: 3, pods: 3, gpus: "1", after: []jobset.DependsOn{{Name: "ps", Status: jobset.DependencyReady}}})
		const refusal = "stage train could never be admitted (would fit with at most 4 of 9 pods of train): " +
			"can never fit: pod set train in ClusterQueue %s: needs 9 nvidia.com/gpu of flavor a100, but the quota is 6"
		told := fmt.Sprintf(refusal, t.namespace)
		expectRefusal(ctx, t, js, `Waiting to admit stage 1/2 "ps": `+told)

		By("reporting the same on its quota Workload and in an Event, and holding no quota")
		Eventually(func(g Gomega) {
			refused := apimeta.FindStatusCondition(t.workload(ctx, g, "wide", "ps").Status.Conditions, apis.WaitingCondition)
			g.Expect(refused).To(HaveValue(MatchFields(IgnoreExtras, Fields{
				"Status": Equal(metav1.ConditionTrue), "Reason": Equal(kueue.WorkloadQuotaReservedReasonExceedsMaxQuota), "Message": Equal(told),
			})))
			g.Expect(t.waits(ctx, g, "wide")).To(ConsistOf(HaveSuffix(told)))
			g.Expect(t.reserved(ctx, g)).To(Equal("0"))
		}).WithContext(ctx).Should(Succeed())
		Expect(t.pods(ctx, Default, "ps")).To(BeEmpty())

		By("reporting what fits when there is more quota")
		t.setQuota(ctx, "8")
		Eventually(func(g Gomega) {
			c := apimeta.FindStatusCondition(t.jobSet(ctx, g, "wide").Status.Conditions, jobsetstatus.StageAdmitted)
			g.Expect(c.Message).To(ContainSubstring("would fit with at most 6 of 9 pods of train"))
		}).WithContext(ctx).WithTimeout(time.Minute + patience).Should(Succeed()) // amounts are written once a minute

		By("admitting it when the quota suffices")
		t.setQuota(ctx, "11")
		t.expectStages(ctx, "wide", "ps=ready", "train=ready")
	}, SpecTimeout(specTimeout))

	It("requests a resource that its queue does not cover", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.newJobSet("odd", replicatedJob{name: "main", cpus: "1"})
		odd := sample.Amounts("google.com/tpu", "4")
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: odd, Limits: odd}
		expectRefusal(ctx, t, js, "google.com/tpu")
	}, SpecTimeout(specTimeout))

	It("names a WorkloadPriorityClass that does not exist", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.fineTune("vip")
		js.Labels[apis.PriorityClassLabel] = "very-important"
		expectRefusal(ctx, t, js, "very-important")

		By("queueing it as soon as the class exists")
		class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "very-important"}, Value: 1000}
		Expect(env.Admin.Create(ctx, class)).To(Succeed())
		t.expectStages(ctx, "vip", "initializer=ready")
		Expect(*t.workloads(ctx, Default)[0].Spec.Priority + *t.workloads(ctx, Default)[1].Spec.Priority).To(BeNumerically(">=", 1000))
	}, SpecTimeout(specTimeout))

	It("sits in a namespace that the ClusterQueue does not select", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		picky := clusterQueue(t.namespace+"-picky", "10", "15")
		picky.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "allowed"}}
		Expect(env.Admin.Create(ctx, picky)).To(Succeed())
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "picky"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(picky.Name)},
		})).To(Succeed())
		js := t.fineTune("outsider")
		js.Labels[apis.QueueLabel] = "picky"
		expectRefusal(ctx, t, js, t.namespace, picky.Name)

		By("admitting it as soon as the namespace is selected")
		var namespace corev1.Namespace
		Expect(env.Admin.Get(ctx, client.ObjectKey{Name: t.namespace}, &namespace)).To(Succeed())
		namespace.Labels["gpu"] = "allowed"
		Expect(env.Admin.Update(ctx, &namespace)).To(Succeed())
		t.expectStages(ctx, "outsider", "initializer=ready")
	}, SpecTimeout(specTimeout))
})
