package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// A course is what happens to a stage: its states before the change and at the end, and the consequences of the change.
type course struct {
	before, after string
	named         []plan.Kind
}

// A plannedChange is a change of queues or JobSets, in queues of its own. Nothing in it ends by itself: the JobSets that have a time limit end when the test ends them,
// after the change.
type plannedChange struct {
	name string
	// setUp submits JobSets, and returns the manifest to apply.
	setUp func(context.Context, *planner) map[string]any
	// courses has each stage, as JobSet/stage.
	courses map[string]course
	// ends are the stages that end after the change.
	ends []string
}

// A planner has the teams of a plannedChange. Those after the first one are in a Cohort with it.
type planner struct{ teams []team }

var _ = Describe("tranche plan", beginsFirst, func() {
	It("names all that fourteen changes make happen, and nothing else", func(ctx SpecContext) {
		changes := plannedChanges()
		planners, manifests := make([]*planner, len(changes)), make([]map[string]any, len(changes))
		for i := range changes {
			planners[i] = &planner{}
			manifests[i] = changes[i].setUp(ctx, planners[i])
		}
		for i := range changes {
			planners[i].expect(ctx, changes[i], func(c course) string { return c.before })
		}

		plans := make([]plan.Plan, len(changes))
		for i, change := range changes {
			By("planning: " + change.name)
			plans[i], _ = answerOf(ctx, manifests[i], "plan", "-f", "-")
			Expect(planners[i].named(&plans[i])).To(Equal(change.named()), change.name)
		}
		for i := range changes {
			apply(ctx, manifests[i])
		}
		for i, change := range changes {
			By("observing: " + change.name)
			for _, stage := range change.ends {
				jobSet, replicatedJob, _ := strings.Cut(stage, "/")
				planners[i].teamOf(ctx, jobSet).end(ctx, jobSet, replicatedJob, corev1.PodSucceeded)
			}
			planners[i].expect(ctx, change, func(c course) string { return c.after })
		}
		for i, change := range changes {
			again, code := answerOf(ctx, manifests[i], "plan", "-f", "-")
			Expect(again.Consequences).To(BeEmpty(), change.name)
			Expect(code).To(BeZero(), change.name)
			planners[i].expectOnly(ctx, change, &plans[i])
		}
	}, SpecTimeout(2*specTimeout))
})

// named returns the kinds of consequences by stage.
func (c *plannedChange) named() map[string][]plan.Kind {
	all := map[string][]plan.Kind{}
	for stage, course := range c.courses {
		if len(course.named) > 0 {
			all[stage] = slices.Sorted(slices.Values(course.named))
		}
	}
	return all
}

// named returns the kinds of consequences by stage. All are in the namespaces of the change.
func (p *planner) named(of *plan.Plan) map[string][]plan.Kind {
	GinkgoHelper()
	all := map[string][]plan.Kind{}
	for i := range of.Consequences {
		c := &of.Consequences[i]
		Expect(slices.ContainsFunc(p.teams, func(t team) bool { return t.namespace == c.Namespace })).To(BeTrue(), "%+v", c)
		name := cmp.Or(c.JobSet, c.Job) + "/" + c.Stage.Stage
		all[name] = append(all[name], c.Kind)
		slices.Sort(all[name])
	}
	return all
}

// expect waits until all stages are in these states.
func (p *planner) expect(ctx context.Context, change plannedChange, state func(course) string) {
	GinkgoHelper()
	for _, name := range slices.Sorted(maps.Keys(change.courses)) {
		jobSet, stage, _ := strings.Cut(name, "/")
		p.teamOf(ctx, jobSet).expectStages(ctx, jobSet, stage+"="+state(change.courses[name]))
	}
}

// expectOnly checks that nothing was admitted, evicted or left waiting but what the plan names.
func (p *planner) expectOnly(ctx context.Context, change plannedChange, made *plan.Plan) {
	GinkgoHelper()
	named := p.named(made)
	for name, course := range change.courses {
		jobSet, stage, _ := strings.Cut(name, "/")
		t := p.teamOf(ctx, jobSet)
		is := func(kinds ...plan.Kind) bool {
			return slices.ContainsFunc(kinds, func(k plan.Kind) bool { return slices.Contains(named[name], k) })
		}
		state := t.stage(ctx, Default, jobSet, stage)
		Expect(state).To(Equal(course.after), "%s: %s did not stay as it was", change.name, name)
		isEvicted := t.evictions(ctx, jobSet, stage) > 0 || course.before == "ready" && t.isSuspended(ctx, jobSet, stage)
		Expect(isEvicted).To(Equal(is(plan.Evicted)), "%s: %s is evicted", change.name, name)
		if state == "ready" && course.before != "ready" {
			Expect(is(plan.NewlyAdmitted, plan.Earlier, plan.Evicted)).To(BeTrue(), "%s: %s is newly admitted", change.name, name)
		}
		if state == "waiting" {
			isUnknown := slices.ContainsFunc(made.Unknown, func(u plan.Unknown) bool {
				return u.JobSet == jobSet && u.Stage.Stage == stage && u.Namespace == t.namespace
			})
			isNamed := is(plan.Delayed, plan.NeverFits, plan.Unsafe, plan.Evicted, plan.FitsAgain)
			Expect(isNamed || isUnknown).To(BeTrue(), "%s: %s is left waiting", change.name, name)
		}
	}
}

// team adds a team with GPUs. Teams after the first one are in a Cohort with it.
func (p *planner) team(ctx context.Context, gpus string) team {
	GinkgoHelper()
	t := newTeam(ctx, "100", gpus)
	if p.teams = append(p.teams, t); len(p.teams) > 1 {
		for _, member := range []team{p.teams[0], t} {
			member.patchQueue(ctx, fmt.Sprintf(`{"spec":{"cohortName":%q}}`, p.teams[0].namespace))
		}
	}
	return t
}

// teamOf returns the team that has a JobSet.
func (p *planner) teamOf(ctx context.Context, jobSet string) team {
	GinkgoHelper()
	i := slices.IndexFunc(p.teams, func(t team) bool {
		var list jobsetapi.JobSetList
		Expect(env.Admin.List(ctx, &list)).To(Succeed())
		return slices.ContainsFunc(list.Items, func(js jobsetapi.JobSet) bool { return js.Namespace == t.namespace && js.Name == jobSet })
	})
	Expect(i).To(BeNumerically(">=", 0), jobSet)
	return p.teams[i]
}

// train submits a JobSet with one stage of the same name, and waits until its stage is in a state.
func (t team) train(ctx context.Context, name, gpus, state string, change ...func(*jobsetapi.JobSet)) {
	GinkgoHelper()
	t.staged(ctx, t.newJobSet(name, replicatedJob{name: name, cpus: "1", gpus: gpus}), name+"="+state, change...)
}

// staged submits a JobSet, and waits until a stage is in a state.
func (t team) staged(ctx context.Context, js *jobsetapi.JobSet, state string, change ...func(*jobsetapi.JobSet)) {
	GinkgoHelper()
	for _, f := range change {
		f(js)
	}
	submit(ctx, js)
	t.expectStages(ctx, js.Name, state)
}

// limited gives a JobSet a time limit, so that plans know that it ends.
func limited(js *jobsetapi.JobSet) { js.Labels[apis.MaxExecTimeLabel] = "3600" }

// ofClass gives a JobSet a WorkloadPriorityClass.
func ofClass(name string) func(*jobsetapi.JobSet) {
	return func(js *jobsetapi.JobSet) { js.Labels[apis.PriorityClassLabel] = name }
}

// queueManifest returns the manifest of the ClusterQueue of a team, with a change.
func (t team) queueManifest(gpus string, change func(*kueue.ClusterQueueSpec)) map[string]any {
	GinkgoHelper()
	spec := clusterQueue(t.namespace, "100", gpus).Spec
	if change != nil {
		change(&spec)
	}
	return manifest(kueue.SchemeGroupVersion.String(), "ClusterQueue", metav1.ObjectMeta{Name: t.namespace}, map[string]any{"spec": spec})
}

func manifest(version, kind string, meta metav1.ObjectMeta, fields map[string]any) map[string]any {
	named := map[string]any{"name": meta.Name}
	if meta.Namespace != "" {
		named["namespace"] = meta.Namespace
	}
	all := map[string]any{"apiVersion": version, "kind": kind, "metadata": named}
	maps.Copy(all, fields)
	return all
}

// inCohort changes the quota of GPUs of a ClusterQueue that is in a Cohort.
func inCohort(cohort string, change func(*kueue.ResourceQuota)) func(*kueue.ClusterQueueSpec) {
	return func(spec *kueue.ClusterQueueSpec) {
		spec.CohortName = kueue.CohortReference(cohort)
		if change != nil {
			change(&spec.ResourceGroups[1].Flavors[0].Resources[0])
		}
	}
}

// apply applies a manifest with kubectl.
func apply(ctx context.Context, object map[string]any) {
	GinkgoHelper()
	content, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(GinkgoT().TempDir(), "manifest.json")
	Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	Expect(env.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", path)).To(Succeed())
}

// plannedChanges returns changes of each kind that follows at once, or when JobSets with a limit have ended.
func plannedChanges() []plannedChange {
	return slices.Concat(changesOfQuota(), changesOfCohorts(), changesOfPolicies(), changesOfUsers())
}

func changesOfQuota() []plannedChange {
	return []plannedChange{
		{
			name: "quota is raised",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				t := p.team(ctx, "4")
				t.train(ctx, "first", "4", "ready")
				t.train(ctx, "second", "4", "waiting")
				t.train(ctx, "large", "8", "waiting")
				return t.queueManifest("8", nil)
			},
			courses: map[string]course{
				"first/first":   {"ready", "ready", nil},
				"second/second": {"waiting", "ready", []plan.Kind{plan.NewlyAdmitted}},
				"large/large":   {"waiting", "waiting", []plan.Kind{plan.FitsAgain}},
			},
		},
		{
			name: "quota is cut below what a staged JobSet still needs",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				t := p.team(ctx, "8")
				// With co-start the first stage would wait for quota of both.
				t.patchQueue(ctx, `{"metadata":{"annotations":{"tranche.dev/co-start-reserve-for":"Never"}}}`)
				t.train(ctx, "short", "2", "ready")
				t.staged(ctx, t.newStaged("staged", "2", "6"), "train=waiting")
				changed := t.queueManifest("4", nil)
				changed["metadata"] = map[string]any{"name": t.namespace, "annotations": map[string]any{apis.CoStartAnnotation: apis.Never}}
				return changed
			},
			courses: map[string]course{
				"short/short":  {"ready", "ready", nil},
				"staged/ps":    {"ready", "waiting", []plan.Kind{plan.Evicted, plan.NeverFits}},
				"staged/train": {"waiting", "closed", nil},
			},
		},
		{
			name: "quota is cut while the pods of the first stage start",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				t := p.team(ctx, "12")
				t.staged(ctx, t.newStaged("starts", "2", "4"), "ps=admitted", func(js *jobsetapi.JobSet) {
					metav1.SetMetaDataAnnotation(&js.Spec.ReplicatedJobs[0].Template.Spec.Template.ObjectMeta, controlplane.FakeReadyAfter, "1h")
				})
				return t.queueManifest("5", nil)
			},
			courses: map[string]course{
				"starts/ps":    {"admitted", "waiting", []plan.Kind{plan.Evicted, plan.NeverFits}},
				"starts/train": {"closed", "closed", []plan.Kind{plan.Delayed}},
			},
		},
		{
			name: "quota is cut, and the policy Greedy evicts nothing",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				t := p.team(ctx, "8")
				t.patchQueue(ctx, `{"metadata":{"annotations":{"tranche.dev/stage-admission":"Greedy"}}}`)
				t.train(ctx, "short", "2", "ready")
				t.staged(ctx, t.newStaged("staged", "2", "6"), "train=waiting")
				changed := t.queueManifest("4", nil)
				changed["metadata"] = map[string]any{"name": t.namespace, "annotations": map[string]any{apis.StageAdmissionAnnotation: "Greedy"}}
				return changed
			},
			courses: map[string]course{
				"short/short":  {"ready", "ready", nil},
				"staged/ps":    {"ready", "ready", nil},
				"staged/train": {"waiting", "waiting", []plan.Kind{plan.Unsafe}},
			},
		},
	}
}

func changesOfCohorts() []plannedChange {
	return []plannedChange{
		{
			name: "a queue may borrow no longer",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				research, product := p.team(ctx, "4"), p.team(ctx, "4")
				research.train(ctx, "runs", "4", "ready")
				product.train(ctx, "serves", "4", "ready", limited)
				research.train(ctx, "waits", "2", "waiting")
				return research.queueManifest("4", inCohort(research.namespace, func(q *kueue.ResourceQuota) { q.BorrowingLimit = new(resource.MustParse("0")) }))
			},
			courses: map[string]course{
				"runs/runs":     {"ready", "ready", nil},
				"serves/serves": {"ready", kueue.WorkloadFinishedReasonSucceeded, nil},
				"waits/waits":   {"waiting", "waiting", []plan.Kind{plan.Delayed}},
			},
			ends: []string{"serves/serves"},
		},
		{
			name: "a queue lends less",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				research, product := p.team(ctx, "4"), p.team(ctx, "4")
				research.train(ctx, "runs", "4", "ready")
				product.train(ctx, "serves", "3", "ready", limited)
				research.train(ctx, "borrows", "3", "waiting")
				return product.queueManifest("4", inCohort(research.namespace, func(q *kueue.ResourceQuota) { q.LendingLimit = new(resource.MustParse("1")) }))
			},
			courses: map[string]course{
				"runs/runs":       {"ready", "ready", nil},
				"serves/serves":   {"ready", kueue.WorkloadFinishedReasonSucceeded, nil},
				"borrows/borrows": {"waiting", "waiting", []plan.Kind{plan.Delayed}},
			},
			ends: []string{"serves/serves"},
		},
		{
			name: "a queue leaves its Cohort",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				research, product := p.team(ctx, "4"), p.team(ctx, "4")
				research.train(ctx, "borrower", "6", "ready")
				product.train(ctx, "small", "2", "ready")
				product.train(ctx, "prompt", "2", "waiting")
				research.train(ctx, "large", "8", "waiting")
				return product.queueManifest("4", inCohort(product.namespace, nil))
			},
			courses: map[string]course{
				"borrower/borrower": {"ready", "ready", nil},
				"small/small":       {"ready", "ready", nil},
				"prompt/prompt":     {"waiting", "ready", []plan.Kind{plan.NewlyAdmitted}},
				"large/large":       {"waiting", "waiting", []plan.Kind{plan.NeverFits}},
			},
		},
		{
			name: "a queue reclaims what others have borrowed",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				research, product := p.team(ctx, "4"), p.team(ctx, "4")
				research.train(ctx, "own", "4", "ready", ofClass(research.newClass(ctx, "own", 10)))
				research.train(ctx, "borrower", "2", "ready")
				product.train(ctx, "small", "2", "ready")
				product.train(ctx, "owner", "2", "waiting")
				return product.queueManifest("4", func(spec *kueue.ClusterQueueSpec) {
					inCohort(research.namespace, nil)(spec)
					spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
				})
			},
			courses: map[string]course{
				"own/own":           {"ready", "ready", nil},
				"borrower/borrower": {"ready", "waiting", []plan.Kind{plan.Evicted}},
				"small/small":       {"ready", "ready", nil},
				"owner/owner":       {"waiting", "ready", []plan.Kind{plan.NewlyAdmitted}},
			},
		},
	}
}

func changesOfPolicies() []plannedChange {
	return []plannedChange{
		{
			name: "a queue is stopped",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				t := p.team(ctx, "4")
				staged := t.newJobSet("staged", replicatedJob{name: "data", cpus: "1", gpus: "1"}, replicatedJob{
					name: "train", cpus: "1", gpus: "2", after: []jobset.DependsOn{{Name: "data", Status: jobset.DependencyComplete}},
				})
				t.staged(ctx, staged, "data=ready", limited)
				t.train(ctx, "runs", "2", "ready")
				return t.queueManifest("4", func(spec *kueue.ClusterQueueSpec) { spec.StopPolicy = new(kueue.Hold) })
			},
			courses: map[string]course{
				"staged/data":  {"ready", kueue.WorkloadFinishedReasonSucceeded, nil},
				"staged/train": {"closed", "waiting", []plan.Kind{plan.Delayed}},
				"runs/runs":    {"ready", "ready", nil},
			},
			ends: []string{"staged/data"},
		},
		{
			name: "a stopped queue is started",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				t := p.team(ctx, "4")
				t.train(ctx, "runs", "2", "ready")
				t.patchQueue(ctx, `{"spec":{"stopPolicy":"Hold"}}`)
				t.train(ctx, "waits", "2", "waiting")
				t.train(ctx, "last", "4", "waiting") // it does not fit: two of the same second have no certain order
				return t.queueManifest("4", func(spec *kueue.ClusterQueueSpec) { spec.StopPolicy = new(kueue.None) })
			},
			courses: map[string]course{
				"runs/runs":   {"ready", "ready", nil},
				"waits/waits": {"waiting", "ready", []plan.Kind{plan.NewlyAdmitted}},
				"last/last":   {"waiting", "waiting", nil},
			},
		},
		{
			name: "a LocalQueue is drained",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				t := p.team(ctx, "4")
				calm := t.newLocalQueue(ctx, "calm")
				t.train(ctx, "runs", "2", "ready")
				t.train(ctx, "elsewhere", "2", "ready", calm)
				t.train(ctx, "waits", "2", "waiting", calm)
				return manifest(kueue.SchemeGroupVersion.String(), "LocalQueue", metav1.ObjectMeta{Namespace: t.namespace, Name: "queue"}, map[string]any{
					"spec": kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.namespace), StopPolicy: new(kueue.HoldAndDrain)},
				})
			},
			courses: map[string]course{
				"runs/runs":           {"ready", "waiting", []plan.Kind{plan.Evicted}},
				"elsewhere/elsewhere": {"ready", "ready", nil},
				"waits/waits":         {"waiting", "ready", []plan.Kind{plan.NewlyAdmitted}},
			},
		},
		{
			name: "a class gets a higher priority",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				t := p.team(ctx, "4")
				t.patchQueue(ctx, `{"spec":{"preemption":{"withinClusterQueue":"LowerPriority"}}}`)
				research, product := t.newClass(ctx, "research", 10), t.newClass(ctx, "product", 5)
				t.train(ctx, "trains", "4", "ready", ofClass(research))
				t.train(ctx, "serves", "4", "waiting", ofClass(product))
				return manifest(kueue.SchemeGroupVersion.String(), "WorkloadPriorityClass", metav1.ObjectMeta{Name: product}, map[string]any{"value": 20})
			},
			courses: map[string]course{
				"trains/trains": {"ready", "waiting", []plan.Kind{plan.Evicted}},
				"serves/serves": {"waiting", "ready", []plan.Kind{plan.NewlyAdmitted}},
			},
		},
	}
}

func changesOfUsers() []plannedChange {
	return []plannedChange{
		{
			name: "a JobSet is suspended",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				t := p.team(ctx, "4")
				// With co-start the first stage would wait for quota of both.
				t.patchQueue(ctx, `{"metadata":{"annotations":{"tranche.dev/co-start-reserve-for":"Never"}}}`)
				t.train(ctx, "runs", "2", "ready")
				t.staged(ctx, t.newStaged("staged", "1", "2"), "train=waiting")
				t.train(ctx, "waits", "2", "waiting")
				return t.suspension(t.newStaged("staged", "1", "2"), true)
			},
			courses: map[string]course{
				"runs/runs":    {"ready", "ready", nil},
				"staged/ps":    {"ready", "closed", []plan.Kind{plan.Evicted}},
				"staged/train": {"waiting", "closed", nil},
				"waits/waits":  {"waiting", "ready", []plan.Kind{plan.NewlyAdmitted}},
			},
		},
		{
			name: "a suspended JobSet is resumed, and queued again",
			setUp: func(ctx context.Context, p *planner) map[string]any {
				t := p.team(ctx, "4")
				t.staged(ctx, t.newStaged("staged", "1", "2"), "train=ready")
				apply(ctx, t.suspension(t.newStaged("staged", "1", "2"), true))
				t.expectStages(ctx, "staged", "ps=closed", "train=closed")
				t.train(ctx, "runs", "4", "ready")
				t.train(ctx, "waits", "2", "waiting")
				return t.suspension(t.newStaged("staged", "1", "2"), false)
			},
			courses: map[string]course{
				"runs/runs":    {"ready", "ready", nil},
				"staged/ps":    {"closed", "waiting", []plan.Kind{plan.Waiting}},
				"staged/train": {"closed", "closed", []plan.Kind{plan.Waiting}},
				"waits/waits":  {"waiting", "waiting", nil},
			},
		},
	}
}

// newStaged makes a JobSet of a stage ps that stays, and a stage train.
func (t team) newStaged(name, ps, train string) *jobsetapi.JobSet {
	return inOrder(t.newJobSet(name, replicatedJob{name: "ps", cpus: "1", gpus: ps}, replicatedJob{name: "train", cpus: "1", gpus: train}))
}

// suspension returns the manifest by which a user suspends or resumes a JobSet.
func (t team) suspension(js *jobsetapi.JobSet, suspend bool) map[string]any {
	js.Spec.Suspend = &suspend
	return manifest(jobset.GroupVersion.String(), "JobSet", js.ObjectMeta, map[string]any{"spec": js.Spec})
}

// isSuspended reports whether a stage holds no quota because the user of its JobSet has suspended it.
func (t team) isSuspended(ctx context.Context, jobSet, stage string) bool {
	w := t.workload(ctx, Default, jobSet, stage)
	return quotaworkload.HasGate(w, apis.SuspendedGate) && !quotaworkload.HoldsQuota(w)
}

// newLocalQueue creates one more LocalQueue of the team, and returns a function that submits a JobSet to it.
func (t team) newLocalQueue(ctx context.Context, name string) func(*jobsetapi.JobSet) {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.namespace)},
	})).To(Succeed())
	return func(js *jobsetapi.JobSet) { js.Labels[apis.QueueLabel] = name }
}

// newClass creates a WorkloadPriorityClass of the team, and returns its name.
func (t team) newClass(ctx context.Context, name string, value int32) string {
	GinkgoHelper()
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-" + name}, Value: value}
	Expect(env.Admin.Create(ctx, class)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(env.Admin.Delete(ctx, class)).To(Succeed()) })
	return class.Name
}
