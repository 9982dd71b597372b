package adoption_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/testenv"
)

// expectNewerReported creates a Job and a JobSet that no admission policy holds, although the policies were installed before.
func expectNewerReported(ctx SpecContext) {
	GinkgoHelper()
	By("waiting until the policies are so old that nothing is adopted that is newer")
	for _, name := range []string{apis.QueueJobsBinding, apis.HoldJobSetsBinding} {
		binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
		Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(binding), binding)).To(Succeed())
		Eventually(func() time.Duration { return time.Since(binding.CreationTimestamp.Time) }).WithContext(ctx).WithTimeout(2*patience).
			Should(BeNumerically(">", time.Minute+time.Second), name)
	}

	By("deleting the policies, but not their bindings")
	Expect(env.Admin.DeleteAllOf(ctx, &admissionv1.MutatingAdmissionPolicy{})).To(Succeed())
	Expect(env.Admin.DeleteAllOf(ctx, &admissionv1.ValidatingAdmissionPolicy{})).To(Succeed())
	job, js := newJob("newer", 1), newJobSet("newer-set", 1)
	Eventually(func(g Gomega) {
		probe := job.DeepCopy()
		g.Expect(env.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Labels).NotTo(HaveKey(apis.HoldLabel))
		set := js.DeepCopy()
		g.Expect(env.Admin.Create(ctx, set, client.DryRunAll)).To(Succeed())
		g.Expect(set.Spec.ReplicatedJobs[0].Template.Labels).NotTo(HaveKey(apis.HoldLabel))
	}).WithContext(ctx).Should(Succeed())
	Expect(env.Admin.Create(ctx, job)).To(Succeed())
	Expect(env.Admin.Create(ctx, js)).To(Succeed())
	Expect(env.Install(ctx)).To(Succeed())
	manager, err := env.StartManager(ctx, testenv.ManagerOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return manager.Stop() })

	By("reporting them")
	Eventually(func(g Gomega) {
		var events eventsv1.EventList
		g.Expect(env.Admin.List(ctx, &events, client.InNamespace(namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(HaveField("Regarding.Name", job.Name), HaveField("Reason", "Misconfigured"), HaveField("Note", ContainSubstring("the Job runs without quota")))))
		c := apimeta.FindStatusCondition(jobSetOf(ctx, g, js.Name).Status.Conditions, "StageAdmitted")
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Message).To(ContainSubstring("the JobSet is not held"))
	}).WithContext(ctx).Should(Succeed())

	By("neither adopting nor stopping them")
	Expect(runningPods(ctx, Default, batchv1.JobNameLabel, job.Name)).To(HaveLen(1))
	Expect(runningPods(ctx, Default, jobset.JobSetNameKey, js.Name)).To(HaveLen(1))
	Expect(jobOf(ctx, Default, job.Name).Labels).NotTo(HaveKey(apis.HoldLabel))
	for _, owner := range []client.Object{job, js} {
		var list kueue.WorkloadList
		Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{apis.JobUIDLabel: string(owner.GetUID())})).To(Succeed())
		Expect(list.Items).To(BeEmpty())
	}
	Expect(reserved(ctx, Default)).To(Equal("0"))
}
