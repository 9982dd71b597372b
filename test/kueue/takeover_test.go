package kueue_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("Cohort trees that are taken over from Kueue", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		startBeside(ctx)
		newSafetyCheck(ctx, "taken-stages")
	}, NodeTimeout(patience))

	It("run jobs of all kinds, and go back", func(ctx SpecContext) {
		inCohort := func(cq *kueue.ClusterQueue) { cq.Spec.CohortName = "taken" }
		tenant(ctx, "taken-a", 8, inCohort, checked("taken-stages"))
		tenant(ctx, "taken-b", 0, inCohort)
		running := named(lasting(newJob("taken-a", 3), "600"), "running")
		Expect(env.Admin.Create(ctx, running)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, running))).WithContext(ctx).Should(haveCondition(kueue.WorkloadPodsReady, metav1.ConditionTrue, ""))
		uid := podUIDs(ctx, running)
		blocked := named(newJob("taken-b", 6), "blocked")
		Expect(env.Admin.Create(ctx, blocked)).To(Succeed())

		takeOver(ctx, "taken-a", "taken-b")

		By("keeping its own reason why a job waits, beside Kueue's")
		waits := workloadOf(ctx, blocked)
		Eventually(read(ctx, waits)).WithContext(ctx).Should(haveCondition(apis.WaitingCondition, metav1.ConditionTrue, kueue.WorkloadQuotaReservedReasonWaitingForQuota))
		own := meta.FindStatusCondition(waits.Status.Conditions, apis.WaitingCondition).Message
		Expect(meta.FindStatusCondition(waits.Status.Conditions, kueue.WorkloadQuotaReserved).Message).NotTo(Equal(own))

		By("admitting a Job, a pod group and the stages of a JobSet")
		job := named(newJob("taken-a", 1), "plain")
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		group := podGroup(ctx, "taken-a", "group", 2)
		js := stagedJobSet("taken-b", map[string]string{apis.QueueLabel: "queue"}, "1")
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, job))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		awaitPods(ctx, group)
		awaitCompletion(ctx, js)
		Expect(podUIDs(ctx, running)).To(Equal(uid), "nothing that runs is touched")
		Expect(read(ctx, waits)(NewGomega(Fail))).To(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))

		By("going back")
		handBack(ctx, "taken-a", "taken-b")
		later := named(newJob("taken-a", 2), "later")
		Expect(env.Admin.Create(ctx, later)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, later))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		Expect(podUIDs(ctx, running)).To(Equal(uid), "nothing that runs is touched")
		Expect(read(ctx, waits)(NewGomega(Fail)).Status.Conditions).NotTo(ContainElement(HaveField("Type", apis.WaitingCondition)))
		Expect(env.Admin.Delete(ctx, running, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(read(ctx, waits)).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		for _, pod := range group {
			Expect(succeed(ctx, read(ctx, pod)(NewGomega(Fail)))).To(Succeed())
		}
		removePods(ctx, "taken-a")
	}, NodeTimeout(3*patience))

	It("have one engine at most when both managers are killed at each step", expectOneEngine, NodeTimeout(6*patience))

	It("wait, and are Kueue's, while they are taken in part or not held", func(ctx SpecContext) {
		inCohort := func(cq *kueue.ClusterQueue) { cq.Spec.CohortName = "half" }
		newCheck(ctx, "half-check")
		tenant(ctx, "half-a", 2, inCohort)
		tenant(ctx, "half-b", 2, inCohort, checked("half-check"))
		annotate(ctx, apis.EngineTranche, "half-a")
		eventually := func(clusterQueue, text string) {
			Eventually(func(g Gomega) {
				var list eventsv1.EventList
				g.Expect(env.Admin.List(ctx, &list, client.InNamespace("default"))).To(Succeed())
				g.Expect(list.Items).To(ContainElement(And(HaveField("Regarding.Name", clusterQueue), HaveField("Reason", "TakeoverBlocked"), HaveField("Note", ContainSubstring(text)))))
			}).WithContext(ctx).Should(Succeed())
		}
		eventually("half-a", "ClusterQueue half-b: spec.admissionChecksStrategy: AdmissionCheck half-check")
		eventually("half-a", "spec.stopPolicy is None, so that Kueue admits in it; set it to Hold")
		eventually("half-b", "it has no annotation tranche.dev/engine: Tranche")
		job := newJob("half-a", 1)
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, job))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		Expect(locksOf(ctx, NewGomega(Fail), "half-a", "half-b")).To(HaveEach(""))
		large := newWorkload(ctx, "half-a", func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 50 })
		Eventually(admitAs(ctx, testenv.ManagerUser, large)).WithContext(ctx).Should(MatchError(ContainSubstring("Kueue admits in ClusterQueue half-a")))

		patchQueue(ctx, "half-b", `{"spec":{"admissionChecksStrategy":null}}`)
		takeOver(ctx, "half-a", "half-b")
		By("refusing what would let Kueue admit at the same time")
		Expect(tryPatch(ctx, "half-a", `{"spec":{"stopPolicy":"None"}}`)).To(MatchError(ContainSubstring("must stay Hold while Tranche admits")))
		Expect(tryPatch(ctx, "half-a", `{"spec":{"cohortName":"other"}}`)).To(MatchError(ContainSubstring("spec.cohortName: cannot be changed")))
		stranger := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "half-c"}, Spec: kueue.ClusterQueueSpec{CohortName: "half"}}
		Expect(env.Admin.Create(ctx, stranger)).To(MatchError(ContainSubstring("Tranche admits in the cohort tree of Cohort half")))
		Expect(env.Admin.Create(ctx, &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "half"}, Spec: kueue.CohortSpec{ParentName: "other"}})).
			To(MatchError(ContainSubstring("spec.parentName: cannot be changed")))
		Eventually(admitAs(ctx, controlplane.KueueUser, large)).WithContext(ctx).Should(MatchError(ContainSubstring("Tranche admits in ClusterQueue half-a")))

		By("stopping for its own stop policy")
		patchQueue(ctx, "half-a", `{"metadata":{"annotations":{"tranche.dev/stop-policy":"Hold"}}}`)
		second := named(newJob("half-a", 1), "second")
		Expect(env.Admin.Create(ctx, second)).To(Succeed())
		held := workloadOf(ctx, second)
		Eventually(read(ctx, held)).WithContext(ctx).Should(haveCondition(apis.WaitingCondition, metav1.ConditionTrue, kueue.WorkloadQuotaReservedReasonSuspended))
		patchQueue(ctx, "half-a", `{"metadata":{"annotations":{"tranche.dev/stop-policy":null}}}`)
		Eventually(read(ctx, held)).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		handBack(ctx, "half-a", "half-b")
	}, NodeTimeout(3*patience))

	It("are taken over and handed back by commands", func(ctx SpecContext) {
		inCohort := func(cq *kueue.ClusterQueue) { cq.Spec.CohortName = "verbs" }
		tenant(ctx, "verbs-a", 2, inCohort)
		tenant(ctx, "verbs-b", 2, inCohort, func(cq *kueue.ClusterQueue) { held(cq) })
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(env.Plane.Kubeconfig(kubeconfig, "admin", "system:masters")).To(Succeed())
		tranche := func(answer string, args ...string) (string, error) {
			cmd := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), append([]string{args[0], "--kubeconfig", kubeconfig}, args[1:]...)...)
			cmd.Stdin = strings.NewReader(answer)
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		refused := func(want, answer string, args ...string) {
			GinkgoHelper()
			out, err := tranche(answer, args...)
			Expect(err).To(HaveOccurred(), out)
			Expect(out).To(ContainSubstring(want))
		}
		refused("there is no ClusterQueue nowhere", "", "takeover", "nowhere")
		refused("a tree changes as a whole: tranche takeover verbs-a verbs-b", "", "takeover", "verbs-a")
		refused("nothing to hand back: Kueue admits in ClusterQueue(s) verbs-a, verbs-b already", "", "hand-back", "verbs-a", "verbs-b")
		refused("nothing has changed: answer y", "n\n", "takeover", "verbs-a", "verbs-b")
		other := kueueDeployment("v0.18.1")
		Expect(env.Admin.Create(ctx, other)).To(Succeed())
		refused("Kueue's manager has version v0.18.1", "", "takeover", "verbs-a", "verbs-b", "--dry-run")
		Expect(env.Admin.Delete(ctx, other)).To(Succeed())
		out, err := tranche("", "takeover", "verbs-a", "verbs-b", "--dry-run")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("annotation tranche.dev/stop-policy: Hold, because it is held"))
		Expect(locksOf(ctx, NewGomega(Fail), "verbs-a", "verbs-b")).To(HaveEach(""))

		By("naming a Workload that Tranche does not admit, which is no obstacle")
		topological := newWorkload(ctx, "verbs-b", func(w *kueue.Workload) {
			w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Required: new(rack)}
		})
		out, err = tranche("", "takeover", "verbs-a", "verbs-b", "--dry-run")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("Workloads that Tranche does not admit: 1. "))
		Expect(out).To(ContainSubstring("- Workload verbs-b/" + topological.Name + ", which waits: spec.podSets[0].topologyRequest is not supported"))

		By("naming what is held if the user may change only a part")
		partly := kubeconfigOfReader(ctx, "verbs-reader", "verbs-a")
		out, err = tranche("", "takeover", "verbs-a", "verbs-b", "--yes", "--kubeconfig", partly)
		Expect(err).To(HaveOccurred(), out)
		Expect(out).To(MatchRegexp(`change ClusterQueue verbs-b: .* is forbidden: .*; ask for the right to patch ClusterQueues, for example by a ClusterRoleBinding to the ClusterRole tranche-queue-editor; ClusterQueues that are held and admit nothing: verbs-a: run the command again, or tranche hand-back verbs-a verbs-b`))
		Expect(locksOf(ctx, NewGomega(Fail), "verbs-a", "verbs-b")).To(HaveEach(""))

		out, err = tranche("y\n", "takeover", "verbs-a", "verbs-b")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(HaveSuffix("Continue? [y/N] Tranche admits.\n"))
		Expect(locksOf(ctx, NewGomega(Fail), "verbs-a", "verbs-b")).To(HaveEach("Tranche"))
		waits := newJob("verbs-b", 1)
		Expect(env.Admin.Create(ctx, waits)).To(Succeed())
		job := newJob("verbs-a", 1)
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, job))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		Expect(workloadOf(ctx, waits)).NotTo(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, ""), "it stays held")

		refused("a tree changes as a whole: tranche hand-back verbs-a verbs-b", "", "hand-back", "verbs-b")
		out, err = tranche("", "hand-back", "verbs-a", "verbs-b", "--yes", "-o", "json")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(MatchJSON(`{"engine": "Kueue", "result": "Done", "clusterQueues": [
			{"name": "verbs-a", "annotations": {"tranche.dev/engine": null, "tranche.dev/stop-policy": null}, "stopPolicy": "None"},
			{"name": "verbs-b", "annotations": {"tranche.dev/engine": null, "tranche.dev/stop-policy": null}, "stopPolicy": "Hold"}
		], "differences": [
			"without an AdmissionCheck for stage safety, JobSets that have begun in stages can deadlock", "more: docs/migrate-from-kueue.md#different"
		]}`))
		after := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "verbs-b"}}
		Expect(read(ctx, after)(NewGomega(Fail)).Spec.StopPolicy).To(HaveValue(Equal(kueue.Hold)))
		Expect(after.Annotations).To(BeEmpty())
		after = &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "verbs-a"}}
		Expect(read(ctx, after)(NewGomega(Fail)).Spec.StopPolicy).To(HaveValue(Equal(kueue.None)))
		last := named(newJob("verbs-a", 1), "last")
		Expect(env.Admin.Create(ctx, last)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, last))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
	}, NodeTimeout(3*patience))
})

// kubeconfigOfReader writes a kubeconfig of a user that may read everything, and change one ClusterQueue.
func kubeconfigOfReader(ctx context.Context, user, clusterQueue string) string {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{kueue.SchemeGroupVersion.Group}, Resources: []string{"clusterqueues"}, ResourceNames: []string{clusterQueue}, Verbs: []string{"patch"}},
	}})).To(Succeed())
	Expect(env.Admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})).To(Succeed())
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(env.Plane.Kubeconfig(path, user)).To(Succeed())
	return path
}

// admitAs returns a function that admits a quota Workload in the ClusterQueue of its namespace as a user, and returns the answer of the API server.
func admitAs(ctx context.Context, user string, w *kueue.Workload) func(Gomega) error {
	GinkgoHelper()
	c, err := env.As(user)
	Expect(err).NotTo(HaveOccurred())
	return func(g Gomega) error {
		read(ctx, w)(g)
		w.Status.Admission = admission(w, kueue.ClusterQueueReference(w.Namespace)).Admission
		return c.Status().Update(ctx, w, client.DryRunAll)
	}
}

// annotate sets the annotation that asks for an engine.
func annotate(ctx context.Context, engine string, clusterQueues ...string) {
	GinkgoHelper()
	for _, name := range clusterQueues {
		patchQueue(ctx, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, apis.EngineAnnotation, engine))
	}
}

// stop sets spec.stopPolicy.
func stop(ctx context.Context, policy kueue.StopPolicy, clusterQueues ...string) {
	GinkgoHelper()
	for _, name := range clusterQueues {
		patchQueue(ctx, name, fmt.Sprintf(`{"spec":{"stopPolicy":%q}}`, policy))
	}
}

func patchQueue(ctx context.Context, name, change string) {
	GinkgoHelper()
	Expect(tryPatch(ctx, name, change)).To(Succeed())
}

func tryPatch(ctx context.Context, name, change string) error {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return env.Admin.Patch(ctx, cq, client.RawPatch(types.MergePatchType, []byte(change)))
}

// takeOver makes Tranche admit in a cohort tree, and waits for that.
func takeOver(ctx context.Context, clusterQueues ...string) {
	GinkgoHelper()
	annotate(ctx, apis.EngineTranche, clusterQueues...)
	stop(ctx, kueue.Hold, clusterQueues...)
	Eventually(func(g Gomega) { g.Expect(locksOf(ctx, g, clusterQueues...)).To(HaveEach("Tranche")) }).WithContext(ctx).Should(Succeed())
}

// handBack makes Kueue admit in a cohort tree again.
func handBack(ctx context.Context, clusterQueues ...string) {
	GinkgoHelper()
	annotate(ctx, apis.EngineKueue, clusterQueues...)
	Eventually(func(g Gomega) { g.Expect(locksOf(ctx, g, clusterQueues...)).To(HaveEach("")) }).WithContext(ctx).Should(Succeed())
	Eventually(func() error {
		for _, name := range clusterQueues {
			if err := tryPatch(ctx, name, `{"spec":{"stopPolicy":"None"}}`); err != nil {
				return err
			}
		}
		return nil
	}).WithContext(ctx).Should(Succeed())
}

// locksOf returns what the ConfigMap of takeovers says about ClusterQueues.
func locksOf(ctx context.Context, g Gomega, clusterQueues ...string) []string {
	held := &corev1.ConfigMap{}
	g.Expect(client.IgnoreNotFound(env.Admin.Get(ctx, client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.TakeoverConfigMap}, held))).To(Succeed())
	var states []string
	for _, name := range clusterQueues {
		states = append(states, held.Data["queue."+name])
	}
	return states
}

func named(job *batchv1.Job, name string) *batchv1.Job {
	job.Name = name
	return job
}

// lasting makes the pods of a Job run for so many seconds.
func lasting(job *batchv1.Job, seconds string) *batchv1.Job {
	job.Spec.Template.Annotations = map[string]string{controlplane.FakeRunTime: seconds}
	return job
}

// podUIDs returns the UIDs of the pods of a Job.
func podUIDs(ctx context.Context, job *batchv1.Job) []types.UID {
	GinkgoHelper()
	var list corev1.PodList
	Expect(env.Admin.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})).To(Succeed())
	var uids []types.UID
	for i := range list.Items {
		uids = append(uids, list.Items[i].UID)
	}
	slices.Sort(uids)
	return uids
}

// podGroup creates a group of pods that Kueue queues together, with 1 GPU each.
func podGroup(ctx context.Context, namespace, name string, size int32) []*corev1.Pod {
	GinkgoHelper()
	template := newJob(namespace, 1).Spec.Template
	var pods []*corev1.Pod
	for i := range size {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, i),
			Labels:      map[string]string{apis.QueueLabel: "queue", "kueue.x-k8s.io/pod-group-name": name},
			Annotations: map[string]string{"kueue.x-k8s.io/pod-group-total-count": fmt.Sprint(size), controlplane.FakeRunTime: "1"},
		}, Spec: template.Spec}
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		Expect(env.Admin.Create(ctx, pod)).To(Succeed())
		pods = append(pods, pod)
	}
	return pods
}

// awaitPods waits until pods run.
func awaitPods(ctx context.Context, pods []*corev1.Pod) {
	GinkgoHelper()
	for _, pod := range pods {
		Eventually(read(ctx, pod)).WithContext(ctx).Should(HaveField("Status.Phase", corev1.PodRunning))
	}
}
