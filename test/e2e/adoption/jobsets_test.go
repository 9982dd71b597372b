package adoption_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

func jobSetOwner(js *jobsetapi.JobSet) workloadname.Owner {
	return workloadname.Owner{Kind: "JobSet", Group: jobset.GroupVersion.Group, Name: js.Name, UID: js.UID}
}

// leaveJobSetWorkload creates the Workload that Kueue leaves for a JobSet of one ReplicatedJob that is pending.
func leaveJobSetWorkload(ctx context.Context, js *jobsetapi.JobSet, name string) {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{apis.JobUIDLabel: string(js.UID)},
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

// createJobSets creates JobSets that run, and "idle" which is suspended, and returns the pods of the others.
func createJobSets(ctx context.Context) map[string][]types.UID {
	GinkgoHelper()
	pods := map[string][]types.UID{}
	for _, js := range []*jobsetapi.JobSet{newJobSet("whole", 1, 2), newJobSet("drained", 1), newJobSet("prebuilt", 1)} {
		if js.Name == "prebuilt" {
			js.Labels[apis.PrebuiltWorkloadKey] = js.Name
		}
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		Eventually(func(g Gomega) {
			pods[js.Name] = runningPods(ctx, g, jobset.JobSetNameKey, js.Name)
			g.Expect(pods[js.Name]).To(HaveLen(map[string]int{"whole": 3, "drained": 1, "prebuilt": 1}[js.Name]))
		}).WithContext(ctx).Should(Succeed())
		switch js.Name {
		case "drained":
			leaveJobSetWorkload(ctx, js, workloadname.Of(jobSetOwner(js), ""))
		case "prebuilt":
			leaveJobSetWorkload(ctx, js, js.Name)
		}
	}
	idle := newJobSet("idle", 1, 1)
	idle.Spec.ReplicatedJobs[1].DependsOn[0].Status = jobset.DependencyComplete
	idle.Spec.Suspend = new(true)
	Expect(env.Admin.Create(ctx, idle)).To(Succeed())
	leaveJobSetWorkload(ctx, idle, workloadname.Of(jobSetOwner(idle), ""))
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
			g.Expect(apimeta.IsStatusConditionTrue(js.Status.Conditions, "StageAdmitted")).To(BeTrue(), "%v", js.Status.Conditions)
		}).WithContext(ctx).Should(Succeed(), name)
		Expect(runningPods(ctx, Default, jobset.JobSetNameKey, name)).To(Equal(want), "pods of %s were replaced", name)
	}
}

// expectJobSetsQueued waits until the suspended JobSet is queued.
func expectJobSetsQueued(ctx context.Context) {
	GinkgoHelper()
	By("queueing one that is suspended, one quota Workload for each stage")
	Eventually(func(g Gomega) {
		js := jobSetOf(ctx, g, "idle")
		g.Expect(js.Spec.ReplicatedJobs).To(HaveEach(HaveField("Template.Spec.Template.Annotations", HaveKeyWithValue(apis.HeldAnnotation, "true"))))
		c := apimeta.FindStatusCondition(js.Status.Conditions, "StageAdmitted")
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Message).To(ContainSubstring("waits for quota in ClusterQueue cluster"))
		var list kueue.WorkloadList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{apis.JobUIDLabel: string(js.UID)})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(2))
		g.Expect(list.Items).To(HaveEach(HaveField("Labels", HaveKeyWithValue(apis.JobSetLabel, "idle"))))
	}).WithContext(ctx).Should(Succeed())
}

// expectJobSetsGuarded checks that no user gets pods of these JobSets past quota.
func expectJobSetsGuarded(ctx context.Context) {
	GinkgoHelper()
	patch := func(name, patch string, of types.PatchType) error {
		return env.Admin.Patch(ctx, jobSetOf(ctx, Default, name), client.RawPatch(of, []byte(patch)))
	}
	Expect(patch("idle", `{"spec":{"suspend":false}}`, types.MergePatchType)).To(MatchError(ContainSubstring("only Tranche's manager starts a queued JobSet")))
	unmarked := `[{"op":"remove","path":"/spec/replicatedJobs/0/template/spec/template/metadata/annotations/tranche.dev~1held"}]`
	Expect(patch("idle", unmarked, types.JSONPatchType)).To(MatchError(ContainSubstring("cannot be changed")))
	forged := newJobSet("forged", 1)
	forged.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations[apis.HeldAnnotation] = "true"
	Expect(env.Admin.Create(ctx, forged)).To(MatchError(ContainSubstring("only Tranche's manager writes tranche.dev/held")))
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

	for name, label := range map[string]string{"whole-first-0": apis.HoldAdopted, "whole-second-0": apis.HoldAdopted, "idle-first-0": apis.HoldValue} {
		Eventually(func(g Gomega) {
			g.Expect(jobOf(ctx, g, name).Labels).To(HaveKeyWithValue(apis.HoldLabel, label))
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
	created := newJob("idle-second-0", 1) // as the JobSet controller creates it
	created.Labels = map[string]string{jobset.JobSetUIDKey: string(jobSetOf(ctx, Default, "idle").UID)}
	created.Spec.Template.Annotations[apis.HeldAnnotation] = "true"
	Expect(tenant.Create(ctx, created.DeepCopy(), client.DryRunAll)).To(MatchError(ContainSubstring("only the JobSet controller creates the Jobs")))
	Expect(env.Admin.Create(ctx, created, client.DryRunAll)).To(Succeed())
	Expect(created.Spec.Suspend).To(HaveValue(BeTrue()))
	Expect(created.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldValue))
	started := jobOf(ctx, Default, "idle-first-0")
	Expect(tenant.Patch(ctx, started, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`)))).To(Succeed())
	Expect(*started.Spec.Suspend).To(BeTrue(), "the Job of a suspended JobSet was started")

	var list corev1.PodList // of a Job that has no label of Kueue in its pod template
	Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: "plain"})).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	for _, patch := range []string{
		`{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":null}}}`, `{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"other"}}}`,
		`{"metadata":{"ownerReferences":null}}`, `{"metadata":{"labels":null,"ownerReferences":null}}`,
		fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"keeper","uid":"a"},{"apiVersion":"batch/v1","kind":"Job","name":"plain","uid":%q,"controller":true}]}}`,
			list.Items[0].OwnerReferences[0].UID),
	} {
		err := tenant.Patch(ctx, list.Items[0].DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		Expect(err).To(MatchError(ContainSubstring("only the Job controller assigns a pod to a Job")), patch)
	}
	Expect(tenant.Patch(ctx, list.Items[0].DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"ml"}}}`)), client.DryRunAll)).To(Succeed())
}

func changeWorkload(ctx context.Context, jobSet string, change func(*kueue.Workload)) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		w := workloadOf(ctx, g, jobSetOf(ctx, g, jobSet).UID)
		change(w)
		g.Expect(env.Admin.Update(ctx, w)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// awaitSuspended waits until a JobSet has no pod.
func awaitSuspended(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(jobSetOf(ctx, g, name).Spec.Suspend).To(HaveValue(BeTrue()))
		g.Expect(runningPods(ctx, g, jobset.JobSetNameKey, name)).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
}

// expectJobSetsEnd stops a JobSet in each of the ways there are, and lets the others end.
func expectJobSetsEnd(ctx context.Context) {
	GinkgoHelper()
	By("letting an administrator deactivate one, which its user resumes")
	changeWorkload(ctx, "drained", func(w *kueue.Workload) { w.Spec.Active = new(false) })
	awaitSuspended(ctx, "drained")
	Eventually(func(g Gomega) {
		js := jobSetOf(ctx, g, "drained")
		g.Expect(js.Annotations).To(HaveKey(apis.StartedAnnotation))
		g.Expect(js.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations).To(HaveKey(apis.HeldAnnotation))
		g.Expect(quotaworkload.HoldsQuota(workloadOf(ctx, g, js.UID))).To(BeFalse())
	}).WithContext(ctx).Should(Succeed())
	Expect(jobSetOf(ctx, Default, "drained").Spec.Suspend).To(HaveValue(BeTrue()))
	Expect(env.Admin.Patch(ctx, jobSetOf(ctx, Default, "drained"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`)))).To(Succeed())

	By("evicting another one, which is queued again")
	expectJobSetsComplete(ctx, "prebuilt")
	setStopPolicy := func(policy kueue.StopPolicy) {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
		Expect(env.Admin.Patch(ctx, cq, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"stopPolicy":"`+string(policy)+`"}}`)))).To(Succeed())
	}
	setStopPolicy(kueue.HoldAndDrain)
	awaitSuspended(ctx, "whole")
	Eventually(func(g Gomega) {
		g.Expect(jobSetOf(ctx, g, "whole").Annotations).NotTo(HaveKey(apis.StartedAnnotation))
	}).WithContext(ctx).Should(Succeed())
	setStopPolicy(kueue.None)

	By("ending all")
	expectJobSetsComplete(ctx, "whole", "drained", "idle")
}

// expectJobSetsComplete ends the pods of JobSets until these have completed, in whatever order they get quota.
func expectJobSetsComplete(ctx context.Context, names ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, name := range names {
			endPods(ctx, g, jobset.JobSetNameKey, name)
		}
		for _, name := range names {
			js := jobSetOf(ctx, g, name)
			g.Expect(apimeta.IsStatusConditionTrue(js.Status.Conditions, string(jobset.JobSetCompleted))).To(BeTrue(), "%s: %v", name, js.Status.Conditions)
			var list kueue.WorkloadList
			g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{apis.JobUIDLabel: string(js.UID)})).To(Succeed())
			for i := range list.Items {
				g.Expect(quotaworkload.IsTrue(&list.Items[i], kueue.WorkloadFinished)).To(BeTrue())
				g.Expect(list.Items[i].Finalizers).To(BeEmpty())
			}
		}
	}).WithContext(ctx).Should(Succeed())
}
