package kueue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
)

// A killStep is a change of a cohort tree of two ClusterQueues, and the states of their locks in which both managers are killed.
type killStep struct {
	name   string
	change func()
	states [2]string
	// frozen is a ClusterQueue whose lock would leave its state by itself, or empty. Until the managers are dead, the API server rejects that.
	frozen string
	// reached waits for more than the states, if it is not nil.
	reached func()
}

// expectOneEngine kills both managers in each state of a takeover and of the way back, for a cohort tree of two ClusterQueues that are changed one after
// the other.
func expectOneEngine(ctx SpecContext) {
	GinkgoHelper()
	const a, b = "killed-a", "killed-b"
	for name, gpus := range map[string]int64{a: 3, b: 2} {
		tenant(ctx, name, gpus, func(cq *kueue.ClusterQueue) { cq.Spec.CohortName = "killed" })
	}
	auditing, stopAudit := context.WithCancel(ctx)
	defer stopAudit()
	auditor, err := invariants.Start(auditing, env.Admin)
	Expect(err).NotTo(HaveOccurred())
	running := named(lasting(newJob(a, 1), "600"), "running")
	Expect(env.Admin.Create(ctx, running)).To(Succeed())
	Eventually(read(ctx, workloadOf(ctx, running))).WithContext(ctx).Should(haveCondition(kueue.WorkloadPodsReady, metav1.ConditionTrue, ""))
	uids := podUIDs(ctx, running)

	var jobs []*batchv1.Job
	submit := func() {
		for _, namespace := range []string{a, b} {
			job := named(lasting(newJob(namespace, 2), "2"), fmt.Sprintf("job-%03d", len(jobs)))
			Expect(env.Admin.Create(ctx, job)).To(Succeed())
			jobs = append(jobs, job)
		}
	}
	stopped := func() {
		for _, name := range []string{a, b} {
			Eventually(read(ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}})).WithContext(ctx).Should(HaveField("Status.Conditions", ContainElement(And(
				HaveField("Type", kueue.ClusterQueueActive), HaveField("Reason", kueue.ClusterQueueActiveReasonStopped)))))
		}
	}
	admits := func() {
		submit()
		Eventually(read(ctx, workloadOf(ctx, jobs[len(jobs)-1]))).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, ""))
	}
	endHold := func(name string) func() {
		return func() {
			Eventually(func() error { return tryPatch(ctx, name, `{"spec":{"stopPolicy":"None"}}`) }).WithContext(ctx).Should(Succeed())
		}
	}
	steps := []killStep{
		{name: "when one ClusterQueue asks", change: func() { annotate(ctx, apis.EngineTranche, a) }},
		{name: "when one is held", change: func() { annotate(ctx, apis.EngineTranche, b); stop(ctx, kueue.Hold, a) }},
		{name: "when both are held, and before the lock", change: func() { submit(); stop(ctx, kueue.Hold, b) }, frozen: a, reached: stopped},
		{name: "when Tranche admits, and the lock does not say so yet", change: func() {}, states: [2]string{"Locked", "Locked"}, frozen: a, reached: admits},
		{name: "when Tranche admits", change: submit, states: [2]string{"Tranche", "Tranche"}},
		{name: "when one asks for Kueue, and the other is still locked", change: func() { admits(); annotate(ctx, apis.EngineKueue, a) }, states: [2]string{"", "Ending"}, frozen: b},
		{name: "when both ask for Kueue, and none admits", change: func() { annotate(ctx, apis.EngineKueue, b); submit() }},
		{name: "when the hold of one has ended", change: endHold(a)},
		{name: "when Kueue admits", change: endHold(b)},
	}
	began, thaw := time.Now(), func() {}
	submit()
	for i := range steps {
		step := &steps[i]
		By("killing both managers " + step.name)
		step.arrive(ctx, a, b)
		killBeside()
		Expect(env.Plane.KillComponent(controlplane.Kueue)).To(Succeed())
		// The lock may leave the next state, too, as soon as the manager runs again.
		next := func() {}
		if i+1 < len(steps) && steps[i+1].frozen != "" {
			next = freeze(ctx, steps[i+1].states[slices.Index([]string{a, b}, steps[i+1].frozen)], steps[i+1].frozen)
		}
		thaw()
		thaw = next
		launchBeside()
		Expect(env.Plane.StartComponent(ctx, controlplane.Kueue)).To(Succeed())
		Expect(shared.manager.WaitReady(ctx)).To(Succeed())
	}
	AddReportEntry("kills", fmt.Sprintf("%d states in %s", len(steps), time.Since(began).Round(time.Second)))

	By("finishing all Jobs in the end, none of them twice")
	for _, job := range jobs {
		Eventually(read(ctx, job)).WithContext(ctx).WithTimeout(2*patience).Should(HaveField("Status.Succeeded", BeEquivalentTo(2)), job.Name)
		Expect(podUIDs(ctx, job)).To(HaveLen(2), "each pod of Job %s ran once", job.Name)
	}
	Expect(podUIDs(ctx, running)).To(Equal(uids), "nothing that runs is touched")
	violations, err := auditor.Violations(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(violations).To(BeEmpty())
}

// arrive makes the change, and waits until the locks have the states that it leads to. ClusterQueues cannot be changed while Kueue's manager is down.
func (s *killStep) arrive(ctx context.Context, clusterQueues ...string) {
	GinkgoHelper()
	s.change()
	Eventually(func(g Gomega) { g.Expect(locksOf(ctx, g, clusterQueues...)).To(Equal(s.states[:])) }).WithContext(ctx).Should(Succeed())
	if s.reached != nil {
		s.reached()
	}
	Expect(locksOf(ctx, NewGomega(Fail), clusterQueues...)).To(Equal(s.states[:]), "the managers are killed in these states")
}

// freeze keeps the lock of a ClusterQueue in a state once it has that, until thaw is called. Two states can be frozen at a time.
func freeze(ctx context.Context, state, clusterQueue string) (thaw func()) {
	GinkgoHelper()
	name := "test-freeze" + strings.ToLower(state)
	value := func(object string) string {
		return fmt.Sprintf("(%[1]s == null ? '' : %[1]s.?data[?'queue.%[2]s'].orValue(''))", object, clusterQueue)
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}}}},
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "lock-or-probe", Expression: fmt.Sprintf("object.metadata.name in [%q, %q]", apis.TakeoverConfigMap, name)}},
		Validations: []admissionregistrationv1.Validation{{Message: "frozen", Expression: fmt.Sprintf(
			"object.metadata.name != %q && (%s != %[3]q || %[4]s == %[3]q)", name, value("oldObject"), state, value("object"))}},
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}
	probe := func() error {
		return env.Admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: name}}, client.DryRunAll)
	}
	for _, object := range []client.Object{policy, binding} {
		Expect(env.Admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, object))).To(Succeed()) }, NodeTimeout(patience))
	}
	Eventually(probe).WithContext(ctx).Should(MatchError(ContainSubstring("frozen")))
	return func() {
		GinkgoHelper()
		for _, object := range []client.Object{binding, policy} {
			Expect(env.Admin.Delete(ctx, object)).To(Succeed())
		}
		Eventually(probe).WithContext(ctx).Should(Succeed())
	}
}
