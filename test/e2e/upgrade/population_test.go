package upgrade_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

const (
	gpu = "nvidia.com/gpu"
	// team has the JobSets, Jobs and gangs that the upgrade must not disturb, and guests those that come and go meanwhile.
	team, guests = "team", "guests"
)

var (
	shortly = map[string]string{controlplane.FakeRunTime: "100ms"}
	// always is the fate of pods that run until the test ends them.
	always = map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}
)

// createQueues creates two queues of a team that share 40 accelerators, and one of guests.
func createQueues(ctx context.Context) {
	GinkgoHelper()
	for name, labels := range map[string]map[string]string{"cpu": nil, "a100": {"accelerator": "a100"}} {
		Expect(previous.Admin.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: labels}})).To(Succeed())
	}
	for _, q := range []struct{ namespace, name, cohort, gpus string }{{team, "research", "all", "20"}, {team, "product", "all", "20"}, {guests, "guests", "", "8"}, {records, records, "", "8"}} {
		Expect(previous.CreateNamespace(ctx, q.namespace, nil)).To(Succeed())
		Expect(previous.Admin.Create(ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: q.name}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{}, CohortName: kueue.CohortReference(q.cohort),
			ResourceGroups: []kueue.ResourceGroup{sample.ResourceGroup(gpu, "a100", q.gpus), sample.ResourceGroup("cpu", "cpu", "100")},
		}})).To(Succeed())
		Expect(previous.Admin.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: q.namespace, Name: q.name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(q.name)},
		})).To(Succeed())
	}
}

// A count has how many objects there are: pods by their phase, and quota Workloads.
type count struct{ running, pending, succeeded, workloads, admitted, finished int }

func (c *count) add(n int, other count) {
	c.running += n * other.running
	c.pending += n * other.pending
	c.succeeded += n * other.succeeded
	c.workloads += n * other.workloads
	c.admitted += n * other.admitted
	c.finished += n * other.finished
}

// A group has objects of the same kind, and what each is when it runs or waits as it should.
type group struct {
	n    int
	name string
	make func(name string) client.Object
	each count
}

// advanced are those in their last stage. The stage before needs more accelerators than are free later.
func advanced() []group {
	return []group{
		{4, "evaluate", func(name string) client.Object { return staged(name, "product", 2) }, count{running: 1, succeeded: 3, workloads: 3, admitted: 3, finished: 2}},
	}
}

// runs are the others that run. Together they hold all accelerators of the team.
func runs() []group {
	return []group{
		{8, "prepare", func(name string) client.Object { return staged(name, "research", 0) }, count{running: 1, workloads: 3, admitted: 1}},
		{6, "train", func(name string) client.Object { return staged(name, "research", 1) }, count{running: 2, succeeded: 1, workloads: 3, admitted: 2, finished: 1}},
		{2, "rules", func(name string) client.Object { return byRules(name, "research") }, count{running: 3, workloads: 2, admitted: 2}},
		{3, "together", func(name string) client.Object { return together(name, "research") }, count{pending: 2, workloads: 1, admitted: 1}},
		{1, "unqueued", func(name string) client.Object { return byRules(name, "") }, count{running: 3}},
		{6, "job", func(name string) client.Object { return job(name, "product", always) }, count{running: 2, workloads: 1, admitted: 1}},
		{4, "gang", func(name string) client.Object { return gang(name, queueOf(name), always) }, count{running: 2, workloads: 1, admitted: 1}},
		{1, "serve", func(name string) client.Object { return deployment(name) }, count{running: 2, workloads: 2, admitted: 2}},
	}
}

// waits are those that wait for accelerators.
func waits() []group {
	return []group{
		{8, "waits", func(name string) client.Object { return waiting(name, queueOf(name)) }, count{workloads: 2}},
		{4, "waiting-job", func(name string) client.Object { return job(name, "product", shortly) }, count{workloads: 1}},
		{3, "waiting-gang", func(name string) client.Object { return gang(name, "research", shortly) }, count{pending: 2, workloads: 1}},
	}
}

// queueOf spreads objects over the queues of the team by the last digit of their names.
func queueOf(name string) string {
	return []string{"research", "product"}[name[len(name)-1]%2]
}

// submitTo creates objects in a namespace, and adds what is expected of them to total.
func submitTo(ctx context.Context, namespace string, groups []group, total *count) {
	GinkgoHelper()
	for _, g := range groups {
		for i := range g.n {
			object := g.make(fmt.Sprintf("%s-%02d", g.name, i))
			object.SetNamespace(namespace)
			Expect(previous.Admin.Create(ctx, object)).To(Succeed(), g.name)
		}
		total.add(g.n, g.each)
	}
}

func newJobSet(name, queue string, stages ...jobsetapi.ReplicatedJob) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{apis.QueueLabel: queue}}}
	if queue == "" {
		js.Labels = nil
	}
	js.Spec.ReplicatedJobs = stages
	return js
}

// staged makes a JobSet of three stages, of which one runs until the test ends it. The second has two accelerators, and the third has one.
func staged(name, queue string, stays int) *jobsetapi.JobSet {
	fates := []map[string]string{shortly, shortly, shortly}
	if stays >= 0 {
		fates[stays] = always
	}
	js := newJobSet(name, queue,
		sample.ReplicatedJob("prepare", 1, sample.Amounts("cpu", "1"), fates[0]),
		sample.ReplicatedJob("train", 2, sample.Amounts(gpu, "1"), fates[1]),
		sample.ReplicatedJob("evaluate", 1, sample.Amounts(gpu, "1"), fates[2]),
	)
	js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "prepare", Status: jobset.DependencyComplete}}
	js.Spec.ReplicatedJobs[2].DependsOn = []jobset.DependsOn{{Name: "train", Status: jobset.DependencyComplete}}
	return js
}

// byRules makes a JobSet whose second stage starts beside the first. In no queue it asks for no accelerators.
func byRules(name, queue string) *jobsetapi.JobSet {
	workers := sample.Amounts(gpu, "1")
	if queue == "" {
		workers = sample.Amounts("cpu", "1")
	}
	js := newJobSet(name, queue, sample.ReplicatedJob("server", 1, sample.Amounts("cpu", "1"), always), sample.ReplicatedJob("workers", 2, workers, always))
	js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: []jobsetapi.StartupPolicyRule{
		{TargetReplicatedJobs: []string{"server"}, WaitForReplicatedJobsStatus: jobsetapi.ReadyStatus},
	}}
	return js
}

// together makes a JobSet whose pods wait for each other in their first init container.
func together(name, queue string) *jobsetapi.JobSet {
	fate := map[string]string{controlplane.FakeInit: "waits"}
	maps.Copy(fate, always)
	js := newJobSet(name, queue, sample.ReplicatedJob("driver", 1, sample.Amounts("cpu", "1"), fate), sample.ReplicatedJob("workers", 1, sample.Amounts("cpu", "1"), fate))
	js.Spec.GroupSchedulingConfig = &jobsetapi.GroupSchedulingConfig{TimeoutAfterSeconds: new(int32(3600))}
	return js
}

// waiting makes a JobSet of two stages that both need accelerators.
func waiting(name, queue string) *jobsetapi.JobSet {
	js := newJobSet(name, queue, sample.ReplicatedJob("train", 2, sample.Amounts(gpu, "1"), shortly), sample.ReplicatedJob("evaluate", 1, sample.Amounts(gpu, "1"), shortly))
	js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	return js
}

// job makes a queued Job of two pods with an accelerator each.
func job(name, queue string, fate map[string]string) *batchv1.Job {
	r := sample.ReplicatedJob("main", 2, sample.Amounts(gpu, "1"), fate)
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{apis.QueueLabel: queue}}, Spec: r.Template.Spec}
}

// gang makes a Job that creates a gang of two pods with an accelerator each.
func gang(name, queue string, fate map[string]string) *batchv1.Job {
	r := sample.ReplicatedJob("main", 2, sample.Amounts(gpu, "1"), map[string]string{
		apis.PodGroupTotalCountAnnotation: strconv.Itoa(2), controlplane.FakeGangRunTime: fate[controlplane.FakeRunTime],
		controlplane.FakeGangExit: fate[controlplane.FakeExit],
	})
	template := &r.Template.Spec.Template
	maps.DeleteFunc(template.Annotations, func(_, value string) bool { return value == "" })
	template.Labels = map[string]string{apis.QueueLabel: queue, apis.PodGroupNameLabel: name}
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: r.Template.Spec}
}

// deployment makes a Deployment of two pods in a queue.
func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{apis.QueueLabel: "research"}}}
	d.Spec.Replicas, d.Spec.Selector = new(int32(2)), &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec = sample.ReplicatedJob("main", 1, sample.Amounts("cpu", "1"), nil).Template.Spec.Template.Spec
	d.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	return d
}
