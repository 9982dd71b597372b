package integration_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/testenv"
)

// late is the podReplacementPolicy of a Job that replaces a pod only when it has terminated, and early the other one, which is the default.
const (
	late  = batchv1.Failed
	early = batchv1.TerminatingOrFailed
)

// replaceEarly lets a client ask, with every verb, that a Job replaces pods that still terminate. All of these writes succeed.
func replaceEarly(ctx context.Context, who client.Client, job *batchv1.Job, check func(*batchv1.Job)) {
	GinkgoHelper()
	patch := func(p client.Patch) func() error {
		return func() error { return who.Patch(ctx, job.DeepCopy(), p) }
	}
	apply := func(options ...client.ApplyOption) func() error {
		return func() error {
			wanted := batchv1ac.Job(job.Name, job.Namespace).WithSpec(batchv1ac.JobSpec().WithPodReplacementPolicy(early))
			return who.Apply(ctx, wanted, append(options, client.FieldOwner("tenant"))...)
		}
	}
	for _, write := range []func() error{
		patch(jsonPatch(`[{"op":"replace","path":"/spec/podReplacementPolicy","value":"TerminatingOrFailed"}]`)),
		patch(jsonPatch(`[{"op":"remove","path":"/spec/podReplacementPolicy"}]`)),
		patch(client.RawPatch(types.MergePatchType, []byte(`{"spec":{"podReplacementPolicy":"TerminatingOrFailed"}}`))),
		patch(client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"podReplacementPolicy":null}}`))),
		func() error {
			now := get(ctx, job)
			now.ResourceVersion, now.Spec.PodReplacementPolicy = "", new(early) // the Job controller may write it, too
			return who.Update(ctx, now)
		},
		apply(client.ForceOwnership),
		apply(), // as the tenant owns the field now, there is no conflict
	} {
		Expect(write()).To(Succeed())
		check(get(ctx, job))
	}
}

var _ = Describe("A Job that waits for quota, or has got it,", func() {
	var namespace string
	var tenant client.Client
	var manager client.Client

	BeforeEach(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		awaitGuards(ctx, namespace)
		tenant, manager = env.clientAs(alice), env.clientAs(testenv.ManagerUser)
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.adminClient.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(namespace), client.PropagationPolicy("Background"))).To(Succeed())
		})
	}, NodeTimeout(patience))

	isLate := func(job *batchv1.Job) {
		GinkgoHelper()
		Expect(job.Spec.PodReplacementPolicy).To(HaveValue(Equal(late)))
	}

	It("replaces a pod only when it has terminated, whatever its manifest or its user asks for", func(ctx SpecContext) {
		for _, asked := range []*batchv1.PodReplacementPolicy{nil, new(early), new(late)} {
			job := newQueuedJob(namespace, "dry")
			job.Spec.PodReplacementPolicy = asked
			Expect(tenant.Create(ctx, job, client.DryRunAll)).To(Succeed())
			isLate(job)
		}
		withPolicy := newQueuedJob(namespace, "policy")
		withPolicy.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: "DisruptionTarget", Status: "True"}},
		}}}
		Expect(tenant.Create(ctx, withPolicy, client.DryRunAll)).To(Succeed())
		isLate(withPolicy)

		job := newQueuedJob(namespace, "held")
		Expect(tenant.Create(ctx, job)).To(Succeed())
		for _, who := range []client.Client{tenant, env.adminClient} {
			replaceEarly(ctx, who, job, func(now *batchv1.Job) {
				GinkgoHelper()
				isLate(now)
				Expect(*now.Spec.Suspend).To(BeTrue())
				Expect(now.Annotations).NotTo(HaveKey(apis.SuspendedAnnotation))
			})
		}
		Expect(manager.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`)))).To(Succeed())
		replaceEarly(ctx, tenant, job, func(now *batchv1.Job) {
			GinkgoHelper()
			isLate(now)
			Expect(*now.Spec.Suspend).To(BeFalse())
		})
		both := `{"spec":{"suspend":%t,"podReplacementPolicy":"TerminatingOrFailed"}}`
		for _, suspend := range []bool{true, false} {
			Expect(tenant.Patch(ctx, job, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, both, suspend)))).To(Succeed())
			isLate(get(ctx, job))
			Expect(*get(ctx, job).Spec.Suspend).To(BeTrue())
		}
	}, SpecTimeout(patience))

	It("does so when it joins a queue, and not before", func(ctx SpecContext) {
		job := newQueuedJob(namespace, "later")
		job.Labels, job.Spec.Suspend = nil, new(true)
		Expect(tenant.Create(ctx, job)).To(Succeed())
		Expect(job.Spec.PodReplacementPolicy).To(HaveValue(Equal(early)))
		Expect(tenant.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"main"}}}`)))).To(Succeed())
		isLate(job)
	}, SpecTimeout(patience))

	It("does so as a Job of a JobSet, but not if the JobSet has no queue", func(ctx SpecContext) {
		js := newQueued(namespace, "train", "first")
		js.Spec.ReplicatedJobs[0].Template.Spec.PodReplacementPolicy = new(early)
		Expect(tenant.Create(ctx, js)).To(Succeed())
		Expect(js.Spec.ReplicatedJobs[0].Template.Spec.PodReplacementPolicy).To(HaveValue(Equal(early)), "a JobSet stays as in its manifest")
		job := awaitJobs(ctx, js, 1)[0]
		start(ctx, js)
		Expect(manager.Patch(ctx, job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false,"podReplacementPolicy":"Failed"}}`)))).To(Succeed())
		for _, who := range []client.Client{tenant, env.adminClient} {
			replaceEarly(ctx, who, job, func(now *batchv1.Job) {
				GinkgoHelper()
				isLate(now)
				Expect(*now.Spec.Suspend).To(BeFalse())
			})
		}
		Expect(tenant.Delete(ctx, job, client.PropagationPolicy("Background"))).To(Succeed())
		Eventually(func(g Gomega) {
			again := &batchv1.Job{}
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(job), again)).To(Succeed())
			g.Expect(again.UID).NotTo(Equal(job.UID))
			g.Expect(again.Spec.PodReplacementPolicy).To(HaveValue(Equal(late)), "its controller has created it to run")
		}).WithContext(ctx).Should(Succeed())

		free := newQueuedJob(namespace, "free")
		free.Labels = map[string]string{apis.HoldLabel: apis.HoldUnqueued}
		Expect(env.adminClient.Create(ctx, free)).To(Succeed())
		Expect(free.Spec.PodReplacementPolicy).To(HaveValue(Equal(early)))
		Expect(env.adminClient.Patch(ctx, free, jsonPatch(`[{"op":"replace","path":"/spec/podReplacementPolicy","value":"Failed"}]`))).To(Succeed())
		replaceEarly(ctx, env.adminClient, free, func(now *batchv1.Job) {
			GinkgoHelper()
			Expect(now.Spec.PodReplacementPolicy).To(HaveValue(Equal(early)))
		})
	}, SpecTimeout(patience))
})
