package integration_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("The guards of created objects", func() {
	var namespace string
	var tenant client.Client

	BeforeEach(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		awaitGuards(ctx, namespace)
		tenant = env.clientAs(alice)
	}, NodeTimeout(patience))

	It("hold a queued JobSet, and keep the labels of its templates", func(ctx SpecContext) {
		js := newQueued(namespace, "", "bare", "labelled", "annotated")
		js.GenerateName = "train-"
		js.Spec.Suspend = new(false)
		js.Spec.ReplicatedJobs[1].Template.Labels = map[string]string{"team": "ml"}
		js.Spec.ReplicatedJobs[2].Template.Annotations = map[string]string{"note": "x"}
		for i := range 15 {
			js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, newQueued(namespace, "", fmt.Sprintf("more-%d", i)).Spec.ReplicatedJobs...)
		}
		Expect(tenant.Create(ctx, js)).To(Succeed())
		Expect(*js.Spec.Suspend).To(BeTrue())
		Expect(js.Spec.ReplicatedJobs).To(HaveLen(18))
		for _, r := range js.Spec.ReplicatedJobs {
			Expect(r.Template.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldValue), r.Name)
		}
		Expect(js.Spec.ReplicatedJobs[1].Template.Labels).To(HaveKeyWithValue("team", "ml"))
		Expect(js.Spec.ReplicatedJobs[2].Template.Annotations).To(HaveKeyWithValue("note", "x"))
		for _, job := range awaitJobs(ctx, js, 18) {
			Expect(*job.Spec.Suspend).To(BeTrue())
			Expect(job.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldValue))
		}
		expectNoPods(ctx, namespace)
	}, SpecTimeout(patience))

	It("set the gang annotations on the Jobs of a queued JobSet, whatever its templates contain", func(ctx SpecContext) {
		forged := map[string]string{apis.GangGroupAnnotation: "all"}
		gang := func(mode jobsetapi.GangMode) *jobsetapi.GangConfig { return &jobsetapi.GangConfig{GangMode: mode} }
		js := newQueued(namespace, "gangs", "bare", "field", "annotation", "each", "off", "over")
		jobs := js.Spec.ReplicatedJobs
		jobs[0].Template.Annotations = maps.Clone(forged)
		jobs[1].GangConfig = gang(jobsetapi.GangModeGang)
		jobs[2].Template.Annotations = map[string]string{apis.GangAnnotation: "Gang", "note": "x"}
		jobs[3].GangConfig, jobs[3].Template.Annotations = gang(jobsetapi.GangModeReplicatedGang), maps.Clone(forged)
		jobs[4].GangConfig, jobs[4].Template.Annotations = gang(jobsetapi.GangModeOff), map[string]string{"note": "x"}
		jobs[5].GangConfig, jobs[5].Template.Annotations = gang(jobsetapi.GangModeOff), map[string]string{apis.GangAnnotation: "Gang"}
		whole := newQueued(namespace, "gang", "a", "b")
		whole.Annotations = map[string]string{apis.GangAnnotation: "Gang"}
		whole.Spec.ReplicatedJobs[1].Template.Annotations = map[string]string{"note": "x"}
		for js, want := range map[*jobsetapi.JobSet][]string{js: {"", "1", "2", "3x", "", ""}, whole: {"all", "all"}} {
			Expect(tenant.Create(ctx, js, client.DryRunAll)).To(Succeed())
			var got []string
			for _, r := range js.Spec.ReplicatedJobs {
				got = append(got, r.Template.Annotations[apis.GangGroupAnnotation])
			}
			Expect(got).To(Equal(want))
		}
		Expect(js.Spec.ReplicatedJobs[2].Template.Annotations).To(HaveKeyWithValue("note", "x"))
	}, SpecTimeout(patience))

	It("do not change a JobSet without a queue, and refuse a queue later", func(ctx SpecContext) {
		js := newQueued(namespace, "free", "a")
		js.Labels = nil
		Expect(tenant.Create(ctx, js)).To(Succeed())
		Expect(js.Spec.Suspend).To(BeNil())
		Expect(js.Spec.ReplicatedJobs[0].Template.Labels).To(BeEmpty())
		expectAnswer(tenant.Patch(ctx, js.DeepCopy(), jsonPatch(`[{"op":"add","path":"/metadata/labels","value":{"kueue.x-k8s.io/queue-name":"main"}}]`)),
			"delete it and submit it again with the label")
		expectAnswer(tenant.Patch(ctx, js.DeepCopy(), jsonPatch(
			`[{"op":"add","path":"/spec/replicatedJobs/0/template/metadata","value":{"labels":{"tranche.dev/hold":"true"}}}]`)), "field is immutable")
		Eventually(func(g Gomega) { g.Expect(get(ctx, js).Status.TerminalState).To(BeEquivalentTo(jobset.JobSetCompleted)) }).
			WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	DescribeTable("refuse a JobSet that", func(ctx SpecContext, change func(*jobsetapi.JobSet), want string) {
		for _, who := range []client.Client{tenant, env.adminClient} {
			js := newQueued(namespace, "refused", "a")
			change(js)
			expectAnswer(who.Create(ctx, js), want)
		}
	},
		Entry("limits its time to hours", func(js *jobsetapi.JobSet) { js.Labels[apis.MaxExecTimeLabel] = "2h" }, `max-exec-time-seconds is "2h", which is no number of seconds from 1 to 999999999`),
		Entry("limits its time to nothing", func(js *jobsetapi.JobSet) { js.Labels[apis.MaxExecTimeLabel] = "0" }, `max-exec-time-seconds is "0"`),
		Entry("limits its time beyond all numbers", func(js *jobsetapi.JobSet) { js.Labels[apis.MaxExecTimeLabel] = "99999999999" }, `max-exec-time-seconds is "99999999999"`),
		Entry("has a label of Tranche", func(js *jobsetapi.JobSet) { js.Labels[apis.StageLabel] = "a" }, "metadata.labels: only Tranche's manager"),
		Entry("claims that it has started", func(js *jobsetapi.JobSet) {
			js.Annotations = map[string]string{apis.StartedAnnotation: "true"}
		}, "metadata.annotations: only Tranche's manager"),
		Entry("gives its Jobs a label of Tranche", func(js *jobsetapi.JobSet) {
			js.Spec.ReplicatedJobs[0].Template.Labels = map[string]string{apis.StageLabel: "a"}
		}, "spec.replicatedJobs[*].template.metadata"),
		Entry("gives its Jobs an annotation of Tranche", func(js *jobsetapi.JobSet) {
			js.Spec.ReplicatedJobs[0].Template.Annotations = map[string]string{apis.FlavorNodeLabelsAnnotation: "a"}
		}, "spec.replicatedJobs[*].template.metadata"),
		Entry("chooses the scheduler of its gangs", func(js *jobsetapi.JobSet) {
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations = map[string]string{apis.GangProviderAnnotation: "None"}
		}, "only Tranche's manager writes tranche.dev/gang-provider and tranche.dev/gang-scheduler"),
		Entry("puts its Jobs into a gang without a queue", func(js *jobsetapi.JobSet) {
			js.Labels = nil
			js.Spec.ReplicatedJobs[0].Template.Annotations = map[string]string{apis.GangGroupAnnotation: "all"}
		}, "spec.replicatedJobs[*].template.metadata"),
		Entry("holds its Jobs without a queue", func(js *jobsetapi.JobSet) {
			js.Labels = nil
			js.Spec.ReplicatedJobs[0].Template.Labels = map[string]string{apis.HoldLabel: apis.HoldValue}
		}, "spec.replicatedJobs[*].template.metadata"),
		Entry("has an empty queue name", func(js *jobsetapi.JobSet) { js.Labels[apis.QueueLabel] = "" }, "kueue.x-k8s.io/queue-name must not be empty"),
		Entry("names an unknown stage admission policy", func(js *jobsetapi.JobSet) {
			js.Annotations = map[string]string{apis.StageAdmissionAnnotation: "safe"}
		}, `must be Safe, Reserve or Greedy, not "safe"`),
		Entry("would leave its Jobs behind", func(js *jobsetapi.JobSet) {
			js.Finalizers = []string{metav1.FinalizerOrphanDependents}
		}, `remove the finalizer "orphan"`),
		Entry("has tolerationSeconds beyond the exact integers", func(js *jobsetapi.JobSet) {
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Tolerations = []corev1.Toleration{
				{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(1 << 53))},
			}
		}, "tolerationSeconds: must be between"),
	)

	It("refuse a ClusterQueue with a policy that does not exist", func(ctx SpecContext) {
		queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "guards-", Annotations: map[string]string{apis.StageAdmissionAnnotation: "Fast"},
		}}
		expectAnswer(env.adminClient.Create(ctx, queue, client.DryRunAll), `must be Safe, Reserve or Greedy, not "Fast"`)
		queue.Annotations[apis.StageAdmissionAnnotation] = "Reserve"
		Expect(env.adminClient.Create(ctx, queue, client.DryRunAll)).To(Succeed())
	}, SpecTimeout(patience))

	DescribeTable("refuse a duration that has no meaning", func(ctx SpecContext, value, answer string) {
		for _, name := range []string{apis.CoStartAnnotation, apis.ReserveAfterAnnotation} {
			queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{GenerateName: "guards-", Annotations: map[string]string{name: value}}}
			expectAnswer(env.adminClient.Create(ctx, queue, client.DryRunAll), answer)
		}
	},
		Entry("none", "", "must be a duration from 0s to 8760h", SpecTimeout(patience)),
		Entry("a word", "soon", `or Never, not "soon"`, SpecTimeout(patience)),
		Entry("a number", "5", "must be a duration from 0s to 8760h", SpecTimeout(patience)),
		Entry("negative", "-5m", `not "-5m"`, SpecTimeout(patience)),
		Entry("more than a year", "8761h", `not "8761h"`, SpecTimeout(patience)),
		Entry("beyond what a duration can hold", "999999999h999999999h", "must be a duration from 0s to 8760h", SpecTimeout(patience)),
		Entry("too long a text", "1m1m1m1m1m1m1m1m1m1m1m1m1m1m1m1m1m", "must be a duration from 0s to 8760h", SpecTimeout(patience)),
		Entry("zero", "0s", allowed, SpecTimeout(patience)),
		Entry("in parts", "1h30m0.5s", allowed, SpecTimeout(patience)),
		Entry("never", apis.Never, allowed, SpecTimeout(patience)),
	)

	It("refuse a minimum runtime that has no meaning", func(ctx SpecContext) {
		queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "guards-", Annotations: map[string]string{apis.MinimumRuntimeAnnotation: apis.Never, apis.CoStartAnnotation: apis.Never},
		}}
		expectAnswer(env.adminClient.Create(ctx, queue, client.DryRunAll),
			`metadata.annotations: tranche.dev/minimum-runtime must be a duration from 0s to 8760h, such as 90s or 1h30m, not "Never"`)
		queue.Annotations[apis.MinimumRuntimeAnnotation] = "30m"
		Expect(env.adminClient.Create(ctx, queue, client.DryRunAll)).To(Succeed())
	}, SpecTimeout(patience))

	It("refuse a notice of preemption that has no meaning", func(ctx SpecContext) {
		queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "guards-", Annotations: map[string]string{apis.PreemptionNoticeAnnotation: "-2m"},
		}}
		expectAnswer(env.adminClient.Create(ctx, queue, client.DryRunAll),
			`metadata.annotations: tranche.dev/preemption-notice must be a duration from 0s to 8760h, such as 90s or 1h30m, not "-2m"`)
		queue.Annotations[apis.PreemptionNoticeAnnotation] = "2m"
		Expect(env.adminClient.Create(ctx, queue, client.DryRunAll)).To(Succeed())
		localQueue := &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "guards-", Namespace: namespace, Annotations: queue.Annotations}, Spec: kueue.LocalQueueSpec{ClusterQueue: "any"},
		}
		expectAnswer(env.adminClient.Create(ctx, localQueue, client.DryRunAll),
			"metadata.annotations: tranche.dev/preemption-notice has no effect on a LocalQueue; set it on the ClusterQueue")
	}, SpecTimeout(patience))

	DescribeTable("let users write when the work of a JobSet was saved", func(ctx SpecContext, value, answer string) {
		js := newQueued(namespace, "guarded", "a")
		js.Annotations = map[string]string{apis.CheckpointedAtAnnotation: value}
		expectAnswer(tenant.Create(ctx, js, client.DryRunAll), answer)
	},
		Entry("a time", "2026-01-02T15:04:05Z", allowed, SpecTimeout(patience)),
		Entry("a time elsewhere", "2026-01-02T15:04:05.25+05:30", allowed, SpecTimeout(patience)),
		Entry("a day", "2026-01-02", `must be a time as in RFC 3339, such as 2026-01-02T15:04:05Z, not "2026-01-02"`, SpecTimeout(patience)),
		Entry("nothing", "", "must be a time as in RFC 3339", SpecTimeout(patience)),
		Entry("a leap day in another year", "2026-02-29T15:04:05Z", "type conversion error", SpecTimeout(patience)),
		Entry("a day that does not exist", "2026-02-31T15:04:05Z", "must be a time as in RFC 3339", SpecTimeout(patience)),
	)

	It("refuse a duration for ClusterQueues on other objects", func(ctx SpecContext) {
		meta := metav1.ObjectMeta{GenerateName: "guards-", Namespace: namespace, Annotations: map[string]string{apis.CoStartAnnotation: "5m"}}
		localQueue := &kueue.LocalQueue{ObjectMeta: meta, Spec: kueue.LocalQueueSpec{ClusterQueue: "any"}}
		expectAnswer(env.adminClient.Create(ctx, localQueue, client.DryRunAll), "has no effect on a LocalQueue; set it on the ClusterQueue")
		meta.Namespace = ""
		expectAnswer(env.adminClient.Create(ctx, &kueue.Cohort{ObjectMeta: meta}, client.DryRunAll), "has no effect on a Cohort; set it on the ClusterQueue")
		js := newQueued(namespace, "guarded", "a")
		js.Annotations = meta.Annotations
		expectAnswer(env.adminClient.Create(ctx, js, client.DryRunAll), "metadata.annotations: only Tranche's manager")
	}, SpecTimeout(patience))

	It("warn about a queue name on a job of a kind that Tranche does not queue", func(ctx SpecContext) {
		installRayJobs()
		warnings := &recorder{}
		config := env.Plane.AdminConfig()
		config.WarningHandler = warnings
		warned, err := client.New(config, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		created := func(change func(*unstructured.Unstructured)) []string {
			GinkgoHelper()
			warnings.reset()
			job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ray.io/v1", "kind": "RayJob"}}
			job.SetNamespace(namespace)
			job.SetGenerateName("train-")
			job.SetLabels(map[string]string{apis.QueueLabel: "queue"})
			change(job)
			Expect(warned.Create(ctx, job, client.DryRunAll)).To(Succeed())
			return warnings.text()
		}
		warning := ContainElement(ContainSubstring(
			"metadata.labels[kueue.x-k8s.io/queue-name]: Tranche does not queue objects of kind RayJob, whose pods start without quota unless their templates have the label; set it there"))
		Eventually(func() []string { return created(func(*unstructured.Unstructured) {}) }).WithContext(ctx).Should(warning)
		Expect(created(func(job *unstructured.Unstructured) { job.SetLabels(nil) })).To(BeEmpty())
		Expect(created(func(job *unstructured.Unstructured) {
			job.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "ray.io/v1", Kind: "RayService", Name: "serve", UID: "x", Controller: new(true)}})
		})).To(BeEmpty())

		By("warning about a label that is set later, once")
		job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ray.io/v1", "kind": "RayJob"}}
		job.SetNamespace(namespace)
		job.SetName("later")
		Expect(warned.Create(ctx, job)).To(Succeed())
		updated := func(patch string) []string {
			GinkgoHelper()
			warnings.reset()
			Expect(warned.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
			return warnings.text()
		}
		Expect(updated(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"queue"}}}`)).To(warning)
		Expect(updated(`{"metadata":{"annotations":{"note":"x"}}}`)).To(BeEmpty())
	}, SpecTimeout(patience))

	It("name the LocalQueues where a queue is required", func(ctx SpecContext) {
		warnings := &recorder{}
		config := env.Plane.UserConfig(alice)
		config.WarningHandler = warnings
		warned, err := client.New(config, client.Options{Scheme: env.adminClient.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		label := `[{"op":"add","path":"/metadata/labels/tranche.dev~1require-queue","value":"true"}]`
		Expect(env.adminClient.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, jsonPatch(label))).To(Succeed())
		unqueued := func() error {
			js := newQueued(namespace, "unqueued", "a")
			js.Labels = nil
			return warned.Create(ctx, js, client.DryRunAll)
		}
		Eventually(unqueued).WithContext(ctx).Should(MatchError(ContainSubstring("this-namespace-requires-a-queue-but-has-no-local-queue")))
		Expect(warned.Create(ctx, newQueued(namespace, "queued", "a"), client.DryRunAll)).To(Succeed())
		for _, name := range []string{"night", "day"} {
			Expect(env.adminClient.Create(ctx, &kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name + "-shift")},
			})).To(Succeed())
		}
		Eventually(func(g Gomega) {
			warnings.reset()
			g.Expect(unqueued()).To(MatchError(MatchRegexp(
				`must name a LocalQueue: set its label kueue.x-k8s.io/queue-name to "(night|day)" \(ClusterQueue (night|day)-shift\), or to another one that "kubectl get localqueues`)))
			g.Expect(warnings.text()).To(BeEmpty(), "as many as there are LocalQueues")
		}).WithContext(ctx).Should(Succeed())
		job := func(change func(*batchv1.Job)) error {
			job := newQueuedJob(namespace, "unqueued")
			job.Labels = map[string]string{"team": "ml"}
			change(job)
			return warned.Create(ctx, job, client.DryRunAll)
		}
		Expect(job(func(*batchv1.Job) {})).To(MatchError(ContainSubstring("a Job in namespace " + namespace + " must name a LocalQueue")))
		Expect(job(func(j *batchv1.Job) { j.Labels[jobset.JobSetUIDKey] = "x" })).To(MatchError(ContainSubstring("must name a LocalQueue")), "it is of no JobSet")
		// Two policies deny it. The API server reports whichever it evaluates first.
		Expect(job(func(j *batchv1.Job) { j.Labels[apis.OwnQueueLabel] = "day" })).To(MatchError(Or(
			ContainSubstring("must name a LocalQueue"),
			ContainSubstring("only a JobSet names its queue by tranche.dev/queue-name"),
		)), "it is for JobSets only")
		Expect(job(func(j *batchv1.Job) { j.Labels[apis.QueueLabel] = "day" })).To(Succeed())
		Expect(job(func(j *batchv1.Job) {
			j.Spec.Template.Labels = map[string]string{apis.PodGroupNameLabel: "g"}
		})).To(Succeed(), "its pods have to name the queue")
	}, SpecTimeout(patience))

	It("turn resumes by the JobSet controller into no-ops", func(ctx SpecContext) {
		js := newQueued(namespace, "train", "runs", "held")
		// The controller shuffles tolerations, and doubles those with seconds, unless the policy prevents it.
		js.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.Tolerations = []corev1.Toleration{
			{Key: "a", Operator: corev1.TolerationOpExists},
			{Key: "b", Operator: corev1.TolerationOpExists},
			{Key: "c", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))},
		}
		js.Spec.ReplicatedJobs[1].Replicas = 5
		Expect(tenant.Create(ctx, js)).To(Succeed())
		jobs := awaitJobs(ctx, js, 6)
		logged := errorsLogged()
		start(ctx, js)
		for _, job := range jobs {
			if job.Labels[jobset.ReplicatedJobNameKey] == "runs" {
				release(ctx, job)
			}
		}
		// The first attempt that is made a second or more after the Job controller's last write still reorders managedFields.
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, js).Status.ReplicatedJobsStatus).To(ContainElement(And(HaveField("Name", "runs"), HaveField("Succeeded", BeEquivalentTo(1)))))
		}).WithContext(ctx).Should(Succeed())

		before, attempts := versions(ctx, jobs), holds(ctx)
		Eventually(func(g Gomega) {
			poke := `[{"op":"add","path":"/metadata/labels/poke","value":"` + rand.String(8) + `"}]`
			g.Expect(tenant.Patch(ctx, js.DeepCopy(), jsonPatch(poke))).To(Succeed())
			g.Expect(holds(ctx)).To(BeNumerically(">=", attempts+25))
		}).WithContext(ctx).Should(Succeed())
		Expect(versions(ctx, jobs)).To(Equal(before))
		Expect(errorsLogged()).To(Equal(logged))
		Expect(get(ctx, js).Status.ReplicatedJobsStatus).To(ContainElement(And(HaveField("Name", "held"), HaveField("Suspended", BeEquivalentTo(5)))))
	}, SpecTimeout(patience))

	It("refuse all writes when their parameters are missing, except for Jobs that are not held", func(ctx SpecContext) {
		parameters := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}}
		parameters = get(ctx, parameters)
		Expect(env.adminClient.Delete(ctx, parameters)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			parameters.ResourceVersion, parameters.UID = "", ""
			Expect(env.adminClient.Create(ctx, parameters)).To(Succeed())
			awaitGuards(ctx, namespace)
		}, NodeTimeout(patience))
		Eventually(func() error { return tenant.Create(ctx, newQueued(namespace, "probe", "a"), client.DryRunAll) }).
			WithContext(ctx).Should(MatchError(ContainSubstring("no params found")))
		held := plainJob(namespace, "held")
		held.Labels = map[string]string{apis.HoldLabel: apis.HoldValue}
		Expect(env.adminClient.Create(ctx, held, client.DryRunAll)).To(MatchError(ContainSubstring("no params found")))
		Expect(tenant.Create(ctx, plainJob(namespace, "plain"), client.DryRunAll)).To(Succeed())
	}, SpecTimeout(patience))

	// One at a time: an API server permanently stops watching the parameters once no binding refers to them (kubernetes#130887).
	DescribeTable("refuse an object that is not held if the mutating policy is missing", func(ctx SpecContext, missing string, attempts map[string]func(context.Context, *jobsetapi.JobSet) error) {
		js := newQueued(namespace, "train", "a")
		Expect(tenant.Create(ctx, js)).To(Succeed())
		awaitJobs(ctx, js, 1)
		binding := get(ctx, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: missing}})
		Expect(env.adminClient.Delete(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			binding.ResourceVersion, binding.UID = "", ""
			Expect(env.adminClient.Create(ctx, binding)).To(Succeed())
			awaitGuards(ctx, namespace)
		}, NodeTimeout(patience))
		for want, attempt := range attempts {
			Eventually(attempt).WithArguments(ctx, js).WithContext(ctx).Should(MatchError(ContainSubstring(want)))
		}
		expectNoPods(ctx, namespace)
	},
		Entry("that of JobSets", "tranche-hold-jobsets", map[string]func(context.Context, *jobsetapi.JobSet) error{
			"the policy tranche-hold-jobsets has not held this queued JobSet": func(ctx context.Context, js *jobsetapi.JobSet) error {
				return tenant.Create(ctx, newQueued(js.Namespace, "probe", "a"), client.DryRunAll)
			},
			"only Tranche's manager starts a queued JobSet": func(ctx context.Context, js *jobsetapi.JobSet) error {
				return tenant.Patch(ctx, js.DeepCopy(), jsonPatch(`[{"op":"replace","path":"/spec/suspend","value":false}]`), client.DryRunAll)
			},
		}),
		Entry("that of Jobs", "tranche-hold-jobs", map[string]func(context.Context, *jobsetapi.JobSet) error{
			"only Tranche's manager releases a held Job": func(ctx context.Context, js *jobsetapi.JobSet) error {
				job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: js.Namespace, Name: js.Name + "-a-0"}}
				return tenant.Patch(ctx, job, jsonPatch(`[{"op":"replace","path":"/spec/suspend","value":false}]`), client.DryRunAll)
			},
		}),
	)

	It("hold JobSets without a queue where manageJobSetsWithoutQueueName is true", func(ctx SpecContext) {
		parameters := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}}
		set := func(ctx context.Context, value string) {
			patch := `[{"op":"add","path":"/data/manageJobSetsWithoutQueueName","value":"` + value + `"}]`
			Expect(env.adminClient.Patch(ctx, parameters.DeepCopy(), jsonPatch(patch))).To(Succeed())
		}
		unqueued := func(name string) *jobsetapi.JobSet {
			js := newQueued(namespace, name, "a")
			js.Labels = nil
			return js
		}
		isHeld := func(ctx context.Context) (bool, error) {
			js := unqueued("probe")
			err := tenant.Create(ctx, js, client.DryRunAll)
			return ptr.Deref(js.Spec.Suspend, false), err
		}
		set(ctx, "true")
		DeferCleanup(func(ctx SpecContext) {
			set(ctx, "false")
			Eventually(isHeld).WithContext(ctx).Should(BeFalse())
		}, NodeTimeout(patience))
		Eventually(isHeld).WithContext(ctx).Should(BeTrue())
		js := unqueued("held")
		Expect(tenant.Create(ctx, js)).To(Succeed())
		awaitJobs(ctx, js, 1)
		Expect(tenant.Patch(ctx, js.DeepCopy(), jsonPatch(`[{"op":"add","path":"/metadata/labels","value":{"kueue.x-k8s.io/queue-name":"main"}}]`))).To(Succeed())
		expectNoPods(ctx, namespace)
	}, SpecTimeout(patience))

	DescribeTable("are backed by RBAC", func(ctx SpecContext, user, verb, resource string, want bool) {
		review := reviewOf(namespace, user, verb, resource)
		Expect(env.adminClient.Create(ctx, review)).To(Succeed())
		Expect(review.Status.Allowed).To(Equal(want))
	},
		Entry(nil, alice, "create", "jobset.x-k8s.io/jobsets", true),
		Entry(nil, alice, "update", "jobset.x-k8s.io/jobsets/status", false),
		Entry(nil, alice, "update", "batch/jobs/status", false),
		Entry(nil, alice, "list", "kueue.x-k8s.io/workloads", true),
		Entry(nil, alice, "create", "kueue.x-k8s.io/workloads", false),
		Entry(nil, alice, "patch", "kueue.x-k8s.io/workloads", false),
		Entry(nil, alice, "delete", "kueue.x-k8s.io/workloads", false),
		Entry(nil, alice, "patch", "kueue.x-k8s.io/workloads/status", false),
		Entry(nil, alice, "list", "kueue.x-k8s.io/localqueues", true),
		Entry(nil, alice, "create", "kueue.x-k8s.io/localqueues", false),
		Entry(nil, testenv.ManagerUser, "patch", "jobset.x-k8s.io/jobsets", true),
		Entry(nil, testenv.ManagerUser, "patch", "jobset.x-k8s.io/jobsets/status", true),
		Entry(nil, testenv.ManagerUser, "create", "jobset.x-k8s.io/jobsets", false),
		Entry(nil, testenv.ManagerUser, "patch", "batch/jobs", true),
		Entry(nil, testenv.ManagerUser, "patch", "batch/jobs/status", true),
		Entry(nil, testenv.ManagerUser, "create", "batch/jobs", false),
		Entry(nil, testenv.ManagerUser, "delete", "batch/jobs", true),
		Entry(nil, testenv.ManagerUser, "create", "kueue.x-k8s.io/workloads", true),
		Entry(nil, testenv.ManagerUser, "patch", "kueue.x-k8s.io/workloads/status", true),
		Entry(nil, testenv.ManagerUser, "delete", "kueue.x-k8s.io/clusterqueues", false),
		Entry(nil, testenv.ManagerUser, "get", "/secrets", false),
		Entry(nil, testenv.ManagerUser, "create", "/pods", false),
		Entry(nil, testenv.ManagerUser, "update", "/configmaps", true),
		Entry(nil, testenv.ManagerUser, "delete", "/configmaps", false),
	)
})

// reviewOf returns the review that asks whether a user may do an operation on a resource, given as GROUP/RESOURCE or
// GROUP/RESOURCE/SUBRESOURCE.
func reviewOf(namespace, user, verb, resource string) *authorizationv1.SubjectAccessReview {
	parts := append(strings.Split(resource, "/"), "")
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: parts[0], Resource: parts[1], Subresource: parts[2],
		},
	}}
}

// installRayJobs installs a kind of jobs that Kueue queues, until the spec ends.
func installRayJobs() {
	GinkgoHelper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "rayjobs.ray.io"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "ray.io", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "rayjobs", Singular: "rayjob", Kind: "RayJob", ListKind: "RayJobList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
		}},
	}}
	installed, err := envtest.InstallCRDs(env.Plane.AdminConfig(), envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error {
		return envtest.UninstallCRDs(env.Plane.AdminConfig(), envtest.CRDInstallOptions{CRDs: installed})
	})
}

// A recorder keeps the warnings of the API server.
type recorder struct{ lines []string }

var _ rest.WarningHandler = &recorder{}

// HandleWarningHeader is called for each warning.
func (r *recorder) HandleWarningHeader(_ int, _, text string) { r.lines = append(r.lines, text) }

func (r *recorder) reset() { r.lines = nil }

func (r *recorder) text() []string { return r.lines }

// versions returns the resource versions of held Jobs.
func versions(ctx context.Context, jobs []*batchv1.Job) map[string]string {
	GinkgoHelper()
	all := map[string]string{}
	for _, job := range jobs {
		if job.Labels[jobset.ReplicatedJobNameKey] == "held" {
			all[job.Name] = get(ctx, job).ResourceVersion
		}
	}
	return all
}

// holds returns how many writes the policy tranche-hold-jobs has turned into no-ops so far.
func holds(ctx context.Context) float64 {
	GinkgoHelper()
	metrics, err := env.KubectlOutput(ctx, "get", "--raw", "/metrics")
	Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, `apiserver_mutating_admission_policy_check_total{`) && strings.Contains(line, `policy="tranche-hold-jobs"`) {
			count, err := strconv.ParseFloat(strings.Fields(line)[1], 64)
			Expect(err).NotTo(HaveOccurred())
			sum += count
		}
	}
	return sum
}

// errorsLogged counts the errors of the JobSet controller so far, other than write conflicts.
func errorsLogged() int {
	GinkgoHelper()
	log, err := os.ReadFile(filepath.Join(env.Plane.LogDir(), controlplane.JobSet+".log"))
	Expect(err).NotTo(HaveOccurred())
	count := 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "ERROR") && !strings.Contains(line, "the object has been modified") {
			count++
		}
	}
	return count
}
