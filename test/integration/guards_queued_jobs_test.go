package integration_test

import (
	"cmp"
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/testenv"
)

// newQueuedJob returns a Job of two pods that names a queue.
func newQueuedJob(namespace, name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "main"}},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(2)), Completions: new(int32(2)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}},
			}},
		},
	}
}

// minimum lets a Job be admitted with fewer pods.
func minimum(job *batchv1.Job, pods, equal string) {
	job.Annotations = map[string]string{apis.MinParallelismAnnotation: pods, apis.CompletionsEqualAnnotation: cmp.Or(equal, "false")}
}

var _ = Describe("The guards of queued Jobs", func() {
	var namespace string
	var tenant client.Client

	BeforeEach(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		awaitGuards(ctx, namespace)
		tenant = env.clientAs(alice)
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.adminClient.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(namespace), client.PropagationPolicy("Background"))).To(Succeed())
		})
	}, NodeTimeout(patience))

	// released returns a Job that the manager has released.
	released := func(ctx context.Context) *batchv1.Job {
		GinkgoHelper()
		job := newQueuedJob(namespace, "train")
		Expect(tenant.Create(ctx, job)).To(Succeed())
		Expect(env.clientAs(testenv.ManagerUser).Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":
			{"tranche.dev/flavor-node-labels":"gpu"}},"spec":{"suspend":false,"template":{"metadata":{"labels":{"kueue.x-k8s.io/podset":"main"}}}}}`)))).To(Succeed())
		return job
	}

	It("hold a Job that names a queue, however it is submitted", func(ctx SpecContext) {
		for _, suspend := range []*bool{nil, new(false), new(true)} {
			for _, who := range []client.Client{tenant, env.adminClient} {
				job := newQueuedJob(namespace, "train")
				job.Spec.Suspend = suspend
				Expect(who.Create(ctx, job, client.DryRunAll)).To(Succeed())
				Expect(*job.Spec.Suspend).To(BeTrue())
				Expect(job.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued))
				Expect(job.Annotations).NotTo(HaveKey(apis.SuspendedAnnotation))
			}
		}
		unnamed := newQueuedJob(namespace, "")
		unnamed.GenerateName, unnamed.Spec.Suspend = "train-", new(false)
		Expect(tenant.Create(ctx, unnamed, client.DryRunAll)).To(Succeed())
		Expect(*unnamed.Spec.Suspend).To(BeTrue())
		Expect(unnamed.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued))
		cron := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "every-minute"},
			Spec: batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{apis.QueueLabel: "main"}}, Spec: newQueuedJob(namespace, "").Spec,
			}},
		}
		Expect(tenant.Create(ctx, cron)).To(Succeed())
		ofCron := newQueuedJob(namespace, "every-minute-1")
		ofCron.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))}
		Expect(env.adminClient.Create(ctx, ofCron, client.DryRunAll)).To(Succeed())
		Expect(ofCron.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued))
	}, SpecTimeout(patience))

	DescribeTable("refuse a Job that", func(ctx SpecContext, change func(*batchv1.Job), want string) {
		for _, who := range []client.Client{tenant, env.adminClient} {
			job := newQueuedJob(namespace, "refused")
			change(job)
			expectAnswer(who.Create(ctx, job, client.DryRunAll), want)
		}
	},
		Entry("has an empty queue name", func(j *batchv1.Job) { j.Labels[apis.QueueLabel] = "" }, "queue-name must not be empty"),
		Entry("names no possible queue", func(j *batchv1.Job) { j.Labels[apis.QueueLabel] = "Not_a.queue" }, "which is no name of a LocalQueue"),
		Entry("is held without a queue", func(j *batchv1.Job) { j.Labels = map[string]string{apis.HoldLabel: apis.HoldQueued} }, "needs the label kueue.x-k8s.io/queue-name"),
		Entry("has a label of Tranche", func(j *batchv1.Job) { j.Labels[apis.StageLabel] = "a" }, "metadata.labels: only Tranche's manager"),
		Entry("has an annotation of Tranche", func(j *batchv1.Job) {
			j.Annotations = map[string]string{apis.FlavorNodeLabelsAnnotation: "a"}
		}, "metadata.annotations: only Tranche's manager"),
		Entry("is suspended by another word", func(j *batchv1.Job) {
			j.Annotations = map[string]string{apis.SuspendedAnnotation: "yes"}
		}, `tranche.dev/suspended must be "true"`),
		Entry("has a prebuilt quota Workload", func(j *batchv1.Job) { j.Labels[apis.PrebuiltWorkloadKey] = "own" }, "prebuilt-workload-name is not supported"),
		Entry("has an annotation for one", func(j *batchv1.Job) {
			j.Annotations = map[string]string{apis.PrebuiltWorkloadKey: "own"}
		}, "prebuilt-workload-name is not supported"),
		Entry("has another controller", func(j *batchv1.Job) { j.Spec.ManagedBy = new("example.com/controller") }, "managedBy and manualSelector are not supported"),
		Entry("terminates late", func(j *batchv1.Job) {
			j.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(7200))
		}, "must be at most 3600"),
		Entry("sets the labels of its pods' quota", func(j *batchv1.Job) {
			j.Spec.Template.Labels = map[string]string{apis.PodSetLabel: "main"}
		}, "remove them"),
		Entry("limits its time by a word", func(j *batchv1.Job) { j.Labels[apis.MaxExecTimeLabel] = "1h" }, `max-exec-time-seconds is "1h", which is no number of seconds`),
		Entry("limits its time to nothing", func(j *batchv1.Job) { j.Labels[apis.MaxExecTimeLabel] = "0" }, "which is no number of seconds"),
		Entry("needs no pods", func(j *batchv1.Job) { minimum(j, "0", "") }, "job-min-parallelism must be a number"),
		Entry("needs all pods", func(j *batchv1.Job) { minimum(j, "2", "") }, "job-min-parallelism must be a number"),
		Entry("needs some pods", func(j *batchv1.Job) { minimum(j, "some", "") }, "job-min-parallelism must be a number"),
		Entry("is elastic by another word", func(j *batchv1.Job) { j.Annotations = map[string]string{apis.ElasticJobAnnotation: "yes"} }, `elastic-job must be "true" or "false"`),
		Entry("is elastic and may be admitted with fewer pods", func(j *batchv1.Job) {
			minimum(j, "1", "")
			j.Annotations[apis.ElasticJobAnnotation] = "true"
		}, "is not combined with kueue.x-k8s.io/job-min-parallelism"),
		Entry("has completions that cannot change", func(j *batchv1.Job) { minimum(j, "1", "true") }, "on an Indexed Job"),
		Entry("can be orphaned", func(j *batchv1.Job) { j.Finalizers = []string{"orphan"} }, "must be deleted with it"),
	)

	DescribeTable("on a held Job", func(ctx SpecContext, patch, want string) {
		job := newQueuedJob(namespace, "train")
		job.Annotations = map[string]string{"note": "x"}
		Expect(tenant.Create(ctx, job)).To(Succeed())
		for _, who := range []client.Client{tenant, env.adminClient} {
			before := get(ctx, job)
			expectAnswer(who.Patch(ctx, before.DeepCopy(), jsonPatch(patch), client.DryRunAll), want)
			if want == noEffect {
				Expect(who.Patch(ctx, before.DeepCopy(), jsonPatch(patch))).To(Succeed())
				Expect(get(ctx, job).Spec).To(Equal(before.Spec))
			}
		}
		expectNoPods(ctx, namespace)
	},
		Entry("start it", `[{"op":"replace","path":"/spec/suspend","value":false}]`, noEffect),
		Entry("start it by leaving suspend out", `[{"op":"remove","path":"/spec/suspend"}]`, noEffect),
		Entry("strip the hold label", `[{"op":"remove","path":"/metadata/labels/tranche.dev~1hold"}]`, "metadata.labels: only Tranche's manager"),
		Entry("strip all labels and start it",
			`[{"op":"remove","path":"/metadata/labels"},{"op":"replace","path":"/spec/suspend","value":false}]`, "metadata.labels: only Tranche's manager"),
		Entry("make it a Job of a JobSet", `[{"op":"replace","path":"/metadata/labels/tranche.dev~1hold","value":"true"}]`, "metadata.labels: only Tranche's manager"),
		Entry("make it a Job without a queue", `[{"op":"replace","path":"/metadata/labels/tranche.dev~1hold","value":"unqueued"}]`, "metadata.labels: only Tranche's manager"),
		Entry("remove its queue", `[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}]`, "cannot be removed"),
		Entry("empty its queue name", `[{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":""}]`, "cannot be removed"),
		Entry("move it to another queue", `[{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"other"}]`, allowed),
		Entry("forge an annotation of the manager", `[{"op":"add","path":"/metadata/annotations/tranche.dev~1flavor-node-labels","value":"a"}]`,
			"metadata.annotations: only Tranche's manager"),
		Entry("give it a prebuilt quota Workload", `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1prebuilt-workload-name","value":"own"}]`,
			"prebuilt-workload-name is not supported"),
		Entry("give it one by an annotation", `[{"op":"add","path":"/metadata/annotations/kueue.x-k8s.io~1prebuilt-workload-name","value":"own"}]`,
			"prebuilt-workload-name is not supported"),
		Entry("suspend it", `[{"op":"add","path":"/metadata/annotations/tranche.dev~1suspended","value":"true"}]`, allowed),
		Entry("change where its pods run", `[{"op":"add","path":"/spec/template/spec/nodeSelector","value":{"a":"b"}}]`, "spec.template: cannot be changed"),
		Entry("enlarge it", `[{"op":"replace","path":"/spec/parallelism","value":3}]`, allowed),
		Entry("let it be orphaned", `[{"op":"add","path":"/metadata/finalizers","value":["orphan"]}]`, "must be deleted with it"),
	)

	DescribeTable("on a released Job", func(ctx SpecContext, patch, want string) {
		job := released(ctx)
		for _, who := range []client.Client{tenant, env.adminClient} {
			expectAnswer(who.Patch(ctx, job.DeepCopy(), jsonPatch(patch), client.DryRunAll), want)
		}
	},
		Entry("enlarge it", `[{"op":"replace","path":"/spec/parallelism","value":3}]`, "spec.parallelism, spec.completions: cannot be changed"),
		Entry("make it smaller", `[{"op":"replace","path":"/spec/parallelism","value":1}]`, "spec.parallelism, spec.completions: cannot be changed"),
		Entry("enlarge and suspend it", `[{"op":"replace","path":"/spec/parallelism","value":3},{"op":"replace","path":"/spec/suspend","value":true}]`,
			"spec.parallelism, spec.completions: cannot be changed"),
		Entry("move it to another queue", `[{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"other"}]`, "cannot be changed while the Job runs"),
		Entry("let it run for longer", `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1max-exec-time-seconds","value":"9999"}]`, "cannot be changed while the Job runs"),
		Entry("strip the hold label", `[{"op":"remove","path":"/metadata/labels/tranche.dev~1hold"}]`, "metadata.labels: only Tranche's manager"),
		Entry("remove the record of its flavors", `[{"op":"remove","path":"/metadata/annotations/tranche.dev~1flavor-node-labels"}]`,
			"metadata.annotations: only Tranche's manager"),
		Entry("give it a prebuilt quota Workload", `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1prebuilt-workload-name","value":"own"}]`,
			"prebuilt-workload-name is not supported"),
		Entry("take more time to finish", `[{"op":"add","path":"/spec/activeDeadlineSeconds","value":9999}]`, allowed),
	)

	DescribeTable("on a released elastic Job of two pods,", func(ctx SpecContext, patch string, parallelism, completions int32, annotations map[string]string, want string) {
		job := newQueuedJob(namespace, "elastic")
		job.Annotations = map[string]string{apis.ElasticJobAnnotation: "true"}
		job.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		Expect(tenant.Create(ctx, job)).To(Succeed())
		Expect(env.clientAs(testenv.ManagerUser).Patch(ctx, job, jsonPatch(`[{"op":"replace","path":"/spec/suspend","value":false},
			{"op":"add","path":"/metadata/annotations/tranche.dev~1parallelism","value":"7"}]`))).To(Succeed())
		for _, who := range []client.Client{tenant, env.adminClient} {
			after := job.DeepCopy()
			expectAnswer(who.Patch(ctx, after, jsonPatch(patch), client.DryRunAll), want)
			if want == allowed {
				Expect([]int32{*after.Spec.Parallelism, *after.Spec.Completions}).To(Equal([]int32{parallelism, completions}))
				delete(after.Annotations, apis.ElasticJobAnnotation)
				delete(after.Annotations, batchv1.JobTrackingFinalizer)
				Expect(after.Annotations).To(Equal(annotations))
			}
		}
	},
		Entry("enlarge it", `[{"op":"replace","path":"/spec/parallelism","value":3},{"op":"replace","path":"/spec/completions","value":3}]`,
			int32(2), int32(2), map[string]string{apis.SizeAnnotation: "3", apis.CompletionsAnnotation: "3"}, allowed),
		Entry("let it have more pods than completions", `[{"op":"replace","path":"/spec/parallelism","value":3}]`, int32(3), int32(2), map[string]string{}, allowed),
		Entry("make it smaller", `[{"op":"replace","path":"/spec/parallelism","value":1}]`, int32(1), int32(2), map[string]string{}, allowed),
		Entry("change something else", `[{"op":"add","path":"/spec/activeDeadlineSeconds","value":9999}]`,
			int32(2), int32(2), map[string]string{apis.SizeAnnotation: "7"}, allowed),
		Entry("withdraw the larger size", `[{"op":"remove","path":"/metadata/annotations/tranche.dev~1parallelism"}]`, int32(2), int32(2), map[string]string{}, allowed),
		Entry("leave it without pods", `[{"op":"replace","path":"/spec/parallelism","value":0}]`, int32(0), int32(0), nil, "to 1 or more"),
		Entry("enlarge and suspend it", `[{"op":"replace","path":"/spec/parallelism","value":3},{"op":"replace","path":"/spec/completions","value":3},
			{"op":"replace","path":"/spec/suspend","value":true}]`, int32(0), int32(0), nil, "spec.parallelism, spec.completions: cannot be changed"),
		Entry("forge a wish for no pods", `[{"op":"replace","path":"/metadata/annotations/tranche.dev~1parallelism","value":"0"}]`, int32(0), int32(0), nil, "must be a number from 1"),
		Entry("forge other completions", `[{"op":"add","path":"/metadata/annotations/tranche.dev~1completions","value":"9"}]`, int32(0), int32(0), nil, "must be equal to it"),
		Entry("let it no longer be elastic", `[{"op":"remove","path":"/metadata/annotations/kueue.x-k8s.io~1elastic-job"}]`, int32(0), int32(0), nil, "can be changed while the Job is suspended"),
		Entry("let it no longer be elastic, and enlarge it", `[{"op":"remove","path":"/metadata/annotations/kueue.x-k8s.io~1elastic-job"},
			{"op":"replace","path":"/spec/parallelism","value":3},{"op":"replace","path":"/spec/completions","value":3}]`, int32(0), int32(0), nil, "metadata.annotations"),
		Entry("let it be admitted with fewer pods", `[{"op":"add","path":"/metadata/annotations/kueue.x-k8s.io~1job-min-parallelism","value":"1"}]`,
			int32(0), int32(0), nil, "metadata.annotations"),
	)

	It("keep a held Job as it is when it is applied by force", func(ctx SpecContext) {
		job := newQueuedJob(namespace, "train")
		Expect(tenant.Create(ctx, job)).To(Succeed())
		apply := func(change func(*batchv1ac.JobApplyConfiguration)) (*batchv1.Job, error) {
			wanted := batchv1ac.Job("train", namespace).WithSpec(batchv1ac.JobSpec().WithSuspend(false))
			change(wanted)
			err := tenant.Apply(ctx, wanted, client.ForceOwnership, client.FieldOwner("tenant"))
			return get(ctx, job), err
		}
		after, err := apply(func(*batchv1ac.JobApplyConfiguration) {})
		Expect(err).NotTo(HaveOccurred())
		Expect(*after.Spec.Suspend).To(BeTrue())
		_, err = apply(func(j *batchv1ac.JobApplyConfiguration) { j.WithLabels(map[string]string{apis.HoldLabel: "none"}) })
		expectAnswer(err, "metadata.labels: only Tranche's manager")
		_, err = apply(func(j *batchv1ac.JobApplyConfiguration) { j.WithLabels(map[string]string{apis.QueueLabel: ""}) })
		expectAnswer(err, "cannot be removed")
		_, err = apply(func(j *batchv1ac.JobApplyConfiguration) {
			j.WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("jobset.x-k8s.io/v1alpha2").WithKind("JobSet").WithName("x").WithUID("x"))
		})
		expectAnswer(err, "only the JobSet controller")
		expectNoPods(ctx, namespace)
	}, SpecTimeout(patience))

	DescribeTable("on a suspended Job without a queue", func(ctx SpecContext, first, second, want string) {
		job := newQueuedJob(namespace, "later")
		job.Labels, job.Spec.Suspend = map[string]string{"team": "ml"}, new(true)
		Expect(tenant.Create(ctx, job)).To(Succeed())
		if first != "" {
			Expect(tenant.Patch(ctx, job, jsonPatch(first))).To(Succeed())
		}
		expectAnswer(tenant.Patch(ctx, job, jsonPatch(second)), want)
		if want == noEffect {
			Expect(*get(ctx, job).Spec.Suspend).To(BeTrue())
		}
		expectNoPods(ctx, namespace)
	},
		Entry("add queue and another hold", "", `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"main"},
			{"op":"add","path":"/metadata/labels/tranche.dev~1hold","value":"none"},{"op":"replace","path":"/spec/suspend","value":false}]`, "metadata.labels: only Tranche's manager"),
		Entry("add another hold first", "", `[{"op":"add","path":"/metadata/labels/tranche.dev~1hold","value":"none"}]`, "only Tranche's manager"),
		Entry("add the queue and start it", "", `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"main"},
			{"op":"replace","path":"/spec/suspend","value":false}]`, noEffect),
		Entry("add the queue, and then start it", `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"main"}]`,
			`[{"op":"replace","path":"/spec/suspend","value":false}]`, noEffect),
		Entry("label its pods as those of a queued Job", "", `[{"op":"add","path":"/spec/template/metadata/labels/kueue.x-k8s.io~1podset","value":"main"}]`,
			"kueue.x-k8s.io/podset is only for pods of queued Jobs"),
	)

	It("keep a Job from becoming one of a JobSet", func(ctx SpecContext) {
		job := newQueuedJob(namespace, "train")
		Expect(tenant.Create(ctx, job)).To(Succeed())
		owner := `[{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"jobset.x-k8s.io/v1alpha2","kind":"JobSet","name":"x","uid":"x"}]}]`
		expectAnswer(tenant.Patch(ctx, job, jsonPatch(owner), client.DryRunAll), "only the JobSet controller")
	}, SpecTimeout(patience))

	It("record a suspension by the user, and end it", func(ctx SpecContext) {
		job := released(ctx)
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, job).Status.StartTime).NotTo(BeNil(), "the Job controller has noticed the release")
		}).WithContext(ctx).Should(Succeed())
		suspend := func(value bool) *batchv1.Job {
			Expect(tenant.Patch(ctx, job, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, value)))).To(Succeed())
			return get(ctx, job)
		}
		now := suspend(true)
		Expect(*now.Spec.Suspend).To(BeTrue())
		Expect(now.Annotations).To(HaveKeyWithValue(apis.SuspendedAnnotation, "true"))
		now = suspend(false)
		Expect(*now.Spec.Suspend).To(BeTrue(), "only the manager releases it")
		Expect(now.Annotations).NotTo(HaveKey(apis.SuspendedAnnotation))
	}, SpecTimeout(patience))

	It("keep Jobs without a queue from making pods that pass for those of queued Jobs", func(ctx SpecContext) {
		create := func(labels, ofPods map[string]string) error {
			job := newQueuedJob(namespace, "free")
			job.Labels, job.Spec.Template.Labels = labels, ofPods
			return tenant.Create(ctx, job, client.DryRunAll)
		}
		const podSet = "kueue.x-k8s.io/podset"
		own := map[string]string{"a": "b"}
		Expect(create(own, map[string]string{apis.QueueLabel: "main"})).To(MatchError(ContainSubstring("set it in metadata.labels of the Job")))
		Expect(create(own, map[string]string{apis.QueueLabel: "main", podSet: "main"})).To(MatchError(ContainSubstring("set it in metadata.labels of the Job")))
		Expect(create(own, map[string]string{apis.QueueLabel: "main", apis.PodGroupNameLabel: "group"})).To(Succeed())
		Expect(create(own, map[string]string{apis.QueueLabel: "main", apis.PodGroupNameLabel: "group", podSet: "main"})).
			To(MatchError(ContainSubstring("is only for pods of queued Jobs")))
		Expect(create(map[string]string{"tranche.dev/queue-name": "main"}, nil)).To(MatchError(ContainSubstring("only a JobSet names its queue by tranche.dev/queue-name")))
	}, SpecTimeout(patience))

	It("refuse, through the status of a queued Job, to change what the manager relies on", func(ctx SpecContext) {
		job := newQueuedJob(namespace, "by-status")
		Expect(tenant.Create(ctx, job)).To(Succeed())
		for patch, want := range map[string]string{
			`[{"op":"remove","path":"/metadata/labels/tranche.dev~1hold"}]`:                  "metadata.labels: only Tranche's manager",
			`[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}]`:         "of a queued Job cannot be removed",
			`[{"op":"add","path":"/metadata/annotations","value":{"tranche.dev/gang":"a"}}]`: "metadata.annotations: only Tranche's manager",
		} {
			expectAnswer(env.adminClient.Status().Patch(ctx, job.DeepCopy(), jsonPatch(patch)), want)
		}
	}, SpecTimeout(patience))

	It("record that a user suspends a Job that still reports that it is suspended, and let the user resume it", func(ctx SpecContext) {
		job := newQueuedJob(namespace, "train")
		// Only this spec writes its status.
		job.Labels, job.Spec.ManagedBy, job.Spec.Suspend = nil, new("example.com/controller"), new(false)
		Expect(tenant.Create(ctx, job)).To(Succeed())
		Expect(env.clientAs(testenv.ManagerUser).Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":
			{"kueue.x-k8s.io/queue-name":"main","tranche.dev/hold":"queued"}}}`)))).To(Succeed())
		for status, isUnnoticed := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: true, corev1.ConditionFalse: false} {
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: status, LastTransitionTime: metav1.Now()}}
			Expect(env.adminClient.Status().Update(ctx, job)).To(Succeed())
			now := job.DeepCopy()
			Expect(tenant.Patch(ctx, now, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`)), client.DryRunAll)).To(Succeed())
			Expect(*now.Spec.Suspend).To(BeTrue())
			Expect(now.Annotations).To(HaveKeyWithValue(apis.SuspendedAnnotation, "true"))
			_, unnoticed := now.Annotations[apis.UnnoticedAnnotation]
			Expect(unnoticed).To(Equal(isUnnoticed), "the condition Suspended is %s", status)
		}
		job.Status.Conditions[0].Status = corev1.ConditionTrue
		Expect(env.adminClient.Status().Update(ctx, job)).To(Succeed())
		patch := func(patch string) error {
			return tenant.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(patch)))
		}
		for _, alone := range []string{`{"metadata":{"annotations":{"tranche.dev/unnoticed":"true"}}}`, `{"metadata":{"annotations":{"tranche.dev/unnoticed":"true"}},"spec":{"suspend":false}}`} {
			Expect(patch(alone)).To(MatchError(ContainSubstring("only Tranche's manager")), "it would keep the quota")
		}
		Expect(patch(`{"spec":{"suspend":true}}`)).To(Succeed())
		Expect(patch(`{"metadata":{"annotations":{"tranche.dev/unnoticed":null}}}`)).To(MatchError(ContainSubstring("only Tranche's manager")))
		Expect(patch(`{"spec":{"suspend":false}}`)).To(Succeed())
		Expect(job.Annotations).To(SatisfyAll(Not(HaveKey(apis.SuspendedAnnotation)), HaveKey(apis.UnnoticedAnnotation)))
		Expect(*job.Spec.Suspend).To(BeTrue(), "only the manager releases it")
	}, SpecTimeout(patience))

	It("queue a suspended Job that gets a queue name, and no Job that runs", func(ctx SpecContext) {
		queue := jsonPatch(`[{"op":"add","path":"/metadata/labels","value":{"kueue.x-k8s.io/queue-name":"main"}}]`)
		for _, suspended := range []bool{true, false} {
			job := newQueuedJob(namespace, fmt.Sprintf("free-%t", suspended))
			job.Labels, job.Spec.Suspend = nil, &suspended
			Expect(tenant.Create(ctx, job)).To(Succeed())
			Expect(job.Labels).NotTo(HaveKey(apis.HoldLabel))
			forged := jsonPatch(`[{"op":"add","path":"/metadata/labels","value":{"tranche.dev/hold":"queued"}}]`)
			expectAnswer(tenant.Patch(ctx, job.DeepCopy(), forged, client.DryRunAll), "metadata.labels: only Tranche's manager")
			if !suspended {
				expectAnswer(tenant.Patch(ctx, job.DeepCopy(), queue), "this Job does not wait for quota")
				start := jsonPatch(`[{"op":"add","path":"/metadata/labels","value":{"kueue.x-k8s.io/queue-name":"main"}},{"op":"replace","path":"/spec/suspend","value":true}]`)
				expectAnswer(tenant.Patch(ctx, job.DeepCopy(), start), "this Job does not wait for quota")
				continue
			}
			start := jsonPatch(`[{"op":"add","path":"/metadata/labels","value":{"kueue.x-k8s.io/queue-name":"main"}},{"op":"replace","path":"/spec/suspend","value":false}]`)
			for _, patch := range []client.Patch{start, queue} {
				queued := job.DeepCopy()
				Expect(tenant.Patch(ctx, queued, patch, client.DryRunAll)).To(Succeed())
				Expect(queued.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued))
				Expect(*queued.Spec.Suspend).To(BeTrue())
			}
		}
	}, SpecTimeout(patience))

	It("queue a suspended Job from before the installation when it is started", func(ctx SpecContext) {
		// As no policy has seen it.
		job := newQueuedJob(namespace, "early")
		job.Spec.Suspend = new(true)
		Expect(env.clientAs(testenv.ManagerUser, "system:masters").Create(ctx, job)).To(Succeed())
		Expect(job.Labels).NotTo(HaveKey(apis.HoldLabel))
		note := job.DeepCopy()
		Expect(tenant.Patch(ctx, note, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"ml"}}}`)), client.DryRunAll)).To(Succeed())
		Expect(note.Labels).NotTo(HaveKey(apis.HoldLabel), "it waits for its user")
		Expect(tenant.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`)))).To(Succeed())
		Expect(*job.Spec.Suspend).To(BeTrue())
		Expect(job.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued))
	}, SpecTimeout(patience))

	It("refuse keys of Tranche that a Job has when it joins its queue", func(ctx SpecContext) {
		for _, kind := range []string{"labels", "annotations"} {
			job := newQueuedJob(namespace, "forged-"+kind)
			job.Labels, job.Spec.Suspend = map[string]string{"team": "ml"}, new(true)
			forged := map[string]string{apis.AdmissionAdditionsAnnotation: "x", "note": "x"}
			if job.Annotations = forged; kind == "labels" {
				job.Labels, job.Annotations = forged, map[string]string{"note": "x"}
			}
			Expect(tenant.Create(ctx, job)).To(Succeed())
			join := `{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"main"}`
			expectAnswer(tenant.Patch(ctx, job.DeepCopy(), jsonPatch("["+join+"]"), client.DryRunAll), "metadata."+kind+": only Tranche's manager")
			remove := fmt.Sprintf(`{"op":"remove","path":"/metadata/%s/tranche.dev~1admission-additions"}`, kind)
			Expect(tenant.Patch(ctx, job, jsonPatch("["+remove+","+join+"]"), client.DryRunAll)).To(Succeed())
			Expect(job.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued))
		}
	}, SpecTimeout(patience))

	It("queue and hold a Job that names no queue where there is a LocalQueue named default", func(ctx SpecContext) {
		Expect(env.adminClient.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "any"},
		})).To(Succeed())
		for _, labels := range []map[string]string{nil, {"team": "ml"}} {
			Eventually(func(g Gomega) {
				job := newQueuedJob(namespace, "default")
				job.Labels = labels
				g.Expect(tenant.Create(ctx, job, client.DryRunAll)).To(Succeed())
				g.Expect(job.Labels).To(HaveKeyWithValue(apis.QueueLabel, "default"))
				g.Expect(job.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued))
				g.Expect(*job.Spec.Suspend).To(BeTrue())
			}).WithContext(ctx).Should(Succeed())
		}
		ofGroup := newQueuedJob(namespace, "group")
		ofGroup.Labels = map[string]string{"team": "ml"}
		ofGroup.Spec.Template.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "group"}
		Expect(tenant.Create(ctx, ofGroup, client.DryRunAll)).To(Succeed())
		Expect(ofGroup.Labels).NotTo(HaveKey(apis.QueueLabel), "its pods are gated")
		selecting := newQueuedJob(namespace, "selecting")
		selecting.Labels, selecting.Spec.ManualSelector = nil, new(true)
		selecting.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"own": "x"}}
		selecting.Spec.Template.Labels = map[string]string{"own": "x"}
		Expect(tenant.Create(ctx, selecting, client.DryRunAll)).To(Succeed())
		Expect(selecting.Labels).NotTo(HaveKey(apis.HoldLabel), "it could not be queued")
		named := newQueuedJob(namespace, "named")
		Expect(tenant.Create(ctx, named, client.DryRunAll)).To(Succeed())
		Expect(named.Labels).To(HaveKeyWithValue(apis.QueueLabel, "main"))
	}, SpecTimeout(patience))

	It("leave a Job alone whose pods wait for quota by themselves", func(ctx SpecContext) {
		ofGroup := newQueuedJob(namespace, "alone")
		ofGroup.Labels = nil // the API server gives it those of its pods
		ofGroup.Spec.Template.Labels = map[string]string{apis.QueueLabel: "main", "scheduling.x-k8s.io/pod-group": "group"}
		Expect(tenant.Create(ctx, ofGroup, client.DryRunAll)).To(Succeed())
		Expect(ofGroup.Labels).NotTo(HaveKey(apis.HoldLabel), "its pods wait for quota")
		withoutQueue := newQueuedJob(namespace, "alone")
		withoutQueue.Spec.Template.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "group"}
		Expect(tenant.Create(ctx, withoutQueue, client.DryRunAll)).To(Succeed())
		Expect(withoutQueue.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued), "its pods name no queue")
	}, SpecTimeout(patience))

	It("keep the pods of a Job on its quota", func(ctx SpecContext) {
		released(ctx)
		var pods corev1.PodList
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.List(ctx, &pods, client.InNamespace(namespace))).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(2))
		}).WithContext(ctx).Should(Succeed())
		for patch, want := range map[string]string{
			`[{"op":"remove","path":"/metadata/labels/batch.kubernetes.io~1controller-uid"}]`: "only the Job controller creates the pods",
			`[{"op":"remove","path":"/metadata/labels"}]`:                                     "only the Job controller creates the pods",
			`[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1podset"}]`:              "name the quota that the pod uses",
			`[{"op":"remove","path":"/metadata/ownerReferences"}]`:                            "must be deleted with its owner",
			untracked: tracks,
			`[{"op":"add","path":"/metadata/labels/team","value":"ml"}]`: allowed,
		} {
			expectAnswer(tenant.Patch(ctx, &pods.Items[0], jsonPatch(patch), client.DryRunAll), want)
		}
		grace := int64(9999)
		expectAnswer(tenant.Delete(ctx, &pods.Items[0], client.DryRunAll, &client.DeleteOptions{GracePeriodSeconds: &grace}), "more than the limit")
		Eventually(func(g Gomega) { g.Expect(get(ctx, &pods.Items[0]).Spec.NodeName).NotTo(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		expectAnswer(tenant.Delete(ctx, &pods.Items[0], client.DryRunAll, client.GracePeriodSeconds(0)), vanishes)
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "train"}}
		expectAnswer(tenant.Delete(ctx, job, client.DryRunAll, client.PropagationPolicy("Orphan")), "must be deleted with it")
		expectAnswer(tenant.Delete(ctx, job, client.DryRunAll), "must be deleted with it")
	}, SpecTimeout(patience))
})
