package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

// alice is a tenant: she only has the role edit in her namespace.
const alice = "alice"

// The results of an attempt, other than an error with a certain text.
const (
	allowed  = ""
	noEffect = "no effect"
)

var _ = Describe("The guards", func() {
	var namespace string
	var js *jobsetapi.JobSet
	var job *batchv1.Job

	BeforeEach(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		awaitGuards(ctx, namespace)
		js = newQueued(namespace, "train", "first", "second")
		Expect(env.clientAs(alice).Create(ctx, js)).To(Succeed())
		job = awaitJobs(ctx, js, 2)[0]
	}, NodeTimeout(patience))

	// Only the manager may write: a tenant, the JobSet controller and the cluster admin get the same answers.
	DescribeTable("on a held Job", func(ctx SpecContext, patch, want string) {
		for _, who := range []client.Client{env.clientAs(alice), env.clientAs(controlplane.JobSetUser), env.adminClient} {
			before := get(ctx, job)
			expectAnswer(who.Patch(ctx, before.DeepCopy(), jsonPatch(patch)), want)
			after := get(ctx, job)
			Expect(after.Spec).To(Equal(before.Spec))
			Expect(after.Labels).To(Equal(before.Labels))
			Expect(after.Annotations).To(Equal(before.Annotations))
			Expect(after.OwnerReferences).To(Equal(before.OwnerReferences))
		}
		expectNoPods(ctx, namespace)
	},
		Entry("start it", `[{"op":"replace","path":"/spec/suspend","value":false}]`, noEffect),
		Entry("start it by leaving suspend out", `[{"op":"remove","path":"/spec/suspend"}]`, noEffect),
		Entry("start it on other nodes",
			`[{"op":"replace","path":"/spec/suspend","value":false},{"op":"add","path":"/spec/template/spec/nodeSelector","value":{"a":"b"}}]`, noEffect),
		Entry("strip the hold label", `[{"op":"remove","path":"/metadata/labels/tranche.dev~1hold"}]`, "metadata.labels: only Tranche's manager"),
		Entry("strip the hold label and start it",
			`[{"op":"remove","path":"/metadata/labels/tranche.dev~1hold"},{"op":"replace","path":"/spec/suspend","value":false}]`,
			"metadata.labels: only Tranche's manager"),
		Entry("change the hold label", `[{"op":"replace","path":"/metadata/labels/tranche.dev~1hold","value":"false"}]`, "metadata.labels: only Tranche's manager"),
		Entry("forge a label of the manager", `[{"op":"add","path":"/metadata/labels/tranche.dev~1stage","value":"a"}]`, "metadata.labels: only Tranche's manager"),
		Entry("forge an annotation of the manager",
			`[{"op":"add","path":"/metadata/annotations/tranche.dev~1flavor-node-labels","value":"a"}]`, "metadata.annotations: only Tranche's manager"),
		Entry("pretend that it belongs to another stage",
			`[{"op":"replace","path":"/metadata/labels/jobset.sigs.k8s.io~1replicatedjob-name","value":"another"}]`, "metadata.labels: the labels that begin with jobset"),
		Entry("hide it from its JobSet", `[{"op":"remove","path":"/metadata/labels/jobset.sigs.k8s.io~1jobset-name"}]`, "metadata.labels: the labels that begin with jobset"),
		Entry("add a label of the JobSet controller", `[{"op":"add","path":"/metadata/labels/jobset.sigs.k8s.io~1x","value":"a"}]`, "metadata.labels: the labels that begin with jobset"),
		Entry("choose its nodes", `[{"op":"add","path":"/spec/template/spec/nodeSelector","value":{"a":"b"}}]`, "spec.template: cannot be changed, because quota"),
		Entry("ask for more resources",
			`[{"op":"add","path":"/spec/template/spec/containers/0/resources","value":{"requests":{"cpu":"9"}}}]`, "spec.template: cannot be changed, because quota"),
		Entry("ask for more pods", `[{"op":"replace","path":"/spec/parallelism","value":9}]`, "spec.parallelism, spec.completions"),
		Entry("take it from its JobSet", `[{"op":"remove","path":"/metadata/ownerReferences"}]`, "metadata.ownerReferences: cannot be changed, because the Job uses"),
		Entry("take it from the JobSet controller",
			`[{"op":"replace","path":"/metadata/ownerReferences/0/controller","value":false}]`, "metadata.ownerReferences: cannot be changed, because the Job uses"),
		Entry("give it a second owner that outlives the JobSet",
			`[{"op":"add","path":"/metadata/ownerReferences/-","value":{"apiVersion":"v1","kind":"ConfigMap","name":"kube-root-ca.crt","uid":"u"}}]`,
			"metadata.ownerReferences: cannot be changed, because the Job uses"),
		Entry("orphan its pods", `[{"op":"add","path":"/metadata/finalizers","value":["orphan"]}]`, `remove the finalizer "orphan"`),
	)

	It("hold a Job that is started by server-side apply", func(ctx SpecContext) {
		desired := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "batch/v1", "kind": "Job",
			"metadata": map[string]any{"namespace": namespace, "name": job.Name},
			"spec":     map[string]any{"suspend": false},
		}}
		apply := client.ApplyConfigurationFromUnstructured(desired)
		Expect(env.clientAs(alice).Apply(ctx, apply, client.FieldOwner(alice), client.ForceOwnership)).To(Succeed())
		Expect(*get(ctx, job).Spec.Suspend).To(BeTrue())
		expectNoPods(ctx, namespace)
	}, SpecTimeout(patience))

	DescribeTable("refuse, through the status of a Job, to", func(ctx SpecContext, patch, want string) {
		expectAnswer(env.clientAs(alice).Status().Patch(ctx, job.DeepCopy(), jsonPatch(patch)), "cannot patch resource")
		expectAnswer(env.adminClient.Status().Patch(ctx, job.DeepCopy(), jsonPatch(patch)), want)
	},
		Entry("strip the hold label", `[{"op":"remove","path":"/metadata/labels/tranche.dev~1hold"}]`, "metadata.labels: only Tranche's manager"),
		Entry("forge an annotation of the manager",
			`[{"op":"add","path":"/metadata/annotations/tranche.dev~1flavor-node-labels","value":"a"}]`, "metadata.annotations: only Tranche's manager"),
		Entry("take it from its JobSet", `[{"op":"remove","path":"/metadata/ownerReferences"}]`, "metadata.ownerReferences: cannot be changed, because the Job uses"),
	)

	DescribeTable("on a JobSet that waits", func(ctx SpecContext, patch, want string) {
		for _, who := range []client.Client{env.clientAs(alice), env.adminClient} {
			before := get(ctx, js)
			expectAnswer(who.Patch(ctx, before.DeepCopy(), jsonPatch(patch)), want)
			if want == allowed {
				return
			}
			after := get(ctx, js)
			Expect(after.Spec).To(Equal(before.Spec))
			Expect(after.Labels).To(Equal(before.Labels))
			Expect(after.Annotations).To(Equal(before.Annotations))
		}
		expectNoPods(ctx, namespace)
	},
		Entry("start it", `[{"op":"replace","path":"/spec/suspend","value":false}]`, noEffect),
		Entry("strip the hold label", `[{"op":"remove","path":"/spec/replicatedJobs/0/template/metadata/labels"}]`, noEffect),
		Entry("say that it has started", `[{"op":"add","path":"/metadata/annotations","value":{"tranche.dev/started":"true"}}]`, "metadata.annotations: only Tranche's manager"),
		Entry("label it", `[{"op":"add","path":"/metadata/labels/tranche.dev~1stage","value":"a"}]`, "metadata.labels: only Tranche's manager"),
		Entry("annotate its Jobs", `[{"op":"add","path":"/spec/replicatedJobs/0/template/metadata/annotations","value":{"tranche.dev/x":"a"}}]`, "spec.replicatedJobs: a JobSet that is queued"),
		Entry("choose its nodes",
			`[{"op":"add","path":"/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector","value":{"a":"b"}}]`, "spec.replicatedJobs: a JobSet that is queued"),
		Entry("ask for more pods", `[{"op":"add","path":"/spec/replicatedJobs/0/template/spec/parallelism","value":9}]`, "spec.replicatedJobs: a JobSet that is queued"),
		Entry("let it grow beyond all clusters", `[{"op":"add","path":"/spec/replicatedJobs/0/template/spec/parallelism","value":150001},
			{"op":"add","path":"/spec/replicatedJobs/0/template/spec/completions","value":150001}]`, "at most 150000 pods of a JobSet run at the same time; set a lower parallelism"),
		Entry("limit its time in hours", `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1max-exec-time-seconds","value":"2h"}]`,
			`max-exec-time-seconds is "2h", which is no number of seconds`),
		Entry("hand it to another controller", `[{"op":"add","path":"/spec/managedBy","value":"example.com/other"}]`, "field is immutable"),
		Entry("remove its queue", `[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}]`, "submit it again without the label"),
		Entry("empty its queue", `[{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":""}]`, "submit it again without the label"),
		Entry("orphan its Jobs", `[{"op":"add","path":"/metadata/finalizers","value":["orphan"]}]`, `remove the finalizer "orphan"`),
		Entry("choose an unknown policy",
			`[{"op":"add","path":"/metadata/annotations","value":{"tranche.dev/stage-admission":"Fast"}}]`, `must be Safe, Reserve or Greedy, not "Fast"`),
		Entry("add a gang later", `[{"op":"add","path":"/metadata/annotations","value":{"tranche.dev/gang":"Gang"}}]`, "metadata.annotations: only Tranche's manager"),
		Entry("choose a policy", `[{"op":"add","path":"/metadata/annotations","value":{"tranche.dev/stage-admission":"Greedy"}}]`, allowed),
		Entry("move it to another queue", `[{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"other"}]`, allowed),
		Entry("add other labels", `[{"op":"add","path":"/metadata/labels/team","value":"ml"}]`, allowed),
	)

	It("name server-side apply to a user whose client-side apply removes the defaults of a JobSet", func(ctx SpecContext) {
		file := filepath.Join(GinkgoT().TempDir(), "jobset.yaml")
		Expect(os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion":"jobset.x-k8s.io/v1alpha2","kind":"JobSet",
			"metadata":{"namespace":%q,"name":"applied","labels":{"kueue.x-k8s.io/queue-name":"main"}},"spec":{"replicatedJobs":[{"name":"a","template":{"spec":
			{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"example.com/main"}]}}}}}]}}`, namespace), 0o600)).To(Succeed())
		Expect(env.Kubectl(ctx, "apply", "-f", file)).To(Succeed())
		Expect(env.Kubectl(ctx, "apply", "-f", file)).To(MatchError(ContainSubstring("To apply an unchanged manifest, use kubectl apply --server-side")))
		Expect(env.Kubectl(ctx, "apply", "--server-side", "-f", file)).To(Succeed())
	}, SpecTimeout(patience))

	It("let a JobSet change queues and its maximum execution time only while it is suspended", func(ctx SpecContext) {
		start(ctx, js)
		tenant := env.clientAs(alice)
		move := func(more ...string) error {
			operations := `{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"other"}`
			for _, operation := range more {
				operations += "," + operation
			}
			return tenant.Patch(ctx, js.DeepCopy(), jsonPatch("["+operations+"]"))
		}
		const suspend, resume = `{"op":"replace","path":"/spec/suspend","value":true}`, `{"op":"replace","path":"/spec/suspend","value":false}`
		limit := func() error {
			return tenant.Patch(ctx, js.DeepCopy(), jsonPatch(`[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1max-exec-time-seconds","value":"600"}]`))
		}
		expectAnswer(limit(), "kueue.x-k8s.io/max-exec-time-seconds cannot be changed while the JobSet runs")
		expectAnswer(move(), "suspend it (spec.suspend: true) before you move it to other")
		expectAnswer(move(suspend), "suspend it (spec.suspend: true) before you move it to other")
		Expect(tenant.Patch(ctx, js.DeepCopy(), jsonPatch("["+suspend+"]"))).To(Succeed())
		expectAnswer(move(resume), "suspend it (spec.suspend: true) before you move it to other")
		Expect(move()).To(Succeed())
		Expect(limit()).To(Succeed())
		attempts := holds(ctx)
		Expect(tenant.Patch(ctx, js.DeepCopy(), jsonPatch("["+resume+"]"))).To(Succeed())
		Expect(*get(ctx, js).Spec.Suspend).To(BeFalse())
		Eventually(func() float64 { return holds(ctx) }).WithContext(ctx).Should(BeNumerically(">", attempts), "the JobSet controller tries to resume its Jobs")
		Expect(*get(ctx, job).Spec.Suspend).To(BeTrue())
		expectNoPods(ctx, namespace)
	}, SpecTimeout(patience))

	It("let released Jobs be suspended and finish, but not resumed", func(ctx SpecContext) {
		start(ctx, js)
		release(ctx, job)
		tenant := env.clientAs(alice)
		Expect(tenant.Patch(ctx, job.DeepCopy(), jsonPatch(`[{"op":"replace","path":"/spec/parallelism","value":9}]`))).
			To(MatchError(ContainSubstring("spec.parallelism, spec.completions")))
		Expect(tenant.Patch(ctx, job.DeepCopy(), jsonPatch(`[{"op":"replace","path":"/spec/suspend","value":true}]`))).To(Succeed())
		Expect(tenant.Patch(ctx, job.DeepCopy(), jsonPatch(`[{"op":"replace","path":"/spec/suspend","value":false}]`))).To(Succeed())
		Expect(*get(ctx, job).Spec.Suspend).To(BeTrue())
		release(ctx, job)
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, job).Status.Succeeded).To(BeEquivalentTo(1))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("let the JobSet controller suspend released Jobs", func(ctx SpecContext) {
		start(ctx, js)
		release(ctx, job)
		Expect(env.clientAs(alice).Patch(ctx, js.DeepCopy(), jsonPatch(`[{"op":"replace","path":"/spec/suspend","value":true}]`))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(*get(ctx, job).Spec.Suspend).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
		Eventually(func(g Gomega) { expectNoPodsYet(ctx, g, namespace) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("refuse to orphan Jobs and pods", func(ctx SpecContext) {
		orphan := client.PropagationPolicy(metav1.DeletePropagationOrphan)
		for _, who := range []client.Client{env.clientAs(alice), env.adminClient} {
			for _, object := range []client.Object{js, job} {
				expectAnswer(who.Delete(ctx, object, orphan), "delete it without --cascade=orphan")
				expectAnswer(who.DeleteAllOf(ctx, object, client.InNamespace(namespace), orphan), "delete it without --cascade=orphan")
			}
			// The meaning of a request for a Job that sets no propagation policy for the pods.
			expectAnswer(who.Delete(ctx, job), "propagationPolicy Background or Foreground")
			expectAnswer(who.DeleteAllOf(ctx, job, client.InNamespace(namespace)), "propagationPolicy Background or Foreground")
		}
		Expect(env.clientAs(alice).Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(apierrors.IsNotFound(env.adminClient.Get(ctx, client.ObjectKeyFromObject(job), &batchv1.Job{}))).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("refuse forged Jobs of a JobSet", func(ctx SpecContext) {
		tenant := env.clientAs(alice)
		const refusal = "only the JobSet controller creates the Jobs of a JobSet"
		impostor := plainJob(namespace, "impostor")
		impostor.OwnerReferences = job.OwnerReferences
		expectAnswer(tenant.Create(ctx, impostor), refusal)
		held := plainJob(namespace, "held")
		held.Labels = map[string]string{apis.HoldLabel: apis.HoldValue}
		expectAnswer(tenant.Create(ctx, held), refusal)
		plain := plainJob(namespace, "plain")
		Expect(tenant.Create(ctx, plain)).To(Succeed())
		owners, err := json.Marshal(job.OwnerReferences)
		Expect(err).NotTo(HaveOccurred())
		expectAnswer(tenant.Patch(ctx, plain, jsonPatch(`[{"op":"add","path":"/metadata/ownerReferences","value":`+string(owners)+`}]`)), refusal)
		expectAnswer(tenant.Patch(ctx, plain, jsonPatch(`[{"op":"add","path":"/metadata/labels/tranche.dev~1hold","value":"true"}]`)), "metadata.labels: only Tranche's manager")
	}, SpecTimeout(patience))

	It("refuse forged pods of a JobSet", func(ctx SpecContext) {
		tenant := env.clientAs(alice)
		const ofJob, ofPod = "only the JobSet controller creates the Jobs of a JobSet", "only the Job controller creates the pods of a JobSet"
		uid, ours := `jobset.sigs.k8s.io~1jobset-uid`, map[string]string{jobset.JobSetUIDKey: string(js.UID), jobset.ReplicatedJobNameKey: "first"}

		By("creating Jobs")
		impostor := plainJob(namespace, "impostor")
		impostor.Spec.Template.Labels = ours
		expectAnswer(tenant.Create(ctx, impostor), ofJob)
		plain := plainJob(namespace, "plain")
		plain.Spec.Suspend = new(true)
		plain.Spec.Template.Labels = map[string]string{"a": "b"}
		Expect(tenant.Create(ctx, plain)).To(Succeed())
		expectAnswer(tenant.Patch(ctx, plain, jsonPatch(`[{"op":"add","path":"/spec/template/metadata/labels/`+uid+`","value":"a"}]`)), ofJob)

		By("creating pods")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "impostor", Labels: ours}, Spec: plain.Spec.Template.Spec}
		expectAnswer(tenant.Create(ctx, pod.DeepCopy()), ofPod)
		pod.Labels = map[string]string{"a": "b"}
		Expect(tenant.Create(ctx, pod)).To(Succeed())
		expectAnswer(tenant.Patch(ctx, pod, jsonPatch(`[{"op":"add","path":"/metadata/labels/`+uid+`","value":"a"}]`)), ofPod)

		By("changing the labels of the JobSet")
		start(ctx, js)
		release(ctx, job)
		var pods corev1.PodList
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{jobset.JobSetUIDKey: string(js.UID)})).To(Succeed())
			g.Expect(pods.Items).NotTo(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		mine := &pods.Items[0]
		expectAnswer(tenant.Patch(ctx, mine, jsonPatch(`[{"op":"replace","path":"/metadata/labels/`+uid+`","value":"a"}]`)), ofPod)
		expectAnswer(tenant.Patch(ctx, mine, jsonPatch(`[{"op":"replace","path":"/metadata/labels/jobset.sigs.k8s.io~1replicatedjob-name","value":"second"}]`)), ofPod)
		expectAnswer(tenant.Patch(ctx, mine, jsonPatch(`[{"op":"replace","path":"/metadata/ownerReferences/0/uid","value":"`+string(plain.UID)+`"}]`)), ofPod)
		expectAnswer(tenant.Patch(ctx, mine, jsonPatch(`[{"op":"add","path":"/metadata/labels/team","value":"ml"}]`)), allowed)
	}, SpecTimeout(patience))

	It("hold a Job that is recreated after its tenant has deleted it", func(ctx SpecContext) {
		start(ctx, js)
		release(ctx, job)
		Expect(env.clientAs(alice).Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(func(g Gomega) {
			again := &batchv1.Job{}
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(job), again)).To(Succeed())
			g.Expect(again.UID).NotTo(Equal(job.UID))
			g.Expect(*again.Spec.Suspend).To(BeTrue())
			g.Expect(again.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldValue))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))
})

// newTenant makes a namespace in which alice has the role edit.
func newTenant(ctx context.Context) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "guards-"}}
	Expect(env.adminClient.Create(ctx, namespace)).To(Succeed())
	Expect(env.adminClient.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: alice},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: alice}},
	})).To(Succeed())
	DeferCleanup(deleteJobSets, namespace.Name)
	return namespace.Name
}

func deleteJobSets(ctx SpecContext, namespace string) {
	Expect(env.adminClient.DeleteAllOf(ctx, &jobsetapi.JobSet{}, client.InNamespace(namespace))).To(Succeed())
}

// awaitGuards waits until the API server applies every policy, and alice's role. It observes them one by one.
func awaitGuards(ctx context.Context, namespace string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		js := newQueued(namespace, "probe", "a")
		g.Expect(env.clientAs(alice).Create(ctx, js, client.DryRunAll)).To(Succeed())
		g.Expect(ptr.Deref(js.Spec.Suspend, false)).To(BeTrue(), "tranche-hold-jobsets")
		js = newQueued(namespace, "probe", "a")
		js.Annotations = map[string]string{apis.StartedAnnotation: "true"}
		g.Expect(env.adminClient.Create(ctx, js, client.DryRunAll)).NotTo(Succeed(), "tranche-guard-jobsets")
		js = newQueued(namespace, "probe", "a")
		js.Annotations = map[string]string{apis.StageAdmissionAnnotation: "Fast"}
		g.Expect(env.adminClient.Create(ctx, js, client.DryRunAll)).NotTo(Succeed(), "tranche-guard-stage-admission")
		js = newQueued(namespace, "probe", "a")
		js.Finalizers = []string{metav1.FinalizerOrphanDependents}
		g.Expect(env.adminClient.Create(ctx, js, client.DryRunAll)).NotTo(Succeed(), "tranche-guard-orphans")
		job := plainJob(namespace, "probe")
		job.Labels = map[string]string{apis.HoldLabel: apis.HoldValue}
		g.Expect(env.clientAs(alice).Create(ctx, job.DeepCopy(), client.DryRunAll)).NotTo(Succeed(), "tranche-guard-child-jobs")
		g.Expect(env.adminClient.Create(ctx, job, client.DryRunAll)).To(Succeed())
		g.Expect(ptr.Deref(job.Spec.Suspend, false)).To(BeTrue(), "tranche-hold-jobs")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}, Spec: job.Spec.Template.Spec}
		pod.Labels = map[string]string{jobset.JobSetUIDKey: "probe"}
		g.Expect(env.clientAs(alice).Create(ctx, pod, client.DryRunAll)).NotTo(Succeed(), "tranche-guard-pods")
		job = plainJob(namespace, "probe")
		job.Labels = map[string]string{apis.HoldLabel: "false"}
		g.Expect(env.adminClient.Create(ctx, job, client.DryRunAll)).NotTo(Succeed(), "tranche-guard-jobs")
	}).WithContext(ctx).Should(Succeed())
}

// newQueued returns a JobSet of a queue, in which each ReplicatedJob is one pod.
func newQueued(namespace, name string, replicatedJobs ...string) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "main"},
	}}
	for _, r := range replicatedJobs {
		spec := plainJob(namespace, "").Spec
		spec.Template.Annotations = map[string]string{controlplane.FakeRunTime: "2s"}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{
			Name: r, Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: spec},
		}})
	}
	return js
}

func plainJob(namespace, name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "registry.example.com/main"}},
		}}},
	}
}

// awaitJobs waits until the JobSet controller has created the Jobs, and the Job controller has observed their suspension.
func awaitJobs(ctx context.Context, js *jobsetapi.JobSet, n int) []*batchv1.Job {
	GinkgoHelper()
	var jobs []*batchv1.Job
	Eventually(func(g Gomega) {
		var list batchv1.JobList
		g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(js.Namespace), client.MatchingLabels{jobset.JobSetNameKey: js.Name})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(n))
		jobs = nil
		for i := range list.Items {
			g.Expect(list.Items[i].Status.Conditions).NotTo(BeEmpty())
			jobs = append(jobs, &list.Items[i])
		}
	}).WithContext(ctx).Should(Succeed())
	return jobs
}

// start writes a JobSet as the manager does when its first stage is admitted.
func start(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}},"spec":{"suspend":false}}`, apis.StartedAnnotation)
	Expect(env.clientAs(testenv.ManagerUser).Patch(ctx, js.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// release writes the Jobs of an admitted stage as the manager does.
func release(ctx context.Context, job *batchv1.Job) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:""}},"spec":{"suspend":false,"template":{"metadata":{"labels":{%q:"a"}}}}}`,
		apis.FlavorNodeLabelsAnnotation, apis.PodSetLabel)
	Expect(env.clientAs(testenv.ManagerUser).Patch(ctx, job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

func jsonPatch(operations string) client.Patch {
	return client.RawPatch(types.JSONPatchType, []byte(operations))
}

func get[T client.Object](ctx context.Context, object T) T {
	GinkgoHelper()
	fresh, ok := object.DeepCopyObject().(T)
	Expect(ok).To(BeTrue())
	Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(object), fresh)).To(Succeed())
	return fresh
}

func expectAnswer(answer error, want string) {
	GinkgoHelper()
	if want == allowed || want == noEffect {
		Expect(answer).NotTo(HaveOccurred())
	} else {
		Expect(answer).To(MatchError(ContainSubstring(want)))
	}
}

func expectNoPods(ctx context.Context, namespace string) {
	GinkgoHelper()
	expectNoPodsYet(ctx, Default, namespace)
}

func expectNoPodsYet(ctx context.Context, g Gomega, namespace string) {
	GinkgoHelper()
	var pods corev1.PodList
	g.Expect(env.adminClient.List(ctx, &pods, client.InNamespace(namespace))).To(Succeed())
	g.Expect(pods.Items).To(BeEmpty())
}
