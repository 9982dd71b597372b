package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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

// A point is a state in the lifecycle of a JobSet of t.deepSpeed. Its name is that of the JobSet.
type point struct {
	name string
	// prepare changes the JobSet before it is submitted, reach brings it to the point, and at is how its stages look there.
	prepare func(js *jobsetapi.JobSet)
	reach   func(ctx SpecContext, t team)
	at      []string
}

// starved is the LocalQueue of a ClusterQueue that has no quota at first.
const starved = "starved"

func points() []point {
	initialize := func(name string) func(ctx SpecContext, t team) {
		return func(ctx SpecContext, t team) { t.end(ctx, name, "initializer", corev1.PodSucceeded) }
	}
	return []point{
		{
			name: "queued", prepare: func(js *jobsetapi.JobSet) { js.Labels[apis.QueueLabel] = starved },
			at: []string{"initializer=waiting", "launcher=closed", "trainer-node=closed"},
		},
		{
			name: "starting", prepare: func(js *jobsetapi.JobSet) { annotate(js, 0, controlplane.FakeReadyAfter, "1h") },
			at: []string{"initializer=admitted", "launcher=closed", "trainer-node=closed"},
		},
		{name: "initializing", at: []string{"initializer=ready", "launcher=closed", "trainer-node=closed"}},
		{
			name: "between", prepare: func(js *jobsetapi.JobSet) { enlarge(js, 1, 3, "50") }, reach: initialize("between"),
			at: []string{"initializer=Succeeded", "launcher=waiting", "trainer-node=closed"},
		},
		{
			name: "launching", prepare: func(js *jobsetapi.JobSet) { annotate(js, 1, controlplane.FakeReadyAfter, "1h") }, reach: initialize("launching"),
			at: []string{"initializer=Succeeded", "launcher=admitted", "trainer-node=closed"},
		},
		{name: "training", reach: initialize("training"), at: []string{"initializer=Succeeded", "launcher=ready", "trainer-node=ready"}},
		{
			name: "partly", reach: func(ctx SpecContext, t team) {
				initialize("partly")(ctx, t)
				t.expectStages(ctx, "partly", "launcher=ready", "trainer-node=ready")
				t.end(ctx, "partly", "launcher", corev1.PodSucceeded)
			},
			at: []string{"initializer=Succeeded", "launcher=Succeeded", "trainer-node=ready"},
		},
		{
			name: "restarted", prepare: func(js *jobsetapi.JobSet) { js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1} },
			reach: func(ctx SpecContext, t team) {
				initialize("restarted")(ctx, t)
				t.expectStages(ctx, "restarted", "launcher=ready", "trainer-node=ready")
				t.endOne(ctx, "restarted", "trainer-node", corev1.PodFailed)
			},
			at: []string{"initializer=ready", "launcher=admitted", "trainer-node=admitted"},
		},
		{
			name: "stopping", reach: func(ctx SpecContext, t team) {
				initialize("stopping")(ctx, t)
				t.expectStages(ctx, "stopping", "launcher=ready", "trainer-node=ready")
				t.evict(ctx, "stopping", "launcher", preemption)
				t.expectStopping(ctx, "stopping")
			},
			at: []string{"initializer=Succeeded"},
		},
	}
}

// everywhere brings one JobSet to each point, and returns them.
func everywhere(ctx SpecContext, t team) []*jobsetapi.JobSet {
	GinkgoHelper()
	t.newStarvedQueue(ctx)
	hog := submit(ctx, t.newJobSet("hog", replicatedJob{name: "main", pods: 2, gpus: "50"}))
	t.expectStages(ctx, "hog", "main=ready")
	all := []*jobsetapi.JobSet{hog}
	for _, p := range points() {
		js := slowly(t.deepSpeed(p.name), "500ms")
		if p.name == "stopping" {
			js = slowly(js, "3s")
		}
		if p.prepare != nil {
			p.prepare(js)
		}
		all = append(all, submit(ctx, js))
	}
	for _, p := range points() {
		if p.reach != nil {
			p.reach(ctx, t)
		}
	}
	for _, p := range points() {
		t.expectStages(ctx, p.name, p.at...)
	}
	return all
}

var _ = Describe("At every point of its lifecycle, a JobSet", func() {
	It("releases all quota when its user suspends it, and finishes after it is resumed", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "200")
		all := everywhere(ctx, t)
		for _, js := range all {
			suspend(ctx, js, true)
		}
		t.expectNothingHeld(ctx)
		newTeam(ctx, "1", "0").awaitHandled(ctx)
		t.holdsNothing(ctx, Default)
		for _, js := range all {
			Expect(t.get(ctx, Default, js.Name).Spec.Suspend).To(HaveValue(BeTrue()), js.Name)
			if js.Name != "queued" {
				suspend(ctx, js, false)
			}
		}
		t.feed(ctx)
		var names []string
		for _, js := range all {
			if js.Name != "starting" && js.Name != "launching" {
				names = append(names, js.Name)
			}
		}
		t.expectStages(ctx, "starting", "initializer=admitted")
		t.expectStages(ctx, "launching", "launcher=admitted")
		t.drive(ctx, names...)
		for _, name := range names {
			restarts := int32(0)
			if name == "restarted" {
				restarts = 1
			}
			Expect(t.get(ctx, Default, name).Status.Restarts).To(Equal(restarts), name)
		}
	}, SpecTimeout(specTimeout))

	It("releases its quota once and leaves no object behind when it is deleted", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "200")
		for i, js := range everywhere(ctx, t) {
			propagation := []client.DeleteOption{client.PropagationPolicy("Background"), client.PropagationPolicy("Foreground")}[i%2]
			Expect(env.Admin.Delete(ctx, js, propagation)).To(Succeed())
		}
		t.expectNothingHeld(ctx)
		Eventually(func(g Gomega) {
			g.Expect(t.workloads(ctx, g)).To(BeEmpty())
			g.Expect(t.jobs(ctx, g, "")).To(BeEmpty())
			for _, name := range []string{t.namespace, t.namespace + "-" + starved} {
				var queue kueue.ClusterQueue
				g.Expect(env.Admin.Get(ctx, client.ObjectKey{Name: name}, &queue)).To(Succeed())
				g.Expect(queue.Status.ReservingWorkloads + queue.Status.PendingWorkloads).To(BeZero())
			}
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
	}, SpecTimeout(specTimeout))
})

func annotate(js *jobsetapi.JobSet, replicatedJob int, key, value string) {
	js.Spec.ReplicatedJobs[replicatedJob].Template.Spec.Template.Annotations[key] = value
}

// enlarge gives a ReplicatedJob so many pods, with so many GPUs each.
func enlarge(js *jobsetapi.JobSet, replicatedJob int, pods int32, gpus string) {
	spec := &js.Spec.ReplicatedJobs[replicatedJob].Template.Spec
	spec.Parallelism, spec.Completions = &pods, &pods
	resources := &js.Spec.ReplicatedJobs[replicatedJob].Template.Spec.Template.Spec.Containers[0].Resources
	resources.Requests[gpu], resources.Limits[gpu] = sample.Amounts("x", gpus)["x"], sample.Amounts("x", gpus)["x"]
}

// newStarvedQueue makes a LocalQueue of the team whose ClusterQueue has no quota before feed.
func (t team) newStarvedQueue(ctx context.Context) {
	GinkgoHelper()
	queue := clusterQueue(t.namespace+"-"+starved, "0", "0")
	Expect(env.Admin.Create(ctx, queue)).To(Succeed())
	Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: starved},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(queue.Name)},
	})).To(Succeed())
}

// feed gives every queue of the team enough quota for all its pending Workloads.
func (t team) feed(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{t.namespace, t.namespace + "-" + starved} {
		Eventually(func(g Gomega) {
			var queue kueue.ClusterQueue
			g.Expect(env.Admin.Get(ctx, client.ObjectKey{Name: name}, &queue)).To(Succeed())
			queue.Spec.ResourceGroups = clusterQueue(name, "100", "1000").Spec.ResourceGroups
			g.Expect(env.Admin.Update(ctx, &queue)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
	}
}

// expectNothingHeld waits until the team holds no quota and has no pods that run.
func (t team) expectNothingHeld(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) { t.holdsNothing(ctx, g) }).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// holdsNothing checks that the team holds no quota and has no pods that run.
func (t team) holdsNothing(ctx context.Context, g Gomega) {
	GinkgoHelper()
	g.Expect(t.reserved(ctx, g)).To(Equal("0"))
	for _, w := range t.workloads(ctx, g) {
		if !isFinished(&w) {
			g.Expect(w.Status.Admission).To(BeNil(), w.Name)
		}
	}
	for _, pod := range t.pods(ctx, g, "") {
		g.Expect(pod.Status.Phase).To(BeElementOf(corev1.PodSucceeded, corev1.PodFailed), pod.Name)
	}
}
