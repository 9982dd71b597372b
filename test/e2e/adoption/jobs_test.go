package adoption_test

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadname"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

// newJob returns a Job of the queue whose pods run until the test ends them.
func newJob(name string, pods int32) *batchv1.Job {
	r := sample.ReplicatedJob("main", pods, sample.Amounts("cpu", "1"), map[string]string{controlplane.FakeExit: controlplane.FakeExitNever})
	spec := r.Template.Spec
	spec.Parallelism, spec.Completions, spec.CompletionMode = &pods, &pods, nil
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "queue"}}, Spec: spec}
}

// asReleasedByKueue adds to a Job what Kueue adds when it releases the Job.
func asReleasedByKueue(job *batchv1.Job) *batchv1.Job {
	job.Spec.Template.Labels = map[string]string{apis.PodSetLabel: "main", apis.ClusterQueueLabel: "before", apis.LocalQueueLabel: "queue"}
	job.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "spot"}
	return job
}

// leaveWorkload creates the Workload that Kueue leaves for a Job. It holds quota if the Job runs.
func leaveWorkload(ctx context.Context, job *batchv1.Job, pods int32) {
	GinkgoHelper()
	leaveWorkloadNamed(ctx, workloadname.Of(workloadname.Owner{Kind: "Job", Group: batchv1.GroupName, Name: job.Name, UID: job.UID}, ""), job, pods)
}

// leaveWorkloadNamed creates one with another name: a slice of an elastic Job, or one that is prebuilt.
func leaveWorkloadNamed(ctx context.Context, name string, job *batchv1.Job, pods int32) {
	GinkgoHelper()
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{apis.JobUIDLabel: string(job.UID)}, Finalizers: []string{kueue.ResourceInUseFinalizerName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: kueue.WorkloadSpec{QueueName: "queue", Active: new(true), Priority: new(int32(0)), PodSets: []kueue.PodSet{{
			Name: kueue.DefaultPodSetName, Count: pods, Template: *newJob(job.Name, pods).Spec.Template.DeepCopy(),
		}}},
	}
	if *job.Spec.Suspend {
		w.Spec.PodSets[0].Template.Spec.NodeSelector = job.Spec.Template.Spec.NodeSelector
	}
	Expect(env.Admin.Create(ctx, w)).To(Succeed())
	if *job.Spec.Suspend {
		return
	}
	admitAsKueue(ctx, w)
}

// admitAsKueue admits a Workload of one pod set to the flavor "spot".
func admitAsKueue(ctx context.Context, w *kueue.Workload) {
	GinkgoHelper()
	pods := w.Spec.PodSets[0].Count
	w.Status.Admission = &kueue.Admission{ClusterQueue: "cluster", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: w.Spec.PodSets[0].Name, Count: &pods, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot"},
		ResourceUsage: sample.Amounts("cpu", fmt.Sprint(pods)),
	}}}
	for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: condition, LastTransitionTime: metav1.Now(), Message: "by Kueue",
		})
	}
	Expect(env.Admin.Status().Update(ctx, w)).To(Succeed())
}

func jobOf(ctx context.Context, g Gomega, name string) *batchv1.Job {
	var job batchv1.Job
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &job)).To(Succeed())
	return &job
}

// workloadOf returns the one quota Workload of an object, besides growths.
func workloadOf(ctx context.Context, g Gomega, owner types.UID) *kueue.Workload {
	var list kueue.WorkloadList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{apis.JobUIDLabel: string(owner)})).To(Succeed())
	list.Items = slices.DeleteFunc(list.Items, func(w kueue.Workload) bool { return w.Labels[apis.GrowthLabel] != "" })
	g.Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}

// runningPods returns the UIDs of the running pods with a label, sorted.
func runningPods(ctx context.Context, g Gomega, label, value string) []types.UID {
	var list corev1.PodList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{label: value})).To(Succeed())
	var uids []types.UID
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero() {
			uids = append(uids, pod.UID)
		}
	}
	slices.Sort(uids)
	return uids
}

// endPods ends the running pods with a label.
func endPods(ctx context.Context, g Gomega, label, value string) {
	var list corev1.PodList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{label: value})).To(Succeed())
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Status.Phase == corev1.PodRunning {
			pod.Status.Phase = corev1.PodSucceeded
			g.Expect(env.Admin.Status().Update(ctx, pod)).To(Succeed())
		}
	}
}

// expectJobsEnd ends the pods of Jobs until these have finished.
func expectJobsEnd(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Eventually(func(g Gomega) {
			endPods(ctx, g, batchv1.JobNameLabel, name)
			job := jobOf(ctx, g, name)
			g.Expect(job.Status.CompletionTime).NotTo(BeNil())
			w := workloadOf(ctx, g, job.UID)
			g.Expect(quotaworkload.IsTrue(w, kueue.WorkloadFinished)).To(BeTrue())
			g.Expect(w.Finalizers).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed(), name)
	}
}

// reserved returns the reserved cpu of the ClusterQueue.
func reserved(ctx context.Context, g Gomega) string {
	var queue kueue.ClusterQueue
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Name: "cluster"}, &queue)).To(Succeed())
	g.Expect(queue.Status.FlavorsReservation).To(HaveLen(2))
	total := queue.Status.FlavorsReservation[0].Resources[0].Total.DeepCopy()
	total.Add(queue.Status.FlavorsReservation[1].Resources[0].Total)
	return total.String()
}

// createQueues creates a queue with 2 cpu on one flavor and 4 on another.
func createQueues(ctx context.Context) {
	GinkgoHelper()
	Expect(env.CreateNamespace(ctx, namespace, nil)).To(Succeed())
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu"}}
	for _, name := range []string{"reserved", "spot"} {
		cpus := map[string]string{"reserved": "2", "spot": "4"}[name]
		Expect(env.Admin.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": name}}})).To(Succeed())
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{
			Name: kueue.ResourceFlavorReference(name), Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: sample.Amounts("cpu", cpus)["cpu"]}},
		})
	}
	Expect(env.Admin.Create(ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{group},
		Preemption: &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority},
	}})).To(Succeed())
	Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "queue"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cluster"},
	})).To(Succeed())
}

var _ = Describe("Jobs and JobSets that were there before Tranche", Ordered, func() {
	pods, podsOfJobSets := map[string][]types.UID{}, map[string][]types.UID{}
	var podsOfGroup []types.UID

	BeforeAll(func(ctx SpecContext) {
		createQueues(ctx)
		for _, job := range []*batchv1.Job{asReleasedByKueue(newJob("runs", 4)), asReleasedByKueue(newJob("known", 2)), asReleasedByKueue(newJob("other", 2)), newJob("plain", 1), asReleasedByKueue(newJob("owned", 1)), asReleasedByKueue(newJob("exempt", 1))} {
			if job.Name == "owned" {
				job.Labels[apis.PrebuiltWorkloadKey] = "prebuilt-workload"
			}
			Expect(env.Admin.Create(ctx, job)).To(Succeed())
			Eventually(func(g Gomega) {
				pods[job.Name] = runningPods(ctx, g, batchv1.JobNameLabel, job.Name)
				g.Expect(pods[job.Name]).To(HaveLen(int(*job.Spec.Parallelism)))
			}).WithContext(ctx).Should(Succeed())
			switch job.Name {
			case "known":
				leaveWorkload(ctx, job, 2)
			case "other": // Kueue has admitted it with fewer pods
				leaveWorkload(ctx, job, 1)
			case "owned":
				leaveWorkloadNamed(ctx, "prebuilt-workload", job, 1)
				w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prebuilt-workload"}}
				Expect(env.Admin.Patch(ctx, w, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`)))).To(Succeed())
			}
		}
		pods["elastic"] = createElastic(ctx)
		waits := newJob("waits", 1)
		waits.Spec.Suspend = new(true)
		waits.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "spot"} // whose quota is used
		Expect(env.Admin.Create(ctx, waits)).To(Succeed())
		leaveWorkload(ctx, waits, 1)
		free := newJob("free", 1)
		free.Labels = nil
		Expect(env.Admin.Create(ctx, free)).To(Succeed())
		podsOfJobSets = createJobSets(ctx)
		podsOfGroup = leavePods(ctx)
		auditing, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		var err error
		auditor, err = invariants.Start(auditing, env.Admin)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Install(ctx)).To(Succeed())
	}, NodeTimeout(specTimeout))

	It("are charged as they run, and queued if they are suspended, whatever write the manager is killed after", func(ctx SpecContext) {
		expectPodsOfKueueGuarded(ctx)
		proxy, err := env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(proxy.Stop)
		managers, err := env.StartShortLived(proxy, testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { _, err := managers.Stop(); return err })
		for name, want := range pods {
			Eventually(func(g Gomega) {
				job := jobOf(ctx, g, name)
				g.Expect(job.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued))
				w := workloadOf(ctx, g, job.UID)
				g.Expect(w.Labels).To(HaveKeyWithValue(apis.JobLabel, name))
				g.Expect(w.Annotations).To(HaveKey(apis.AdoptedAnnotation))
				g.Expect(quotaworkload.Gates(w)).To(BeEmpty())
				g.Expect(quotaworkload.IsTrue(w, kueue.WorkloadAdmitted)).To(BeTrue())
				g.Expect(w.Spec.PodSets[0].Count).To(Equal(int32(len(want))))
				assignment := w.Status.Admission.PodSetAssignments[0]
				flavor := kueue.ResourceFlavorReference("spot")
				if name == "plain" {
					flavor = "reserved"
				}
				g.Expect(assignment.Flavors).To(HaveKeyWithValue(corev1.ResourceCPU, flavor))
				g.Expect(assignment.ResourceUsage.Cpu().Value()).To(Equal(int64(len(want))))
			}).WithContext(ctx).Should(Succeed(), name)
		}
		Eventually(func(g Gomega) {
			job := jobOf(ctx, g, "waits")
			g.Expect(job.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued))
			g.Expect(workloadOf(ctx, g, job.UID).Labels).To(HaveKeyWithValue(apis.JobLabel, "waits"))
		}).WithContext(ctx).Should(Succeed())
		expectJobSetsAdopted(ctx, podsOfJobSets)
		expectPodsAdopted(ctx, podsOfGroup)
		killed, err := managers.Spare()
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("killed managers", killed)
		Expect(killed).To(BeNumerically(">", 9))

		By("charging them beyond quota")
		Eventually(func(g Gomega) { g.Expect(reserved(ctx, g)).To(Equal("19")) }).WithContext(ctx).Should(Succeed())
		for name, want := range pods {
			Expect(runningPods(ctx, Default, batchv1.JobNameLabel, name)).To(Equal(want), "pods of %s were replaced", name)
			Expect(jobOf(ctx, Default, name).Status.Conditions).To(BeEmpty(), "%s was suspended", name)
		}
		Expect(*jobOf(ctx, Default, "waits").Spec.Suspend).To(BeTrue())
		Expect(jobOf(ctx, Default, "free").Labels).NotTo(HaveKey(apis.HoldLabel))
		Expect(*jobOf(ctx, Default, "free").Spec.Suspend).To(BeFalse())

		expectGroupEvicts(ctx)
		expectElasticAdopted(ctx)
		By("replacing a prebuilt Workload")
		Expect(jobOf(ctx, Default, "owned").Labels).NotTo(HaveKey(apis.PrebuiltWorkloadKey))
		prebuilt := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prebuilt-workload"}}
		Expect(apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(prebuilt), prebuilt))).To(BeTrue())

		By("letting no tenant resize or detach one")
		for _, patch := range []string{
			`{"spec":{"parallelism":9}}`, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}}}`, `{"metadata":{"labels":{"tranche.dev/hold":null}}}`,
		} {
			Expect(env.Admin.Patch(ctx, jobOf(ctx, Default, "runs"), client.RawPatch(types.MergePatchType, []byte(patch)))).NotTo(Succeed(), patch)
		}

		expectJobSetsQueued(ctx)
		expectJobSetsGuarded(ctx)
		expectPodsGuarded(ctx)

		By("suspending one, which queues again without what Kueue has added")
		Expect(env.Admin.Patch(ctx, jobOf(ctx, Default, "known"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`)))).To(Succeed())
		Eventually(func(g Gomega) {
			job := jobOf(ctx, g, "known")
			g.Expect(job.Spec.Template.Spec.NodeSelector).To(BeEmpty())
			g.Expect(job.Spec.Template.Labels).NotTo(HaveKey(apis.PodSetLabel))
			w := workloadOf(ctx, g, job.UID)
			g.Expect(w.Annotations).NotTo(HaveKey(apis.AdoptedAnnotation))
			g.Expect(quotaworkload.HoldsQuota(w)).To(BeFalse())
			g.Expect(reserved(ctx, g)).To(Equal("15"))
		}).WithContext(ctx).Should(Succeed())

		By("ending the others")
		expectJobsEnd(ctx, "runs", "other", "owned", "waits")
		expectJobSetsComplete(ctx, "idle")
		expectElasticGrows(ctx)
		expectJobsEnd(ctx, "elastic")
		expectExemptionEnds(ctx, "exempt")
		expectJobsEnd(ctx, "exempt", "plain")
		expectJobSetsEnd(ctx)
		Eventually(func(g Gomega) { g.Expect(reserved(ctx, g)).To(Equal("0")) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("are reported, and not adopted, if they came around the policies later", func(ctx SpecContext) { expectNewerReported(ctx) }, SpecTimeout(specTimeout))
})
