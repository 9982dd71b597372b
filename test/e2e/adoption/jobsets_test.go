package adoption_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/workloadname"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

// newJobSet returns a JobSet of the queue with a ReplicatedJob for each number of pods. The pods run until the test ends them.
func newJobSet(name string, pods ...int32) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "queue"}}}
	for i, n := range pods {
		r := sample.ReplicatedJob([]string{"first", "second"}[i], n, sample.Amounts("cpu", "1"), map[string]string{controlplane.FakeExit: controlplane.FakeExitNever})
		if i > 0 {
			r.DependsOn = []jobset.DependsOn{{Name: "first", Status: jobset.DependencyReady}}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, r)
	}
	return js
}

// leaveJobSetWorkload creates the Workload that Kueue leaves for a JobSet of one ReplicatedJob that is pending.
func leaveJobSetWorkload(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	owner := workloadname.Owner{Kind: "JobSet", Group: jobset.GroupVersion.Group, Name: js.Name, UID: js.UID}
	Expect(env.Admin.Create(ctx, &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: workloadname.Of(owner, ""), Labels: map[string]string{apis.JobUIDLabel: string(js.UID)},
			Finalizers:      []string{kueue.ResourceInUseFinalizerName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobset.GroupVersion.WithKind("JobSet"))},
		},
		Spec: kueue.WorkloadSpec{QueueName: "queue", Active: new(true), Priority: new(int32(0)), PodSets: []kueue.PodSet{{
			Name: "first", Count: 1, Template: *js.Spec.ReplicatedJobs[0].Template.Spec.Template.DeepCopy(),
		}}},
	})).To(Succeed())
}

func jobSetOf(ctx context.Context, g Gomega, name string) *jobsetapi.JobSet {
	var js jobsetapi.JobSet
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &js)).To(Succeed())
	return &js
}

// createJobSets creates JobSets that run, "whole" and "drained", and one that is suspended, and returns the pods of the first two.
func createJobSets(ctx context.Context) map[string][]types.UID {
	GinkgoHelper()
	pods := map[string][]types.UID{}
	for _, js := range []*jobsetapi.JobSet{newJobSet("whole", 1, 2), newJobSet("drained", 1)} {
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		Eventually(func(g Gomega) {
			pods[js.Name] = runningPods(ctx, g, jobset.JobSetNameKey, js.Name)
			g.Expect(pods[js.Name]).To(HaveLen(map[string]int{"whole": 3, "drained": 1}[js.Name]))
		}).WithContext(ctx).Should(Succeed())
		if js.Name == "drained" {
			leaveJobSetWorkload(ctx, js)
		}
	}
	idle := newJobSet("idle", 1)
	idle.Spec.Suspend = new(true)
	Expect(env.Admin.Create(ctx, idle)).To(Succeed())
	return pods
}

// expectJobSetsAdopted waits until the JobSets that run are charged as a whole.
func expectJobSetsAdopted(ctx context.Context, pods map[string][]types.UID) {
	GinkgoHelper()
	for name, want := range pods {
		Eventually(func(g Gomega) {
			js := jobSetOf(ctx, g, name)
			w := workloadOf(ctx, g, js.UID)
			g.Expect(w.Labels).To(HaveKeyWithValue(apis.JobSetLabel, name))
			g.Expect(w.Annotations).To(HaveKey(apis.AdoptedAnnotation))
			g.Expect(quotaworkload.Gates(w)).To(BeEmpty())
			g.Expect(quotaworkload.IsTrue(w, kueue.WorkloadAdmitted)).To(BeTrue())
			g.Expect(w.Spec.PodSets).To(HaveLen(len(js.Spec.ReplicatedJobs)))
		}).WithContext(ctx).Should(Succeed(), name)
		Expect(runningPods(ctx, Default, jobset.JobSetNameKey, name)).To(Equal(want), "pods of %s were replaced", name)
	}
}

// expectJobSetsReported waits until the JobSets say that they are admitted, or why not. While managers are killed after each write, that can take minutes.
func expectJobSetsReported(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{"whole", "drained"} {
		Eventually(func(g Gomega) {
			conditions := jobSetOf(ctx, g, name).Status.Conditions
			g.Expect(apimeta.IsStatusConditionTrue(conditions, "StageAdmitted")).To(BeTrue(), "%v", conditions)
		}).WithContext(ctx).Should(Succeed(), name)
	}
	Eventually(func(g Gomega) {
		c := apimeta.FindStatusCondition(jobSetOf(ctx, g, "idle").Status.Conditions, "StageAdmitted")
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Message).To(ContainSubstring("is suspended: its Jobs are not held"))
	}).WithContext(ctx).Should(Succeed())
}

// expectJobSetsGuarded checks that no user gets pods of these JobSets past quota.
func expectJobSetsGuarded(ctx context.Context) {
	GinkgoHelper()
	patch := func(name, patch string, of types.PatchType) error {
		return env.Admin.Patch(ctx, jobSetOf(ctx, Default, name), client.RawPatch(of, []byte(patch)))
	}
	Expect(patch("idle", `{"spec":{"suspend":false}}`, types.MergePatchType)).To(MatchError(ContainSubstring("it cannot be resumed")))
	Expect(patch("whole", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}}}`, types.MergePatchType)).To(MatchError(ContainSubstring("cannot be changed")))
	resized := `[{"op":"replace","path":"/spec/replicatedJobs/0/template/spec/parallelism","value":9}]`
	Expect(patch("whole", resized, types.JSONPatchType)).To(MatchError(ContainSubstring("cannot be changed")))
}

// expectPodsGuarded checks that no tenant detaches what uses quota: Jobs from adopted JobSets, and pods from their Jobs.
func expectPodsGuarded(ctx context.Context) {
	GinkgoHelper()
	tenant := tenantClient(ctx)
	orphan := client.PropagationPolicy(metav1.DeletePropagationOrphan)
	for _, name := range []string{"whole", "idle"} {
		Expect(tenant.Delete(ctx, jobSetOf(ctx, Default, name), orphan, client.DryRunAll)).To(MatchError(ContainSubstring("must be deleted with it")), name)
	}
	Expect(tenant.Delete(ctx, jobOf(ctx, Default, "runs"), orphan, client.DryRunAll)).To(MatchError(ContainSubstring("must be deleted with it")))
	Expect(tenant.Delete(ctx, jobOf(ctx, Default, "free"), orphan, client.DryRunAll)).To(Succeed())

	for _, name := range []string{"whole-first-0", "whole-second-0", "idle-first-0"} {
		Eventually(func(g Gomega) {
			g.Expect(jobOf(ctx, g, name).Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldAdopted))
		}).WithContext(ctx).Should(Succeed(), name)
		job := jobOf(ctx, Default, name)
		Expect(tenant.Delete(ctx, job.DeepCopy(), orphan, client.DryRunAll)).To(MatchError(ContainSubstring("must be deleted with it")), name)
		for patch, want := range map[string]string{
			`{"spec":{"parallelism":9,"completions":9}}`:                  "quota is charged for the number of pods",
			`{"metadata":{"ownerReferences":null}}`:                       "must be deleted with it",
			`{"metadata":{"labels":{"tranche.dev/hold":null}}}`:           "only Tranche's manager",
			`{"metadata":{"labels":{"jobset.sigs.k8s.io/job-key":null}}}`: "leave them as the JobSet",
		} {
			err := tenant.Patch(ctx, job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
			Expect(err).To(MatchError(ContainSubstring(want)), "%s of %s", patch, name)
		}
	}
	started := jobOf(ctx, Default, "idle-first-0")
	Expect(tenant.Patch(ctx, started, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`)))).To(Succeed())
	Expect(*started.Spec.Suspend).To(BeTrue(), "the Job of a suspended JobSet was started")
}

// expectJobSetsEnd ends one JobSet, and lets an administrator deactivate the other one.
func expectJobSetsEnd(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		w := workloadOf(ctx, g, jobSetOf(ctx, g, "drained").UID)
		w.Spec.Active = new(false)
		g.Expect(env.Admin.Update(ctx, w)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(ptr.Deref(jobSetOf(ctx, g, "drained").Spec.Suspend, false)).To(BeTrue())
		var list kueue.WorkloadList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{apis.JobSetLabel: "drained"})).To(Succeed())
		g.Expect(list.Items).To(BeEmpty())
		g.Expect(runningPods(ctx, g, jobset.JobSetNameKey, "drained")).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
	Eventually(func(g Gomega) {
		endPods(ctx, g, jobset.JobSetNameKey, "whole")
		js := jobSetOf(ctx, g, "whole")
		g.Expect(apimeta.IsStatusConditionTrue(js.Status.Conditions, string(jobset.JobSetCompleted))).To(BeTrue())
		w := workloadOf(ctx, g, js.UID)
		g.Expect(quotaworkload.IsTrue(w, kueue.WorkloadFinished)).To(BeTrue())
		g.Expect(w.Finalizers).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
}
