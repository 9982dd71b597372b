package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

// A team is a namespace with a LocalQueue "queue" on a ClusterQueue of its own, both of the namespace's name.
type team struct{ namespace string }

var teams int

// newTeam makes a team with this quota of cpu and GPUs. Everything of it is deleted when the spec ends.
func newTeam(ctx context.Context, cpus, gpus string) team {
	teams++
	t := team{"team-" + strconv.Itoa(teams)}
	Expect(env.CreateNamespace(ctx, t.namespace, nil)).To(Succeed())
	Expect(env.Admin.Create(ctx, clusterQueue(t.namespace, cpus, gpus))).To(Succeed())
	Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "queue"},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.namespace)},
	})).To(Succeed())
	DeferCleanup(t.clear)
	return t
}

// clear deletes the JobSets and Jobs of a team and waits until all their objects are deleted.
func (t team) clear(ctx SpecContext) {
	Expect(env.Admin.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(t.namespace), client.MatchingLabels{apis.HoldLabel: apis.HoldQueued},
		client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	Expect(env.Admin.DeleteAllOf(ctx, &jobsetapi.JobSet{}, client.InNamespace(t.namespace))).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(t.workloads(ctx, g)).To(BeEmpty())
		g.Expect(t.jobs(ctx, g, "")).To(BeEmpty())
		g.Expect(t.pods(ctx, g, "")).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed(), "something is left over of the JobSets of %s", t.namespace)
}

func clusterQueue(name, cpus, gpus string) *kueue.ClusterQueue {
	quota := func(resource corev1.ResourceName, amount string) kueue.ResourceQuota {
		return kueue.ResourceQuota{Name: resource, NominalQuota: sample.Amounts("x", amount)["x"]}
	}
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{
				{
					CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
					Flavors:          []kueue.FlavorQuotas{{Name: "cpu", Resources: []kueue.ResourceQuota{quota(corev1.ResourceCPU, cpus)}}},
				},
				{
					CoveredResources: []corev1.ResourceName{gpu},
					Flavors:          []kueue.FlavorQuotas{{Name: "a100", Resources: []kueue.ResourceQuota{quota(gpu, gpus)}}},
				},
			},
		},
	}
}

// A replicatedJob describes a ReplicatedJob to create. Its pods run until the test ends them, unless runs is set.
type replicatedJob struct {
	name           string
	replicas, pods int32
	cpus, gpus     string
	runs           string
	after          []jobset.DependsOn
}

// newJobSet returns a JobSet for the team's queue, and does not submit it.
func (t team) newJobSet(name string, replicatedJobs ...replicatedJob) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: t.namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "queue"},
	}}
	for _, r := range replicatedJobs {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, r.build())
	}
	return js
}

func (r replicatedJob) build() jobsetapi.ReplicatedJob {
	requests := corev1.ResourceList{}
	if r.cpus != "" {
		requests[corev1.ResourceCPU] = sample.Amounts("x", r.cpus)["x"]
	}
	if r.gpus != "" {
		requests[gpu] = sample.Amounts("x", r.gpus)["x"]
	}
	fate := map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}
	if r.runs != "" {
		fate = map[string]string{controlplane.FakeRunTime: r.runs}
	}
	made := sample.ReplicatedJob(r.name, max(r.pods, 1), requests, fate)
	made.Replicas, made.DependsOn = max(r.replicas, 1), r.after
	return made
}

func inOrder(js *jobsetapi.JobSet, rules ...jobsetapi.StartupPolicyRule) *jobsetapi.JobSet {
	js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: rules}
	return js
}

func rule(status jobsetapi.ReplicatedJobsStatus, targets ...string) jobsetapi.StartupPolicyRule {
	return jobsetapi.StartupPolicyRule{TargetReplicatedJobs: targets, WaitForReplicatedJobsStatus: status}
}

func submit(ctx context.Context, js *jobsetapi.JobSet) *jobsetapi.JobSet {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, js)).To(Succeed())
	return js
}

// workloads of the team, in the order of their names.
func (t team) workloads(ctx context.Context, g Gomega) []kueue.Workload {
	var list kueue.WorkloadList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace))).To(Succeed())
	return list.Items
}

// jobs of a ReplicatedJob, or all of the team.
func (t team) jobs(ctx context.Context, g Gomega, replicatedJob string) []batchv1.Job {
	var list batchv1.JobList
	g.Expect(env.Admin.List(ctx, &list, t.selecting(replicatedJob)...)).To(Succeed())
	return list.Items
}

// job returns the only Job of a ReplicatedJob.
func (t team) job(ctx context.Context, g Gomega, replicatedJob string) *batchv1.Job {
	jobs := t.jobs(ctx, g, replicatedJob)
	g.Expect(jobs).To(HaveLen(1))
	return &jobs[0]
}

// pods of a ReplicatedJob, or all of the team.
func (t team) pods(ctx context.Context, g Gomega, replicatedJob string) []corev1.Pod {
	var list corev1.PodList
	g.Expect(env.Admin.List(ctx, &list, t.selecting(replicatedJob)...)).To(Succeed())
	return list.Items
}

func (t team) selecting(replicatedJob string) []client.ListOption {
	options := []client.ListOption{client.InNamespace(t.namespace)}
	if replicatedJob != "" {
		options = append(options, client.MatchingLabels{jobset.ReplicatedJobNameKey: replicatedJob})
	}
	return options
}

// stage returns the state of a stage of a JobSet: missing, closed, waiting, admitted, ready, or how it finished.
func (t team) stage(ctx context.Context, g Gomega, jobSet, stage string) string {
	all := t.workloadsOf(ctx, g, jobSet, stage)
	if len(all) == 0 {
		return "missing"
	}
	return stateOfStage(&all[0])
}

// workloadsOf are the quota Workloads of a stage, but for its growths.
func (t team) workloadsOf(ctx context.Context, g Gomega, jobSet, stage string) []kueue.Workload {
	var list kueue.WorkloadList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace),
		client.MatchingLabels{apis.JobSetLabel: jobSet, apis.StageLabel: stage})).To(Succeed())
	return slices.DeleteFunc(list.Items, func(w kueue.Workload) bool { return w.Labels[apis.GrowthLabel] != "" })
}

func stateOfStage(w *kueue.Workload) string {
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished); c != nil && c.Status == metav1.ConditionTrue {
		return c.Reason
	}
	switch {
	case apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted):
		if apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadPodsReady) {
			return "ready"
		}
		return "admitted"
	case w.Annotations[apis.AdmissionGatedByAnnotation] != "":
		return "closed"
	default:
		return "waiting"
	}
}

// expectStages waits until stages of a JobSet are in these states, given as name=state.
func (t team) expectStages(ctx context.Context, jobSet string, states ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, want := range states {
			name, state := split(want)
			g.Expect(name + "=" + t.stage(ctx, g, jobSet, name)).To(Equal(name + "=" + state))
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// expectNow checks that stages of a JobSet are in these states, without waiting.
func (t team) expectNow(ctx context.Context, jobSet string, states ...string) {
	GinkgoHelper()
	for _, want := range states {
		name, _ := split(want)
		Expect(name+"="+t.stage(ctx, Default, jobSet, name)).To(Equal(want), func() string { return t.describe(ctx) })
	}
}

// expectStill checks that stages of a JobSet are still in these states when the controllers have handled all earlier writes.
func (t team) expectStill(ctx context.Context, jobSet string, states ...string) {
	GinkgoHelper()
	t.awaitHandled(ctx)
	t.expectNow(ctx, jobSet, states...)
}

// probes counts the JobSets of awaitHandled.
var probes int

// awaitHandled waits until the controllers have handled all earlier writes: it submits a JobSet of one pod, and waits until the manager reports that the pod is
// ready. Each watch delivers changes in their order, and on the way to that state the JobSet needs every controller several times. A spec that something does
// not happen calls it before its last check, which could not fail before the controllers have had the opportunity.
func (t team) awaitHandled(ctx context.Context) {
	GinkgoHelper()
	probes++
	name := "probe-" + strconv.Itoa(probes)
	submit(ctx, t.newJobSet(name, replicatedJob{name: "probe", cpus: "1"}))
	t.expectStages(ctx, name, "probe=ready")
}

func split(s string) (string, string) {
	for i := range s {
		if s[i] == '=' {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// end makes all pods of a ReplicatedJob finish as they appear.
func (t team) end(ctx context.Context, jobSet, replicatedJob string, phase corev1.PodPhase) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		ended := 0
		for _, pod := range t.pods(ctx, g, replicatedJob) {
			if pod.Labels[jobset.JobSetNameKey] != jobSet {
				continue
			}
			if pod.Status.Phase == corev1.PodRunning {
				pod.Status.Phase = phase
				g.Expect(env.Admin.Status().Update(ctx, &pod)).To(Succeed())
			}
			g.Expect(pod.Status.Phase).NotTo(Equal(corev1.PodPending), pod.Name)
			ended++
		}
		g.Expect(ended).To(BeNumerically(">", 0))
		for _, job := range t.jobs(ctx, g, replicatedJob) {
			if job.Labels[jobset.JobSetNameKey] == jobSet && phase == corev1.PodSucceeded {
				g.Expect(job.Status.CompletionTime).NotTo(BeNil(), job.Name)
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// expectOver waits until a JobSet has finished in this way.
func (t team) expectOver(ctx context.Context, name string, how jobset.JobSetConditionType) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var js jobsetapi.JobSet
		g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: name}, &js)).To(Succeed())
		g.Expect(apimeta.IsStatusConditionTrue(js.Status.Conditions, string(how))).To(BeTrue(), "%+v", js.Status.Conditions)
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// reserved returns the GPUs that the team's ClusterQueue reports as reserved.
func (t team) reserved(ctx context.Context, g Gomega) string {
	var queue kueue.ClusterQueue
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Name: t.namespace}, &queue)).To(Succeed())
	for _, flavor := range queue.Status.FlavorsReservation {
		for _, usage := range flavor.Resources {
			if usage.Name == gpu {
				return usage.Total.String()
			}
		}
	}
	return "unknown"
}

// setQuota changes the quota of GPUs.
func (t team) setQuota(ctx context.Context, gpus string) {
	GinkgoHelper()
	changed := clusterQueue(t.namespace, "100", gpus)
	Eventually(func(g Gomega) {
		queue := &kueue.ClusterQueue{}
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(changed), queue)).To(Succeed())
		queue.Spec.ResourceGroups = changed.Spec.ResourceGroups
		g.Expect(env.Admin.Update(ctx, queue)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// describe returns the full state of a team, for failures.
func (t team) describe(ctx context.Context) string {
	g := NewGomega(func(message string, _ ...int) { AddReportEntry("describe", message) })
	text := "state of " + t.namespace + ":\n"
	for _, w := range t.workloads(ctx, g) {
		text += fmt.Sprintf("  Workload %s gates=%q\n", w.Name, w.Annotations[apis.AdmissionGatedByAnnotation])
		for _, c := range w.Status.Conditions {
			text += fmt.Sprintf("    %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, j := range t.jobs(ctx, g, "") {
		text += fmt.Sprintf("  Job %s suspend=%v parallelism=%d active=%d succeeded=%d failed=%d\n", j.Name, ptr.Deref(j.Spec.Suspend, false), ptr.Deref(j.Spec.Parallelism, 1), j.Status.Active, j.Status.Succeeded, j.Status.Failed)
	}
	for _, p := range t.pods(ctx, g, "") {
		text += fmt.Sprintf("  Pod %s %s\n", p.Name, p.Status.Phase)
	}
	return text
}

// expectNoRestart checks that nothing counts against the maxRestarts of a JobSet.
func (t team) expectNoRestart(ctx context.Context, name string) {
	GinkgoHelper()
	var js jobsetapi.JobSet
	Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: name}, &js)).To(Succeed())
	Expect(js.Status.Restarts).To(BeZero())
	Expect(js.Status.RestartsCountTowardsMax).To(BeZero())
}

// expectEvent waits until an Event is recorded on a JobSet.
func (t team) expectEvent(ctx context.Context, jobSet, reason string) {
	GinkgoHelper()
	told := func(e eventsv1.Event) bool { return e.Regarding.Name == jobSet && e.Reason == reason }
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace))).To(Succeed())
		g.Expect(list.Items).To(ContainElement(Satisfy(told)))
	}).WithContext(ctx).Should(Succeed())
}
