package integration_test

import (
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// An object that is restored from a backup has what the manager has recorded in it. A tenant that writes the same gets no more.
var _ = Describe("The guards of restored objects", func() {
	var namespace string
	var creators []client.Client

	BeforeEach(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		awaitGuards(ctx, namespace)
		creators = []client.Client{env.clientAs(alice), env.adminClient}
	}, NodeTimeout(patience))

	It("create a JobSet as if it were new", func(ctx SpecContext) {
		for _, who := range creators {
			js := newQueued(namespace, "started", "a", "b")
			js.Annotations = map[string]string{apis.StartedAnnotation: "true", apis.TimelineAnnotation: "{}", apis.UninstalledAnnotation: "true", "note": "x"}
			js.Spec.Suspend = new(false)
			js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations = map[string]string{
				apis.GangProviderAnnotation: "Kube", apis.GangSchedulerAnnotation: "other", apis.HeldAnnotation: "true", "note": "x",
			}
			Expect(who.Create(ctx, js, client.DryRunAll)).To(Succeed())
			Expect(js.Annotations).To(Equal(map[string]string{"note": "x"}))
			Expect(js.Spec.Suspend).To(HaveValue(BeTrue()), "it waits for quota")
			Expect(js.Spec.ReplicatedJobs).To(HaveEach(HaveField("Template.Labels", HaveKeyWithValue(apis.HoldLabel, apis.HoldValue))))
			Expect(js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations).To(Equal(map[string]string{"note": "x"}))

			paused := newQueued(namespace, "paused", "a", "b")
			paused.Labels, paused.Spec.Suspend = nil, new(true)
			paused.Annotations = map[string]string{apis.PausedAnnotation: "true", apis.FinishedStagesAnnotation: `{"stages":["a"]}`}
			paused.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: []jobsetapi.StartupPolicyRule{{TargetReplicatedJobs: []string{"a"}}}}
			Expect(who.Create(ctx, paused, client.DryRunAll)).To(Succeed())
			Expect(paused.Annotations).NotTo(Or(HaveKey(apis.PausedAnnotation), HaveKey(apis.FinishedStagesAnnotation)))
			Expect(paused.Spec.Suspend).To(HaveValue(BeFalse()), "its user has not suspended it")
			suspended := paused.DeepCopy()
			suspended.ResourceVersion, suspended.UID, suspended.Spec.Suspend = "", "", new(true)
			suspended.Annotations[apis.FinishedStagesAnnotation] = "{}"
			Expect(who.Create(ctx, suspended, client.DryRunAll)).To(Succeed())
			Expect(suspended.Spec.Suspend).To(HaveValue(BeTrue()), "its user has suspended it")
		}
	}, SpecTimeout(patience))

	It("create a queued Job as if it were new, but for the additions that the manager removes", func(ctx SpecContext) {
		for _, who := range creators {
			job := newQueuedJob(namespace, "released")
			job.Labels[apis.HoldLabel] = apis.HoldQueued
			additions := map[string]string{apis.FlavorNodeLabelsAnnotation: "accelerator", apis.AdmissionAdditionsAnnotation: `{"labels":["x"]}`, apis.SuspendedAnnotation: "true"}
			job.Annotations = map[string]string{apis.UnnoticedAnnotation: "true", apis.SizeAnnotation: "8", apis.MinParallelismAnnotation: "2", apis.CompletionsEqualAnnotation: "true"}
			maps.Copy(job.Annotations, additions)
			job.Spec.Suspend, job.Spec.CompletionMode = new(false), new(batchv1.IndexedCompletion)
			job.Spec.Template.Labels = map[string]string{apis.PodSetLabel: "main", apis.ClusterQueueLabel: "q", apis.LocalQueueLabel: "main", "x": "y"}
			Expect(who.Create(ctx, job, client.DryRunAll)).To(Succeed())
			Expect(job.Spec.Suspend).To(HaveValue(BeTrue()), "it waits for quota")
			Expect(job.Annotations).NotTo(Or(HaveKey(apis.UnnoticedAnnotation), HaveKey(apis.SizeAnnotation)))
			for k, v := range additions {
				Expect(job.Annotations).To(HaveKeyWithValue(k, v))
			}
			Expect(job.Spec.Parallelism).To(HaveValue(BeEquivalentTo(8)))
			Expect(job.Spec.Completions).To(HaveValue(BeEquivalentTo(8)))
			Expect(job.Spec.Template.Labels).To(HaveKeyWithValue("x", "y"))
			Expect(job.Spec.Template.Labels).NotTo(Or(HaveKey(apis.PodSetLabel), HaveKey(apis.ClusterQueueLabel), HaveKey(apis.LocalQueueLabel)))

			elastic := newQueuedJob(namespace, "elastic")
			elastic.Labels[apis.HoldLabel] = apis.HoldQueued
			elastic.Annotations = map[string]string{apis.ElasticJobAnnotation: "true", apis.SizeAnnotation: "4", apis.CompletionsAnnotation: "4"}
			elastic.Spec.CompletionMode = new(batchv1.IndexedCompletion)
			Expect(who.Create(ctx, elastic, client.DryRunAll)).To(Succeed())
			Expect(elastic.Spec.Parallelism).To(HaveValue(BeEquivalentTo(4)))
			Expect(elastic.Spec.Completions).To(HaveValue(BeEquivalentTo(4)))
		}
	}, SpecTimeout(patience))

	It("gate a pod of a gang again", func(ctx SpecContext) {
		for _, who := range creators {
			pod := newPod(namespace, "admitted")
			label(apis.PodGroupMemberLabel, apis.PodGroupMemberValue)(pod)
			label(apis.PodGroupNameLabel, "g")(pod)
			for _, key := range []string{apis.PodSetLabel, apis.ClusterQueueLabel, apis.LocalQueueLabel} {
				label(key, "main")(pod)
			}
			annotation(apis.AdmissionAnnotation, "x.0/main")(pod)
			Expect(who.Create(ctx, pod, client.DryRunAll)).To(Succeed())
			Expect(gatesOf(pod)).To(ConsistOf(apis.PodAdmissionGate))
			Expect(pod.Annotations).To(Equal(map[string]string{"a": "b"}))
			Expect(pod.Labels).To(Equal(map[string]string{
				apis.QueueLabel: "main", apis.PodGroupNameLabel: "g", apis.PodGroupMemberLabel: apis.PodGroupMemberValue,
			}))
		}
	}, SpecTimeout(patience))

	// Their controllers create them again. They have no owners if the tool drops these, or those of the backup.
	It("refuse the Jobs and pods that controllers create, whichever user restores them", func(ctx SpecContext) {
		job := plainJob(namespace, "train-a-0")
		job.Labels = map[string]string{apis.HoldLabel: apis.HoldValue, jobset.JobSetNameKey: "train", jobset.JobSetUIDKey: "x"}
		owner := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train-a-0", UID: "x", Controller: new(true)}
		for _, who := range append(creators, env.clientAs(controlplane.JobSetUser)) {
			expectAnswer(who.Create(ctx, job.DeepCopy(), client.DryRunAll), "only the JobSet controller creates the Jobs of a JobSet, also of one that is restored")
		}
		for labels, want := range map[*map[string]string]string{
			{jobset.JobSetUIDKey: "x"}: "only the Job controller creates the pods of a JobSet, also of one that is restored",
			{jobset.JobSetUIDKey: "x", apis.PodSetLabel: "a", apis.QueueLabel: "main"}: "only the Job controller creates the pods of a JobSet, also of one that is restored",
			{apis.PodSetLabel: "main"}: "also of one that is restored from a backup; leave its pods out",
			{apis.PodGroupMemberLabel: "true", apis.QueueLabel: "main", apis.PodGroupNameLabel: "gang"}: "also of one that is restored from a backup; leave its pods out",
		} {
			pod := newPod(namespace, "train-a-0-0-x")
			pod.Labels = *labels
			pod.Labels[batchv1.ControllerUidLabel] = "x"
			for _, owners := range [][]metav1.OwnerReference{nil, {owner}} {
				pod.OwnerReferences = owners
				expectAnswer(env.adminClient.Create(ctx, pod.DeepCopy(), client.DryRunAll), want)
			}
		}
		plain := newPod(namespace, "plain")
		plain.Labels = map[string]string{batchv1.ControllerUidLabel: "x"}
		Expect(env.adminClient.Create(ctx, plain, client.DryRunAll)).To(Succeed(), "a pod of a Job without a queue")
	}, SpecTimeout(patience))

	It("refuse the objects of gangs that the manager creates", func(ctx SpecContext) {
		Expect(env.InstallPodGroups("scheduling.x-k8s.io")).To(Succeed())
		group := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}}
		group.SetNamespace(namespace)
		group.SetName("train-all-r0-x")
		Eventually(func() error { return env.adminClient.Create(ctx, group.DeepCopy(), client.DryRunAll) }).WithContext(ctx).Should(Succeed(), "one of a user")
		group.SetLabels(map[string]string{apis.JobSetLabel: "train"})
		expectAnswer(env.adminClient.Create(ctx, group, client.DryRunAll), "only Tranche's manager creates objects with the label tranche.dev/jobset")
	}, SpecTimeout(patience))
})
