// Package migration_test walks through the steps of docs/migrate-from-kueue.md on a cluster on which the real Kueue manager runs Jobs, JobSets and pods.
package migration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	_ "github.com/tranche-dev/tranche/test/progress"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	namespace = "team"

	poll     = 100 * time.Millisecond
	patience = 60 * time.Second
)

var env *testenv.World

func TestMigration(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Migration from Kueue")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	suite, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	var err error
	env, err = testenv.Start(suite, controlplane.Config{
		Kueue: &controlplane.KueueOptions{Settings: map[string]any{"integrations": map[string]any{"frameworks": []string{"batch/job", "pod", "deployment", "jobset.x-k8s.io/jobset"}}}},
		NodePools: []controlplane.NodePool{
			{Name: "cpu", Count: 2, Labels: map[string]string{"pool": "cpu"}, Allocatable: sample.Amounts("cpu", "256", "memory", "1Ti")},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
}, NodeTimeout(5*time.Minute))

// template returns a pod template that asks for 1 cpu, and whose pods run until the test ends them.
func template() corev1.PodTemplateSpec {
	r := sample.ReplicatedJob("main", 1, sample.Amounts("cpu", "1"), map[string]string{controlplane.FakeExit: controlplane.FakeExitNever})
	return r.Template.Spec.Template
}

func inQueue(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "queue"}}
}

func newJob(name string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: inQueue(name), Spec: batchv1.JobSpec{Template: template()}}
}

// newElasticJob returns a Job that begins with one of two pods.
func newElasticJob(name string) *batchv1.Job {
	job := newJob(name)
	job.Annotations = map[string]string{apis.ElasticJobAnnotation: "true"}
	job.Spec.Parallelism, job.Spec.Completions = new(int32(1)), new(int32(2))
	return job
}

func newJobSet(name string) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: inQueue(name)}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{sample.ReplicatedJob("main", 1, sample.Amounts("cpu", "1"), map[string]string{controlplane.FakeExit: controlplane.FakeExitNever})}
	return js
}

// newPods returns pods that are a group, or one that is by itself.
func newPods(name string, size int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range size {
		t := template()
		pod := &corev1.Pod{ObjectMeta: inQueue(fmt.Sprintf("%s-%d", name, i)), Spec: t.Spec}
		pod.Annotations = t.Annotations
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		if size > 1 {
			pod.Labels[apis.PodGroupNameLabel] = name
			pod.Annotations[apis.PodGroupTotalCountAnnotation] = fmt.Sprint(size)
		}
		pods = append(pods, pod)
	}
	return pods
}

// newDeployment returns a Deployment of one pod.
func newDeployment(name string) *appsv1.Deployment {
	t := template()
	t.Labels, t.Annotations, t.Spec.RestartPolicy = map[string]string{"app": name}, nil, corev1.RestartPolicyAlways
	return &appsv1.Deployment{ObjectMeta: inQueue(name), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: t.Labels}, Template: t}}
}

// runningPods returns the UIDs of the pods that run, by their names.
func runningPods(ctx context.Context, g Gomega) map[string]types.UID {
	var list corev1.PodList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
	running := map[string]types.UID{}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero() {
			running[pod.Name] = pod.UID
		}
	}
	return running
}

// reserved returns the reserved cpu of the ClusterQueue.
func reserved(ctx context.Context, g Gomega) string {
	var queue kueue.ClusterQueue
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Name: "cluster"}, &queue)).To(Succeed())
	g.Expect(queue.Status.FlavorsReservation).To(HaveLen(1))
	return queue.Status.FlavorsReservation[0].Resources[0].Total.String()
}

// endPods ends pods that run.
func endPods(ctx context.Context, g Gomega, names ...string) {
	for _, name := range names {
		pod := &corev1.Pod{}
		g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod)).To(Succeed())
		pod.Status.Phase = corev1.PodSucceeded
		g.Expect(env.Admin.Status().Update(ctx, pod)).To(Succeed())
	}
}

// submit creates a Job, a JobSet, a pod and a group of two pods.
func submit(ctx context.Context, prefix string) {
	GinkgoHelper()
	objects := []client.Object{newJob(prefix + "-job"), newJobSet(prefix + "-jobset")}
	for _, pod := range slices.Concat(newPods(prefix+"-pod", 1), newPods(prefix+"-group", 2)) {
		objects = append(objects, pod)
	}
	for _, object := range objects {
		Expect(env.Admin.Create(ctx, object)).To(Succeed())
	}
}

var _ = Describe("A cluster that Kueue manages", Ordered, func() {
	var queues string
	BeforeAll(func(ctx SpecContext) { queues = createQueues(ctx) }, NodeTimeout(patience))

	It("is taken over as it runs by the steps of the page", func(ctx SpecContext) {
		submit(ctx, "runs")
		elastic, deployment := newElasticJob("elastic"), newDeployment("serve")
		Expect(env.Admin.Create(ctx, elastic)).To(Succeed())
		Expect(env.Admin.Create(ctx, deployment)).To(Succeed())
		var before map[string]types.UID
		Eventually(func(g Gomega) {
			before = runningPods(ctx, g)
			g.Expect(before).To(HaveLen(7))
		}).WithContext(ctx).Should(Succeed())
		submit(ctx, "waits")
		Expect(env.Admin.Patch(ctx, elastic, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"parallelism":2}}`)))).To(Succeed())
		Eventually(func(g Gomega) {
			var list kueue.WorkloadList
			g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
			g.Expect(list.Items).To(HaveLen(11), "with two slices of the elastic Job")
			g.Expect(podsOfJob(ctx, g, elastic.Name)).To(ConsistOf(HaveField("Spec.SchedulingGates", BeEmpty()), HaveField("Spec.SchedulingGates", HaveLen(1))))
		}).WithContext(ctx).Should(Succeed())

		expectPrepared(ctx, queues)

		webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kueue-validating-webhook-configuration"}}
		Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(webhooks), webhooks)).To(Succeed())

		stopKueue(ctx)
		Expect(runningPods(ctx, Default)).To(Equal(before))

		By("ending a Job while neither of them runs")
		endPods(ctx, Default, jobPod(ctx, "runs-job"))

		By("replacing Kueue's CRDs, and installing Tranche")
		for _, command := range pageStep(4, 1) {
			onPage(ctx, command)
		}
		Expect(env.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(env.Root, "config", "crd"))).To(Succeed())
		Expect(env.Install(ctx)).To(Succeed())
		manager, err := env.StartManager(ctx, testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return manager.Stop() })

		By("charging what runs, and starting in its place what waits")
		delete(before, jobPod(ctx, "runs-job"))
		Eventually(func(g Gomega) {
			running := runningPods(ctx, g)
			for name, uid := range before {
				g.Expect(running).To(HaveKeyWithValue(name, uid))
			}
			g.Expect(running).To(HaveLen(7), "%v", running)
			g.Expect(reserved(ctx, g)).To(Equal("7"))
		}).WithContext(ctx).Should(Succeed())

		removeKueue(ctx, queues)
		expectPodsQueued(ctx, deployment, before)
		expectGroupEvicted(ctx, "runs-group")

		By("queueing all that waits, and running it when the rest has ended")
		Eventually(func(g Gomega) {
			for name := range runningPods(ctx, g) {
				endPods(ctx, g, name)
			}
			expectAllEnded(ctx, g)
			g.Expect(reserved(ctx, g)).To(Equal("0"))
		}).WithContext(ctx).Should(Succeed())

		By("leaving no finalizer and no Workload of Kueue behind")
		Eventually(func(g Gomega) { expectClean(ctx, g) }).WithContext(ctx).Should(Succeed())

		expectStaged(ctx)
		expectMetrics(ctx, manager)

		By("ending when Kueue is installed again, and not starting beside it")
		webhooks.ObjectMeta = metav1.ObjectMeta{Name: webhooks.Name}
		Expect(env.Admin.Create(ctx, webhooks)).To(Succeed())
		Eventually(manager.Done()).WithContext(ctx).Should(BeClosed())
		const refusal = "ValidatingWebhookConfiguration kueue-validating-webhook-configuration is that of Kueue's manager"
		Expect(os.ReadFile(manager.Log)).To(ContainSubstring(refusal))
		_, err = env.StartManager(ctx, testenv.ManagerOptions{})
		Expect(err).To(MatchError(ContainSubstring(refusal)))
	}, SpecTimeout(5*patience))
})

// expectPodsQueued shows that the pod of a Deployment that Kueue has started runs on, and that those which are created later wait for quota. It deletes the
// Deployment.
func expectPodsQueued(ctx context.Context, deployment *appsv1.Deployment, before map[string]types.UID) {
	GinkgoHelper()
	By("scaling a Deployment that Kueue has queued")
	Expect(env.Admin.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`)))).To(Succeed())
	Eventually(func(g Gomega) {
		var pods corev1.PodList
		g.Expect(env.Admin.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels(deployment.Spec.Selector.MatchLabels))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(2))
		for i := range pods.Items {
			pod := &pods.Items[i]
			g.Expect(pod.Labels).To(HaveKeyWithValue(apis.PodGroupMemberLabel, apis.PodGroupMemberValue))
			_, isOld := before[pod.Name]
			g.Expect(len(pod.Spec.SchedulingGates) == 0).To(Equal(isOld), pod.Name)
		}
	}).WithContext(ctx).Should(Succeed())
	Expect(env.Admin.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
}

// expectGroupEvicted shows that a group of pods that Kueue has started is a gang like others, which an eviction stops.
func expectGroupEvicted(ctx context.Context, name string) {
	GinkgoHelper()
	By("evicting a group of pods that Kueue has started")
	var pods corev1.PodList
	list := func(g Gomega) []corev1.Pod {
		g.Expect(env.Admin.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{apis.PodGroupNameLabel: name})).To(Succeed())
		return pods.Items
	}
	Eventually(func(g Gomega) {
		g.Expect(list(g)).To(HaveLen(2))
		for i := range pods.Items {
			g.Expect(pods.Items[i].Labels).To(And(HaveKey(apis.PodGroupMemberLabel), Not(HaveKey(apis.KueueManagedKey))))
		}
	}).WithContext(ctx).Should(Succeed())
	workload := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(workload), workload)).To(Succeed())
	Expect(workload.Annotations).To(HaveKey(apis.AdoptedAnnotation))
	Expect(env.Admin.Patch(ctx, workload, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"active":false}}`)))).To(Succeed())
	Eventually(func(g Gomega) { g.Expect(list(g)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
}

func podsOfJob(ctx context.Context, g Gomega, job string) []corev1.Pod {
	var list corev1.PodList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: job})).To(Succeed())
	return list.Items
}

// jobPod returns the name of the pod of a Job.
func jobPod(ctx context.Context, job string) string {
	GinkgoHelper()
	pods := podsOfJob(ctx, Default, job)
	Expect(pods).To(HaveLen(1))
	return pods[0].Name
}

func expectAllEnded(ctx context.Context, g Gomega) {
	var jobs batchv1.JobList
	g.Expect(env.Admin.List(ctx, &jobs, client.InNamespace(namespace))).To(Succeed())
	g.Expect(jobs.Items).To(HaveLen(5))
	for i := range jobs.Items {
		g.Expect(jobs.Items[i].Status.Succeeded).To(Equal(ptr.Deref(jobs.Items[i].Spec.Completions, 1)), jobs.Items[i].Name)
	}
	var jobSets jobsetapi.JobSetList
	g.Expect(env.Admin.List(ctx, &jobSets, client.InNamespace(namespace))).To(Succeed())
	g.Expect(jobSets.Items).To(HaveLen(2))
	for i := range jobSets.Items {
		g.Expect(meta.IsStatusConditionTrue(jobSets.Items[i].Status.Conditions, string(jobset.JobSetCompleted))).To(BeTrue(), jobSets.Items[i].Name)
	}
	var pods corev1.PodList
	g.Expect(env.Admin.List(ctx, &pods, client.InNamespace(namespace))).To(Succeed())
	phases := map[string]corev1.PodPhase{}
	for i := range pods.Items {
		phases[pods.Items[i].Name] = pods.Items[i].Status.Phase
	}
	g.Expect(phases).To(HaveEach(corev1.PodSucceeded))
}

func expectClean(ctx context.Context, g Gomega) {
	var pods corev1.PodList
	g.Expect(env.Admin.List(ctx, &pods, client.InNamespace(namespace))).To(Succeed())
	for i := range pods.Items {
		g.Expect(pods.Items[i].Finalizers).To(BeEmpty(), pods.Items[i].Name)
	}
	var workloads kueue.WorkloadList
	g.Expect(env.Admin.List(ctx, &workloads, client.InNamespace(namespace))).To(Succeed())
	for i := range workloads.Items {
		g.Expect(workloads.Items[i].Finalizers).To(BeEmpty(), workloads.Items[i].Name)
	}
}
