package kueue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
)

const (
	chaosCheck = "chaos-safety"
	// chaosEvery is the mean time between two submissions.
	chaosEvery = 2 * time.Second
	// chaosBacklog is how many JobSets and Jobs may be unfinished: while managers are killed, a slow machine finishes less than is due.
	chaosBacklog = 16
	// chaosEnd is how long all that was submitted may take to finish after the chaos.
	chaosEnd = 3 * time.Minute
)

// chaosQueues have 3 GPUs each, in one cohort. What borrows is preempted when the owner needs its quota.
var chaosQueues = []string{"chaos-a", "chaos-b"}

// chaosFor is for how long managers are killed: SOAK_DURATION, or 15 seconds.
func chaosFor() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("SOAK_DURATION")); err == nil {
		return d
	}
	return 15 * time.Second
}

var _ = Describe("Both managers", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		startBeside(ctx)
		newSafetyCheck(ctx, chaosCheck)
	}, NodeTimeout(2*patience))

	It("are killed again and again, and all JobSets and Jobs finish without a violation", func(ctx SpecContext) {
		for _, name := range chaosQueues {
			tenant(ctx, name, 3, checked(chaosCheck), func(cq *kueue.ClusterQueue) {
				cq.Spec.CohortName = "chaos"
				cq.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
			})
		}
		c := newChaos(ctx)
		DeferCleanup(func(ctx SpecContext) {
			if CurrentSpecReport().Failed() {
				c.describe(ctx)
			}
		}, NodeTimeout(patience))
		c.stir(ctx, chaosFor())
		c.settle(ctx)
		c.expectEnd(ctx)
		report := fmt.Sprintf("%d JobSets and %d Jobs finished %s after the chaos, kills: %v", len(c.jobSets), len(c.jobs), time.Since(c.calm).Round(time.Second), c.kills)
		AddReportEntry("chaos", report)
		GinkgoWriter.Println(report)
		for _, name := range []string{controlplane.Kueue, "manager", "both"} {
			Expect(c.kills[name]).To(BeNumerically(">", 0), name)
		}
		violations, err := c.auditor.Violations(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(violations).To(BeEmpty())
	}, NodeTimeout(chaosFor()+chaosEnd+patience))
})

// A chaos kills managers while JobSets and Jobs run in the queues of one cohort.
type chaos struct {
	random  *rand.Rand
	auditor *invariants.Auditor
	kills   map[string]int
	logs    []string // of the managers
	calm    time.Time
	jobSets []*jobsetapi.JobSet
	jobs    []*batchv1.Job
}

func newChaos(ctx context.Context) *chaos {
	GinkgoHelper()
	seed := uint64(GinkgoRandomSeed())
	if text := os.Getenv("SOAK_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		Expect(err).NotTo(HaveOccurred(), "SOAK_SEED")
	}
	GinkgoWriter.Printf("chaos for %s with SOAK_SEED=%d\n", chaosFor(), seed)
	auditing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(cancel)
	auditor, err := invariants.Start(auditing, env.Admin)
	Expect(err).NotTo(HaveOccurred())
	return &chaos{random: rand.New(rand.NewPCG(seed, seed)), auditor: auditor, kills: map[string]int{}, logs: []string{shared.manager.Log}}
}

// stir submits and kills for a while, until each kind of kill has happened equally often. A manager that was killed is started again at once or a little later.
func (c *chaos) stir(ctx context.Context, duration time.Duration) {
	GinkgoHelper()
	began := time.Now()
	var kinds []string
	for submitted := 0; time.Since(began) < duration || len(kinds) > 0; {
		for due := int(time.Since(began) / chaosEvery); submitted <= due && c.backlog(ctx) < chaosBacklog && c.submit(ctx, submitted); {
			submitted++
		}
		c.pause(ctx, 1500*time.Millisecond)
		if len(kinds) == 0 {
			kinds = []string{controlplane.Kueue, "manager", "both"}
			c.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		c.kill(ctx, kinds[0])
		kinds = kinds[1:]
	}
}

// backlog counts what was submitted and has not finished.
func (c *chaos) backlog(ctx context.Context) int {
	GinkgoHelper()
	unfinished := 0
	for _, namespace := range chaosQueues {
		var jobSets jobsetapi.JobSetList
		Expect(env.Admin.List(ctx, &jobSets, client.InNamespace(namespace))).To(Succeed())
		for i := range jobSets.Items {
			if jobSets.Items[i].Status.TerminalState == "" {
				unfinished++
			}
		}
		var jobs batchv1.JobList
		Expect(env.Admin.List(ctx, &jobs, client.InNamespace(namespace))).To(Succeed())
		for i := range jobs.Items {
			if jobs.Items[i].Labels[jobset.JobSetNameKey] == "" && jobs.Items[i].Status.CompletionTime == nil {
				unfinished++
			}
		}
	}
	return unfinished
}

// kill ends one or both managers. Ours is not awaited when it starts again, so that the next kill may hit it while it starts.
func (c *chaos) kill(ctx context.Context, what string) {
	GinkgoHelper()
	c.kills[what]++
	if what != controlplane.Kueue {
		c.expectRunning()
		killBeside()
	}
	if what != "manager" {
		Expect(env.Plane.KillComponent(controlplane.Kueue)).To(Succeed())
	}
	c.pause(ctx, time.Second)
	kueueFirst := c.random.IntN(2) == 0
	if what != "manager" && kueueFirst {
		c.startKueue(ctx)
	}
	if what != controlplane.Kueue {
		launchBeside()
		c.logs = append(c.logs, shared.manager.Log)
	}
	if what != "manager" && !kueueFirst {
		c.startKueue(ctx)
	}
}

// startKueue starts Kueue's manager, which may admit before and after it is ready.
func (c *chaos) startKueue(ctx context.Context) {
	GinkgoHelper()
	c.auditor.KueueStarts()
	Expect(env.Plane.StartComponent(ctx, controlplane.Kueue)).To(Succeed())
	c.auditor.KueueStarts()
}

// expectRunning expects that our manager has not ended by itself.
func (c *chaos) expectRunning() {
	GinkgoHelper()
	select {
	case <-shared.manager.Done():
		content, _ := os.ReadFile(shared.manager.Log)
		Fail(fmt.Sprintf("the manager has ended by itself:\n%s", content[max(0, len(content)-2000):]))
	default:
	}
}

// pause lets up to so much time pass: the chaos keeps time and waits for nothing.
func (c *chaos) pause(ctx context.Context, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(c.random.Int64N(int64(most)))):
	}
}

// submit creates the object with this number, and reports whether it could: the webhooks of Kueue refuse Jobs while its manager is down.
// Half are JobSets whose workers start while the launcher holds quota, which two of could deadlock.
func (c *chaos) submit(ctx context.Context, i int) bool {
	namespace, name := chaosQueues[c.random.IntN(len(chaosQueues))], fmt.Sprintf("run-%03d", i)
	if i%4 == 3 {
		job := newJob(namespace, int32(1+c.random.IntN(3)))
		job.Name = name
		if env.Admin.Create(ctx, job) != nil {
			return false
		}
		c.jobs = append(c.jobs, job)
		return true
	}
	js := launcherAndWorkers(namespace, name)
	if i%4 == 1 {
		js = stagedJobSet(namespace, map[string]string{apis.QueueLabel: "queue"}, "1")
		js.Name = name
	}
	if env.Admin.Create(ctx, js) != nil {
		return false
	}
	c.jobSets = append(c.jobSets, js)
	return true
}

// describe prints what has not finished: the next cleanup deletes it.
func (c *chaos) describe(ctx context.Context) {
	GinkgoHelper()
	for _, namespace := range chaosQueues {
		content, err := env.KubectlOutput(ctx, "-n", namespace, "get", "jobsets.jobset.x-k8s.io,workloads.kueue.x-k8s.io,jobs.batch,pods", "-o", "yaml")
		Expect(err).NotTo(HaveOccurred())
		GinkgoWriter.Printf("%s\n", content)
	}
}

// settle ends the chaos: both managers run.
func (c *chaos) settle(ctx context.Context) {
	GinkgoHelper()
	c.calm = time.Now()
	Expect(shared.manager.WaitReady(ctx)).To(Succeed())
}

// expectEnd waits until all that was submitted has completed and nothing holds quota. No JobSet has been restarted: only failures count as that.
func (c *chaos) expectEnd(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		c.expectRunning()
		for _, js := range c.jobSets {
			g.Expect(read(ctx, js)(g).Status.TerminalState).To(Equal(string(jobset.JobSetCompleted)), "%s: %+v", js.Name, js.Status.Conditions)
		}
		for _, job := range c.jobs {
			g.Expect(read(ctx, job)(g).Status.CompletionTime).NotTo(BeNil(), "%s: %+v", job.Name, job.Status)
		}
	}).WithContext(ctx).WithTimeout(chaosEnd).Should(Succeed())
	for _, js := range c.jobSets {
		Expect(js.Status.Restarts).To(BeZero(), js.Name)
	}
	Eventually(func(g Gomega) {
		for _, name := range chaosQueues {
			cq := read(ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}})(g)
			g.Expect([]int32{cq.Status.ReservingWorkloads, cq.Status.AdmittedWorkloads, cq.Status.PendingWorkloads}).To(HaveEach(BeZero()), name)
			var workloads kueue.WorkloadList
			g.Expect(env.Admin.List(ctx, &workloads, client.InNamespace(name))).To(Succeed())
			for i := range workloads.Items {
				g.Expect(&workloads.Items[i]).To(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""), workloads.Items[i].Name)
			}
		}
	}).WithContext(ctx).Should(Succeed())
	for _, log := range c.logs {
		content, err := os.ReadFile(log)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(content)).NotTo(ContainSubstring("panic: "), log)
	}
}
