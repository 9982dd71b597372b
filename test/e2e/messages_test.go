package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// The messages of the objects and Events of a JobSet in error cases.
var _ = Describe("The owner of a JobSet reads", func() {
	It("that the JobSet has failed, and in which stage", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.fineTune("bad"))
		t.end(ctx, "bad", "initializer", corev1.PodFailed)
		t.expectOver(ctx, "bad", jobset.JobSetFailed)
		t.expectSays(ctx, "bad", "Failed", `The JobSet has failed in stage 1/2 "initializer": `)
		t.expectStages(ctx, "bad", "initializer=Failed", "trainer-node=Failed")
		finished := apimeta.FindStatusCondition(t.workload(ctx, Default, "bad", "trainer-node").Status.Conditions, kueue.WorkloadFinished)
		Expect(finished.Message).To(HavePrefix(`The JobSet has failed before stage "trainer-node" finished: `))
		Eventually(func(g Gomega) { g.Expect(t.list(ctx, g, "jobsets", "bad")).To(HaveSuffix("Failed")) }).WithContext(ctx).Should(Succeed())
		Expect(t.told(ctx, Default, "bad", "StageReleased")).To(Equal(map[string]int{
			`Released stage "initializer", admitted by ClusterQueue "` + t.namespace + `": 1 Job with 1 cpu of flavor cpu`: 1,
		}))
	}, SpecTimeout(specTimeout))

	It("that a stage which succeeded before the JobSet failed was a success", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.fineTune("half"))
		t.end(ctx, "half", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "half", "trainer-node=ready")
		t.end(ctx, "half", "trainer-node", corev1.PodFailed)
		t.expectSays(ctx, "half", "Failed", `The JobSet has failed in stage 2/2 "trainer-node": `)
		t.expectStages(ctx, "half", "initializer=Succeeded", "trainer-node=Failed")
		Expect(t.list(ctx, Default, "workloads", "half")).To(HaveSuffix("trainer-node QuotaReserved Failed"))
	}, SpecTimeout(specTimeout))

	It("the same message about a deactivated stage on the JobSet and on its quota Workload, with what to do", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.newJobSet("off", replicatedJob{name: "main", cpus: "1", gpus: "5"}))
		t.expectStages(ctx, "off", "main=ready")
		t.setActive(ctx, "off", "main", false)
		t.expectEvent(ctx, "off", "StageEvicted")
		Eventually(func(g Gomega) {
			pending := apimeta.FindStatusCondition(t.workload(ctx, g, "off", "main").Status.Conditions, apis.WaitingCondition)
			g.Expect(pending).NotTo(BeNil())
			g.Expect(pending.Reason).To(Equal("Deactivated"))
			said := apimeta.FindStatusCondition(t.jobSet(ctx, g, "off").Status.Conditions, jobsetstatus.StageAdmitted)
			g.Expect(said.Reason).To(Equal(pending.Reason))
			g.Expect(said.Message).To(And(ContainSubstring(pending.Message), ContainSubstring("set its spec.active to true"), ContainSubstring("jobset-off-")))
		}).WithContext(ctx).Should(Succeed())
		t.setActive(ctx, "off", "main", true)
		t.expectStages(ctx, "off", "main=ready")
	}, SpecTimeout(specTimeout))

	It("nothing about terminating pods of a stage that was gated again", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		t.patchQueue(ctx, `{"metadata":{"annotations":{"`+apis.StageAdmissionAnnotation+`":"Greedy"}}}`)
		js := slowly(inOrder(t.newJobSet("greedy",
			replicatedJob{name: "launcher", cpus: "1", gpus: "5"}, replicatedJob{name: "trainer", pods: 3, cpus: "1", gpus: "5"},
		)), "3s")
		submit(ctx, js)
		t.expectSays(ctx, "greedy", "Deadlocked", `stage 2/2 "trainer"`)
		t.evict(ctx, "greedy", "launcher", workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPreemption, Message: "Preempted by the test"})
		t.setActive(ctx, "greedy", "launcher", false)
		Eventually(func(g Gomega) {
			g.Expect(stateOf(t.workload(ctx, g, "greedy", "launcher"))).To(HaveKeyWithValue("QuotaReserved", "False"))
			w := t.workload(ctx, g, "greedy", "trainer")
			g.Expect(w.Annotations).To(HaveKey(apis.AdmissionGatedByAnnotation))
			said := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
			g.Expect([]string{said.Reason, said.Message}).To(Equal([]string{kueue.WorkloadAdmissionGated, "Not in the queue: a stage of its JobSet was deactivated; " +
				"set spec.active of the quota Workload of that stage to true to requeue"}))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
	}, SpecTimeout(specTimeout))

	It("that its queue is stopped, which spec.suspend does not show", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		t.patchQueue(ctx, `{"spec":{"stopPolicy":"Hold"}}`)
		submit(ctx, t.newJobSet("held", replicatedJob{name: "main", cpus: "1"}))
		t.expectSays(ctx, "held", "QueueStopped", "is stopped (stopPolicy: Hold)")
	}, SpecTimeout(specTimeout))

	It("that the priority class of the pending JobSet does not exist", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "0")
		js := submit(ctx, t.newJobSet("lost", replicatedJob{name: "main", gpus: "5"}))
		t.expectSays(ctx, "lost", "ExceedsMaxQuota", "can never fit")
		class := t.namespace + "-class"
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+apis.PriorityClassLabel+`":"`+class+`"}}}`))
		Expect(env.Admin.Patch(ctx, js, patch)).To(Succeed())
		t.expectSays(ctx, "lost", "ExceedsMaxQuota", `names WorkloadPriorityClass "`+class+`", which does not exist: the JobSet keeps priority 0; create the class`)
		Eventually(func(g Gomega) { g.Expect(t.notesOf(ctx, g, "lost", "PriorityKept")).To(HaveLen(1)) }).WithContext(ctx).Should(Succeed())
		created := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Value: 7}
		Expect(env.Admin.Create(ctx, created)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Admin.Delete(ctx, created)).To(Succeed()) })
		Eventually(func(g Gomega) {
			said := apimeta.FindStatusCondition(t.jobSet(ctx, g, "lost").Status.Conditions, jobsetstatus.StageAdmitted)
			g.Expect(said.Message).NotTo(ContainSubstring(class))
			g.Expect(*t.workload(ctx, g, "lost", "main").Spec.Priority).To(BeEquivalentTo(7))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("which Jobs of an evicted stage are kept", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.newJobSet("kept", replicatedJob{name: "main", replicas: 2, cpus: "1", gpus: "5"}))
		t.expectStages(ctx, "kept", "main=ready")
		t.endJob(ctx, "kept-main-0", corev1.PodSucceeded)
		Eventually(func(g Gomega) {
			g.Expect(t.jobs(ctx, g, "main")).To(ContainElement(HaveField("Status.CompletionTime", Not(BeNil()))))
		}).WithContext(ctx).Should(Succeed())
		t.patchQueue(ctx, `{"spec":{"stopPolicy":"HoldAndDrain"}}`)
		Eventually(func(g Gomega) {
			g.Expect(t.notesOf(ctx, g, "kept", "StageRequeued")).To(ConsistOf(ContainSubstring("keeps 1 Job that succeeded")))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))
})

var _ = Describe("The owner of a ResourceFlavor that is being deleted", func() {
	It("reads which ClusterQueues use the flavor, as do the owners of these ClusterQueues", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
		Expect(env.Admin.Create(ctx, flavor)).To(Succeed())
		queue := clusterQueue(t.namespace+"-own", "1", "0")
		queue.Spec.ResourceGroups = queue.Spec.ResourceGroups[:1]
		queue.Spec.ResourceGroups[0].Flavors[0].Name = kueue.ResourceFlavorReference(flavor.Name)
		Expect(env.Admin.Create(ctx, queue)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(flavor), flavor)).To(Succeed())
			g.Expect(flavor.Finalizers).NotTo(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		Expect(env.Admin.Delete(ctx, flavor)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(queue), queue)).To(Succeed())
			active := apimeta.FindStatusCondition(queue.Status.Conditions, kueue.ClusterQueueActive)
			g.Expect(active).NotTo(BeNil())
			g.Expect(active.Message).To(ContainSubstring("being deleted, and still admitted to: ResourceFlavor " + flavor.Name))
			var list eventsv1.EventList
			g.Expect(env.Admin.List(ctx, &list)).To(Succeed())
			g.Expect(list.Items).To(ContainElement(And(HaveField("Regarding.Name", flavor.Name), HaveField("Reason", "InUse"),
				HaveField("Note", ContainSubstring(queue.Name)))))
		}).WithContext(ctx).Should(Succeed())
		Expect(env.Admin.Delete(ctx, queue)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(flavor), flavor))).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A namespace that is deleted with a JobSet in the middle of its stages", func() {
	It("is deleted without an error in the manager's log", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.deepSpeed("gone"))
		submit(ctx, t.deepSpeed("gone-too"))
		t.end(ctx, "gone", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "gone", "launcher=ready", "trainer-node=ready")
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
		Expect(env.Admin.Delete(ctx, namespace)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace))).To(BeTrue())
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		newTeam(ctx, "1", "0").awaitHandled(ctx) // so that the manager has handled the last deletions
		log, err := os.ReadFile(manager.Log)
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.SplitSeq(string(log), "\n") {
			if strings.Contains(line, t.namespace) {
				Expect(line).NotTo(ContainSubstring(`"level":"error"`))
			}
		}
	}, SpecTimeout(specTimeout))
})

// The manager of this suite serves no visibility API.
var _ = Describe("tranche explain and tranche pending, without the visibility API", func() {
	It("show the states of all stages to a user who may only read the namespace, and what to use instead", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.deepSpeed("first"))
		t.end(ctx, "first", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "first", "launcher=ready", "trainer-node=ready")
		submit(ctx, t.fineTune("second"))
		t.end(ctx, "second", "initializer", corev1.PodSucceeded)
		t.expectSays(ctx, "second", "WaitingForQuota", "0 of 20 free")
		Expect(env.Admin.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "researcher"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "researcher"}},
		})).To(Succeed())
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(env.Plane.Kubeconfig(kubeconfig, "researcher")).To(Succeed())
		tranche := func(args ...string) string {
			out, _ := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), append(args, "--kubeconfig", kubeconfig, "-n", t.namespace)...).CombinedOutput()
			return string(out)
		}
		Eventually(func() string { return tranche("explain", "first") }).WithContext(ctx).Should(And(
			ContainSubstring("JobSet "+t.namespace+"/first\n  Admitted: "),
			MatchRegexp(`(?s)stage initializer .*has finished: Succeeded.*stage launcher .*is admitted.*stage trainer-node .*is admitted`),
		))
		Expect(tranche("explain", "second")).To(And(
			MatchRegexp(`(?s)stage initializer .*has finished: Succeeded.*stage trainer-node .*\n  WaitingForQuota: .*0\s+of\s+20\s+free`),
			ContainSubstring("Queue positions and holders of quota are not shown: the visibility API is not"),
		))
		Expect(tranche("explain", "third")).To(ContainSubstring(`has no JobSet, Job or quota Workload "third"`))
		Expect(tranche("pending")).To(And(ContainSubstring("forbidden"), ContainSubstring("kubectl get kwl"), ContainSubstring("tranche explain JOBSET")))
	}, SpecTimeout(specTimeout))
})

// expectSays waits until the condition StageAdmitted of a JobSet is False with this reason, and its message contains this text.
func (t team) expectSays(ctx context.Context, name, reason, text string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		said := apimeta.FindStatusCondition(t.jobSet(ctx, g, name).Status.Conditions, jobsetstatus.StageAdmitted)
		g.Expect(said).NotTo(BeNil())
		g.Expect([]string{string(said.Status), said.Reason}).To(Equal([]string{string(metav1.ConditionFalse), reason}), said.Message)
		g.Expect(said.Message).To(ContainSubstring(text))
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// notesOf returns the messages of the Events on a JobSet with one reason.
func (t team) notesOf(ctx context.Context, g Gomega, name, reason string) []string {
	var list eventsv1.EventList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace))).To(Succeed())
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.Kind == "JobSet" && e.Regarding.Name == name && e.Reason == reason {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

func (t team) patchQueue(ctx context.Context, patch string) {
	GinkgoHelper()
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
	Expect(env.Admin.Patch(ctx, queue, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}
