package integration_test

import (
	"context"
	"fmt"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	anHour  = int64(3600)
	tooLong = anHour + 1

	// loose and unowned are JSON patches that detach a pod from its Job.
	loose = `[{"op":"remove","path":"/metadata/labels/batch.kubernetes.io~1controller-uid"},{"op":"remove","path":"/metadata/labels/controller-uid"},` +
		`{"op":"remove","path":"/metadata/labels/job-name"},{"op":"remove","path":"/metadata/labels/batch.kubernetes.io~1job-name"}]`
	unowned = `[{"op":"remove","path":"/metadata/ownerReferences"}]`

	// untracked is a JSON patch after which nothing keeps a pod that is deleted by force.
	untracked, tracks = `[{"op":"remove","path":"/metadata/finalizers"}]`, "metadata.finalizers: only the Job controller removes"
	vanishes          = "gracePeriodSeconds is 0: the pod would disappear and release its quota at once"
)

var _ = Describe("The guards of pods that run on quota", Ordered, ContinueOnFailure, func() {
	var namespace string
	var tenant client.Client
	var job *batchv1.Job
	var pod *corev1.Pod

	// No attempt changes the pod, so they share one. The tenant may also write to the subresources of pods.
	BeforeAll(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		awaitGuards(ctx, namespace)
		awaitPodGuards(ctx, namespace)
		allowSubresources(ctx, namespace)
		tenant = env.clientAs(alice)
		js := newQueued(namespace, "train", "a")
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations = map[string]string{
			controlplane.FakeExit: controlplane.FakeExitNever, controlplane.FakeStopAfter: "30s",
		}
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources.Requests = newPod(namespace, "").Spec.Containers[0].Resources.Requests
		Expect(tenant.Create(ctx, js)).To(Succeed())
		job = awaitJobs(ctx, js, 1)[0]
		start(ctx, js)
		release(ctx, job)
		pod = awaitPod(ctx, job)
		Eventually(func(g Gomega) { g.Expect(get(ctx, pod).Status.Phase).To(Equal(corev1.PodRunning)) }).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(patience))

	const labels, annotations, owners = "metadata.labels: only the Job controller", "metadata.annotations: only the Job controller",
		"metadata.ownerReferences: only the Job controller"
	attempts := []TableEntry{
		Entry("remove its owner reference to its Job", loose, labels),
		Entry("hide it from its Job", `[{"op":"remove","path":"/metadata/labels/batch.kubernetes.io~1controller-uid"}]`, labels),
		Entry("hide it from its JobSet", `[{"op":"remove","path":"/metadata/labels/jobset.sigs.k8s.io~1jobset-uid"}]`, labels),
		Entry("strip all of its labels", `[{"op":"remove","path":"/metadata/labels"}]`, labels),
		Entry("pretend that it belongs to another stage", `[{"op":"replace","path":"/metadata/labels/jobset.sigs.k8s.io~1replicatedjob-name","value":"b"}]`, labels),
		Entry("add a label of the JobSet controller", `[{"op":"add","path":"/metadata/labels/jobset.sigs.k8s.io~1x","value":"b"}]`, labels),
		Entry("hide it from its JobSet in its annotations", `[{"op":"remove","path":"/metadata/annotations/jobset.sigs.k8s.io~1jobset-uid"}]`, annotations),
		Entry("strip all of its annotations", `[{"op":"remove","path":"/metadata/annotations"}]`, annotations),
		Entry("take it from its Job", unowned, owners),
		Entry("take it from the Job controller", `[{"op":"replace","path":"/metadata/ownerReferences/0/controller","value":false}]`, owners),
		Entry("give it another kind of owner", `[{"op":"replace","path":"/metadata/ownerReferences/0/kind","value":"CronJob"}]`, owners),
		Entry("give it a second owner that outlives its Job",
			`[{"op":"add","path":"/metadata/ownerReferences/-","value":{"apiVersion":"v1","kind":"ConfigMap","name":"kube-root-ca.crt","uid":"u"}}]`, owners),
		Entry("pretend that another queue pays for it", `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1cluster-queue-name","value":"other"}]`,
			"metadata.labels: kueue.x-k8s.io/podset, kueue.x-k8s.io/cluster-queue-name and kueue.x-k8s.io/local-queue-name name the quota"),
		Entry("hide it from the count of its Job", untracked, tracks),
		Entry("replace what keeps it until it is counted", `[{"op":"replace","path":"/metadata/finalizers","value":["example.com/other"]}]`, tracks),
		Entry("add another finalizer", `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/other"}]`, allowed),
		Entry("add other labels", `[{"op":"add","path":"/metadata/labels/team","value":"ml"}]`, allowed),
		Entry("forge the progress of its in-place restart",
			`[{"op":"add","path":"/metadata/annotations/jobset.sigs.k8s.io~1in-place-restart-attempt","value":"1"}]`, allowed),
	}

	DescribeTable("on a pod of a JobSet", func(ctx SpecContext, patch, want string) {
		expectAnswer(tenant.Patch(ctx, pod.DeepCopy(), jsonPatch(patch), client.DryRunAll), want)
		// The status of a pod never changes its owners, and its other subresources change no metadata.
		expectAnswer(tenant.Status().Patch(ctx, pod.DeepCopy(), jsonPatch(patch), client.DryRunAll), map[bool]string{true: allowed, false: want}[want == owners])
		for _, subresource := range []string{"resize", "ephemeralcontainers"} {
			changed := pod.DeepCopy()
			if err := tenant.SubResource(subresource).Patch(ctx, changed, jsonPatch(patch), client.DryRunAll); err == nil && want != allowed {
				Expect(changed.Labels).To(Equal(pod.Labels), subresource)
				Expect(changed.OwnerReferences).To(Equal(pod.OwnerReferences), subresource)
			}
		}
		Expect(env.adminClient.Patch(ctx, pod.DeepCopy(), jsonPatch(patch), client.DryRunAll)).To(Succeed(), "an administrator may")
	}, attempts)

	It("refuse an in-place resize of a pod of a JobSet", func(ctx SpecContext) {
		// The API server resizes no pod of a fake node.
		pending := newPod(namespace, "pending")
		pending.Labels, pending.Spec.NodeSelector = map[string]string{jobset.JobSetUIDKey: "x"}, map[string]string{"no": "such"}
		Expect(env.adminClient.Create(ctx, pending)).To(Succeed())
		resize := func(cpus string) error {
			patch := fmt.Sprintf(`[{"op":"add","path":"/spec/containers/0/resources/requests/cpu","value":%q}]`, cpus)
			return tenant.SubResource("resize").Patch(ctx, pending.DeepCopy(), jsonPatch(patch), client.DryRunAll)
		}
		expectAnswer(resize("2"), "spec.containers[*].resources.requests, spec.resources.requests: quota was charged for the requests")
		Expect(resize("500m")).To(Succeed())
		Expect(env.adminClient.Delete(ctx, pending)).To(Succeed())
	}, SpecTimeout(patience))

	It("prevent the Job controller from adopting other pods", func(ctx SpecContext) {
		const refusal = "only the Job controller assigns a pod to a Job"
		like := newPod(namespace, "adopted")
		like.Labels = map[string]string{batchv1.ControllerUidLabel: string(job.UID)}
		expectAnswer(tenant.Create(ctx, like.DeepCopy(), client.DryRunAll), refusal)
		like.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		expectAnswer(tenant.Create(ctx, like.DeepCopy(), client.DryRunAll), refusal)
		like.Labels, like.OwnerReferences = nil, nil
		Expect(tenant.Create(ctx, like)).To(Succeed())
		add := `[{"op":"add","path":"/metadata/labels","value":{"batch.kubernetes.io/controller-uid":"` + string(job.UID) + `"}}]`
		expectAnswer(tenant.Patch(ctx, like.DeepCopy(), jsonPatch(add), client.DryRunAll), refusal)
		expectAnswer(tenant.Status().Patch(ctx, like.DeepCopy(), jsonPatch(add), client.DryRunAll), refusal)
		add = strings.Replace(add, batchv1.ControllerUidLabel, jobset.JobSetNameKey, 1)
		expectAnswer(tenant.Patch(ctx, like.DeepCopy(), jsonPatch(add), client.DryRunAll), labels)
	}, SpecTimeout(patience))

	It("refuse plain Jobs whose pods pretend to be those of a JobSet", func(ctx SpecContext) {
		for _, key := range []string{jobset.JobSetUIDKey, jobset.JobSetNameKey} {
			for _, put := range []func(*metav1.ObjectMeta, string, string){metav1.SetMetaDataLabel, metav1.SetMetaDataAnnotation} {
				plain := plainJob(namespace, "impostor")
				plain.Spec.Suspend = new(true)
				free := plain.DeepCopy()
				put(&plain.Spec.Template.ObjectMeta, key, "x")
				expectAnswer(tenant.Create(ctx, plain.DeepCopy()), "only the JobSet controller creates the Jobs of a JobSet")
				Expect(tenant.Create(ctx, free)).To(Succeed())
				before := free.DeepCopy()
				put(&free.Spec.Template.ObjectMeta, key, "x")
				expectAnswer(tenant.Patch(ctx, free.DeepCopy(), client.MergeFrom(before)), "only the JobSet controller creates the Jobs of a JobSet")
				Expect(tenant.Delete(ctx, free, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			}
		}
	}, SpecTimeout(patience))

	It("restrict pods of plain Jobs only in what assigns them to their Job", func(ctx SpecContext) {
		plain := plainJob(namespace, "plain")
		plain.Spec.Template.Annotations = map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}
		Expect(tenant.Create(ctx, plain)).To(Succeed())
		for _, patch := range []string{loose, unowned} {
			expectAnswer(tenant.Patch(ctx, awaitPod(ctx, plain), jsonPatch(patch), client.DryRunAll), "only the Job controller assigns a pod to a Job")
		}
		Expect(tenant.Patch(ctx, awaitPod(ctx, plain), jsonPatch(`[{"op":"add","path":"/metadata/labels/team","value":"ml"}]`), client.DryRunAll)).To(Succeed())
		grace := client.GracePeriodSeconds(2 * anHour)
		Expect(tenant.Delete(ctx, awaitPod(ctx, plain), grace, client.DryRunAll)).To(Succeed())
		Expect(tenant.Delete(ctx, plain, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	}, SpecTimeout(patience))

	It("keep the owner references of pods of groups", func(ctx SpecContext) {
		plain := plainJob(namespace, "gang")
		plain.Spec.Template.Labels = map[string]string{apis.QueueLabel: "main", apis.PodGroupNameLabel: "g"}
		plain.Spec.Template.Annotations = map[string]string{controlplane.FakeGangExit: controlplane.FakeExitNever}
		Expect(tenant.Create(ctx, plain)).To(Succeed())
		member := awaitPod(ctx, plain)
		Expect(gatesOf(member)).NotTo(BeEmpty())
		expectAnswer(tenant.Patch(ctx, member.DeepCopy(), jsonPatch(loose), client.DryRunAll), labels)
		expectAnswer(tenant.Patch(ctx, member.DeepCopy(), jsonPatch(unowned), client.DryRunAll), owners)
		expectAnswer(tenant.Patch(ctx, member.DeepCopy(), jsonPatch(untracked), client.DryRunAll), tracks)

		By("limiting the grace period of its deletion, once it has a node")
		Expect(env.clientAs(testenv.ManagerUser).Patch(ctx, member.DeepCopy(), jsonPatch(`[{"op":"remove","path":"/spec/schedulingGates"}]`))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(get(ctx, member).Spec.NodeName).NotTo(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		expectAnswer(tenant.Delete(ctx, member.DeepCopy(), client.GracePeriodSeconds(tooLong)), "gracePeriodSeconds is 3601")
		expectAnswer(tenant.Delete(ctx, member.DeepCopy(), client.GracePeriodSeconds(0)), vanishes)
		expectAnswer(tenant.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0)), vanishes)
		expectAnswer(tenant.SubResource("eviction").Create(ctx, member.DeepCopy(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: member.Name}, DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))},
		}), vanishes)
		expectRemovable(ctx, member)
		Expect(tenant.Delete(ctx, member.DeepCopy(), client.GracePeriodSeconds(1), client.DryRunAll)).To(Succeed())
		Expect(tenant.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.DryRunAll)).To(Succeed(), "as the namespace controller does")
		Expect(tenant.Delete(ctx, plain, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	}, SpecTimeout(patience))

	It("limit the grace period of a deletion", func(ctx SpecContext) {
		expectAnswer(tenant.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(tooLong)), "gracePeriodSeconds is 3601, more than the limit of 1h")
		expectAnswer(tenant.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(tooLong)), "gracePeriodSeconds is 3601")
		evict := func(seconds int64) error {
			return tenant.SubResource("eviction").Create(ctx, pod.DeepCopy(), &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
				DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &seconds, DryRun: []string{metav1.DryRunAll}},
			})
		}
		expectAnswer(evict(tooLong), "gracePeriodSeconds is 3601")
		Expect(evict(anHour)).To(Succeed())
		for _, seconds := range []int64{-1, 1, 30, anHour} {
			Expect(tenant.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(seconds), client.DryRunAll)).To(Succeed())
		}
		Expect(tenant.Delete(ctx, pod.DeepCopy(), client.DryRunAll)).To(Succeed())
		Expect(get(ctx, pod).DeletionTimestamp).To(BeNil())
	}, SpecTimeout(patience))

	It("refuse to delete a pod by force, when it runs and when its Job no longer tracks it", func(ctx SpecContext) {
		expectVanishing := func() {
			GinkgoHelper()
			expectAnswer(tenant.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0)), vanishes)
			expectAnswer(tenant.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0)), vanishes)
			expectRemovable(ctx, pod)
		}
		expectVanishing()

		By("suspending the Job, whose controller removes its finalizer from the pod before it deletes it")
		Expect(tenant.Patch(ctx, job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`)))).To(Succeed())
		Eventually(func(g Gomega) {
			fresh := get(ctx, pod)
			g.Expect(fresh.DeletionTimestamp).NotTo(BeNil())
			g.Expect(fresh.Finalizers).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		expectVanishing()
		Expect(tenant.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(1))).To(Succeed())
		expectVanishing()
	}, SpecTimeout(patience))

	DescribeTable("refuse a queued JobSet whose Jobs", func(ctx SpecContext, change func(*batchv1.JobSpec), want string) {
		js := newQueued(namespace, "refused", "a", "b")
		change(&js.Spec.ReplicatedJobs[1].Template.Spec)
		free := js.DeepCopy()
		expectAnswer(tenant.Create(ctx, js, client.DryRunAll), want)
		free.Labels = nil
		Expect(tenant.Create(ctx, free, client.DryRunAll)).To(Succeed(), "without a queue it may")
	},
		Entry("are managed by another controller", func(spec *batchv1.JobSpec) { spec.ManagedBy = new("example.com/other") }, "managedBy and manualSelector"),
		Entry("select their pods", func(spec *batchv1.JobSpec) {
			spec.ManualSelector, spec.Selector = new(true), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
			spec.Template.Labels = spec.Selector.MatchLabels
		}, "managedBy and manualSelector"),
		Entry("have a long grace period", func(spec *batchv1.JobSpec) { spec.Template.Spec.TerminationGracePeriodSeconds = new(tooLong) }, "must be at most 3600"),
		Entry("have a very long grace period", func(spec *batchv1.JobSpec) { spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(1 << 62)) }, "must be at most 3600"),
		Entry("have a long grace period in a liveness probe", func(spec *batchv1.JobSpec) { spec.Template.Spec.Containers[0].LivenessProbe = slowProbe() }, "must be at most 3600"),
		Entry("have a long grace period in a startup probe", func(spec *batchv1.JobSpec) { spec.Template.Spec.Containers[0].StartupProbe = slowProbe() }, "must be at most 3600"),
		Entry("have a sidecar with a long grace period", func(spec *batchv1.JobSpec) {
			spec.Template.Spec.InitContainers = []corev1.Container{{
				Name: "sidecar", Image: "example.com/sidecar", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), LivenessProbe: slowProbe(),
			}}
		}, "must be at most 3600"),
	)

	It("allow a queued JobSet the grace period of the parameter", func(ctx SpecContext) {
		js := newQueued(namespace, "patient", "a")
		spec := &js.Spec.ReplicatedJobs[0].Template.Spec
		spec.Template.Spec.TerminationGracePeriodSeconds, spec.ManagedBy = new(anHour), new(batchv1.JobControllerName)
		Expect(tenant.Create(ctx, js, client.DryRunAll)).To(Succeed())
	}, SpecTimeout(patience))

	It("refuse a pod of a group with a long grace period", func(ctx SpecContext) {
		for _, change := range []func(*corev1.PodSpec){
			func(spec *corev1.PodSpec) { spec.TerminationGracePeriodSeconds = new(tooLong) },
			func(spec *corev1.PodSpec) { spec.Containers[0].LivenessProbe = slowProbe() },
		} {
			member := newPod(namespace, "slow")
			label(apis.PodGroupNameLabel, "g")(member)
			change(&member.Spec)
			expectAnswer(tenant.Create(ctx, member, client.DryRunAll), "must be at most 3600")
		}
	}, SpecTimeout(patience))
})

// expectRemovable expects that the kubelet, which kwok acts as, Kubernetes and administrators may delete a pod with a grace period of 0.
func expectRemovable(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	for _, who := range []client.Client{
		env.clientAs("system:serviceaccount:kube-system:kwok-controller"), env.clientAs("system:serviceaccount:kube-system:pod-garbage-collector"), env.adminClient,
	} {
		Expect(who.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0), client.DryRunAll)).To(Succeed())
	}
}

func slowProbe() *corev1.Probe {
	return &corev1.Probe{
		TerminationGracePeriodSeconds: new(tooLong), ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
	}
}

// allowSubresources lets alice write to those subresources of pods that the role edit leaves out.
func allowSubresources(ctx context.Context, namespace string) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "pod-subresources"}
	Expect(env.adminClient.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"pods/status", "pods/resize", "pods/ephemeralcontainers"}, Verbs: []string{"update", "patch"},
	}}})).To(Succeed())
	Expect(env.adminClient.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: alice}},
	})).To(Succeed())
	Eventually(func(g Gomega) {
		for _, subresource := range []string{"status", "resize", "ephemeralcontainers"} {
			review := reviewOf(namespace, alice, "patch", "/pods/"+subresource)
			g.Expect(env.adminClient.Create(ctx, review)).To(Succeed())
			g.Expect(review.Status.Allowed).To(BeTrue())
		}
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("The guards of the owner references of Jobs", func() {
	It("compare kind, API and UID at every write", func(ctx SpecContext) {
		namespace := newTenant(ctx)
		awaitGuards(ctx, namespace)
		tenant := env.clientAs(alice)
		js := newQueued(namespace, "train", "a")
		Expect(tenant.Create(ctx, js)).To(Succeed())
		job := awaitJobs(ctx, js, 1)[0]

		By("changing who owns a held Job, with the UID kept")
		for field, value := range map[string]string{"kind": "ConfigMap", "apiVersion": "v1", "name": "other"} {
			patch := fmt.Sprintf(`[{"op":"replace","path":"/metadata/ownerReferences/0/%s","value":%q}]`, field, value)
			for _, who := range []client.Client{tenant, env.adminClient} {
				Expect(who.Patch(ctx, job.DeepCopy(), jsonPatch(patch), client.DryRunAll)).To(MatchError(Or(
					ContainSubstring("metadata.ownerReferences: cannot be changed, because the Job uses quota of its JobSet"),
					ContainSubstring("only the JobSet controller creates the Jobs of a JobSet"))), field)
			}
		}

		By("creating a child Job by two writes")
		for _, first := range []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: js.Name, UID: js.UID},
			{APIVersion: jobset.GroupVersion.String(), Kind: "Other", Name: js.Name, UID: js.UID, Controller: new(true)},
			{APIVersion: "example.com/v1", Kind: "JobSet", Name: js.Name, UID: js.UID, Controller: new(true)},
		} {
			plain := plainJob(namespace, "")
			plain.GenerateName, plain.Spec.Suspend, plain.OwnerReferences = "impostor-", new(true), []metav1.OwnerReference{first}
			plain.Labels = maps.Clone(job.Labels)
			delete(plain.Labels, apis.HoldLabel)
			// The garbage collector deletes the Job at once if it has no such owner: the finalizer keeps it for the second write.
			plain.Finalizers = []string{"example.com/keep"}
			if err := tenant.Create(ctx, plain); err != nil {
				expectAnswer(err, "only the JobSet controller creates the Jobs of a JobSet")
				continue
			}
			DeferCleanup(func(ctx SpecContext) {
				Expect(env.adminClient.Patch(ctx, plain, jsonPatch(`[{"op":"remove","path":"/metadata/finalizers"}]`))).To(Succeed())
			}, NodeTimeout(patience))
			for _, isController := range []string{"true", "false"} {
				patch := fmt.Sprintf(`[{"op":"replace","path":"/metadata/ownerReferences/0","value":{"apiVersion":%q,"kind":"JobSet","name":%q,"uid":%q,"controller":%s}}]`,
					jobset.GroupVersion.String(), js.Name, js.UID, isController)
				expectAnswer(tenant.Patch(ctx, plain.DeepCopy(), jsonPatch(patch), client.DryRunAll), "only the JobSet controller creates the Jobs of a JobSet")
			}
		}
	}, SpecTimeout(patience))
})
