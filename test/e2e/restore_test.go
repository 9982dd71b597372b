package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// The resources that Velero restores first, in its order. It restores others in the order of their names.
var restoredFirst = []string{"persistentvolumeclaims", "serviceaccounts", "secrets", "configmaps", "limitranges", "pods", "replicasets.apps", "endpoints", "services"}

// backUp reads all objects of the team's namespace, in the order in which Velero restores them.
func (t team) backUp(ctx context.Context) []unstructured.Unstructured {
	GinkgoHelper()
	out, err := env.KubectlOutput(ctx, "api-resources", "--namespaced", "--verbs=list,create", "-o", "name")
	Expect(err).NotTo(HaveOccurred())
	resources := slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return strings.HasPrefix(name, "events") })
	rank := func(name string) string {
		if i := slices.Index(restoredFirst, name); i >= 0 {
			return string(rune('0' + i))
		}
		return name
	}
	slices.SortFunc(resources, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
	out, err = env.KubectlOutput(ctx, "get", strings.Join(resources, ","), "-n", t.namespace, "-o", "json")
	Expect(err).NotTo(HaveOccurred())
	var list struct {
		Items []unstructured.Unstructured `json:"items"`
	}
	Expect(json.Unmarshal(out, &list)).To(Succeed())
	return list.Items
}

// restore creates the objects of a backup again as Velero does: without status, UIDs, owners and generated names, and none that has completed. It
// returns the created objects, and the messages of those that the API server refuses.
func (t team) restore(ctx context.Context, backup []unstructured.Unstructured) (created []unstructured.Unstructured, refused []string) {
	GinkgoHelper()
	for i := range backup {
		object := backup[i].DeepCopy()
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		completed, _, _ := unstructured.NestedString(object.Object, "status", "completionTime")
		if object.GetKind() == "Pod" && (phase == "Succeeded" || phase == "Failed") || object.GetKind() == "Job" && completed != "" {
			continue
		}
		unstructured.RemoveNestedField(object.Object, "status")
		for _, field := range []string{"generateName", "uid", "resourceVersion", "generation", "creationTimestamp", "ownerReferences", "managedFields"} {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
		for _, label := range []string{"controller-uid", batchv1.ControllerUidLabel} {
			if object.GetKind() == "Job" {
				unstructured.RemoveNestedField(object.Object, "spec", "selector", "matchLabels", label)
				unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "labels", label)
			}
		}
		if object.GetKind() == "Pod" {
			unstructured.RemoveNestedField(object.Object, "spec", "nodeName")
			unstructured.RemoveNestedField(object.Object, "spec", "priority")
		}
		switch err := env.Admin.Create(ctx, object); {
		case apierrors.IsAlreadyExists(err):
		case err != nil:
			refused = append(refused, fmt.Sprintf("%s %s: %v", object.GetKind(), object.GetName(), err))
		default:
			created = append(created, *object)
		}
	}
	return created, refused
}

// deleteNamespace deletes the namespace of the team with all of its objects, and creates it again.
func (t team) deleteNamespace(ctx context.Context) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
	Expect(env.Admin.Delete(ctx, namespace)).To(Succeed())
	Eventually(func() bool {
		return apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{}))
	}).WithContext(ctx).Should(BeTrue(), func() string { return t.describe(ctx) })
	Expect(env.CreateNamespace(ctx, t.namespace, nil)).To(Succeed())
}

// newGang creates a group of pods with one GPU each that run until the test ends them.
func (t team) newGang(ctx context.Context, name string, pods int) {
	GinkgoHelper()
	for i := range pods {
		spec := replicatedJob{cpus: "1", gpus: "1"}.build().Template.Spec.Template.Spec
		Expect(env.Admin.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: t.namespace, Name: fmt.Sprintf("%s-%d", name, i), Labels: map[string]string{apis.QueueLabel: "queue", apis.PodGroupNameLabel: name},
				Annotations: map[string]string{apis.PodGroupTotalCountAnnotation: fmt.Sprint(pods), controlplane.FakeGangExit: controlplane.FakeExitNever},
			},
			Spec: spec,
		})).To(Succeed())
	}
}

// newDeployment creates a Deployment of two queued pods.
func (t team) newDeployment(ctx context.Context, name string) *appsv1.Deployment {
	GinkgoHelper()
	spec := replicatedJob{cpus: "1"}.build().Template.Spec.Template.Spec
	spec.RestartPolicy = corev1.RestartPolicyAlways
	labels := map[string]string{"app": name}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "queue"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
	Expect(env.Admin.Create(ctx, deployment)).To(Succeed())
	return deployment
}

// expectAdmitted waits until exactly so many pods with a label exist, all of which run on the quota of an admission.
func (t team) expectAdmitted(ctx context.Context, label, value string, pods int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingLabels{label: value})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(pods))
		for _, pod := range list.Items {
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), pod.Name)
			g.Expect(pod.Annotations).To(HaveKey(apis.AdmissionAnnotation), pod.Name)
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

var _ = Describe("A namespace that is restored from a backup", func() {
	It("queues again from the first stages, and nothing of it runs without quota", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.fineTune("second-stage"))
		t.end(ctx, "second-stage", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "second-stage", "trainer-node=ready")
		submit(ctx, t.newJobSet("done", replicatedJob{name: "main", cpus: "1", runs: "100ms"}))
		t.expectOver(ctx, "done", jobset.JobSetCompleted)
		submit(ctx, t.newJobSet("evicted", replicatedJob{name: "main", cpus: "1"}))
		t.expectStages(ctx, "evicted", "main=ready")
		t.setActive(ctx, "evicted", "main", false)
		t.newGang(ctx, "gang", 2)
		t.expectAdmitted(ctx, apis.PodGroupNameLabel, "gang", 2)
		partly := t.newJob("partly", 4, "1")
		partly.Annotations = map[string]string{apis.MinParallelismAnnotation: "2"}
		Expect(env.Admin.Create(ctx, partly)).To(Succeed())
		t.expectJob(ctx, "partly", "ready")
		Expect(t.podsOfJob(ctx, Default, "partly")).To(HaveLen(3))
		submit(ctx, t.fineTune("first-stage"))
		t.expectStages(ctx, "first-stage", "initializer=ready")
		submit(ctx, t.newJobSet("waits", replicatedJob{name: "main", cpus: "1", gpus: "15"}))
		t.expectStages(ctx, "waits", "main=waiting")
		Expect(env.Admin.Create(ctx, t.newJob("queued", 2, "10"))).To(Succeed())
		t.expectJob(ctx, "queued", "waiting")
		deployment := t.newDeployment(ctx, "web")
		t.expectAdmitted(ctx, "app", "web", 2)
		Eventually(func(g Gomega) { g.Expect(t.podsOf(ctx, g, "evicted", "main")).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())

		DeferCleanup(func(ctx SpecContext) {
			Expect(env.Admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(t.namespace), client.HasLabels{apis.PodGroupMemberLabel})).To(Succeed())
		}, NodeTimeout(patience))
		By("restoring it while its queue is on hold")
		backup := t.backUp(ctx)
		t.deleteNamespace(ctx)
		t.patchQueue(ctx, `{"spec":{"stopPolicy":"Hold"}}`)
		created, refused := t.restore(ctx, backup)
		expectRefusedByKind(refused)
		expectRestoredHeld(created)
		t.expectStages(ctx, "second-stage", "initializer=waiting", "trainer-node=closed")
		t.expectStages(ctx, "first-stage", "initializer=waiting", "trainer-node=closed")
		for _, name := range []string{"done", "evicted", "waits"} {
			t.expectStages(ctx, name, "main=waiting")
		}
		t.expectJob(ctx, "partly", "waiting") // without what its admission had added
		t.expectJob(ctx, "queued", "waiting")
		job, _ := t.queued(ctx, Default, "partly")
		Expect(job.Spec.Parallelism).To(HaveValue(BeEquivalentTo(4)), "the size that its user wants")
		for _, pod := range t.pods(ctx, Default, "") {
			Expect(pod.Spec.SchedulingGates).NotTo(BeEmpty(), pod.Name)
		}

		By("deleting what had finished, and ending the hold")
		Expect(env.Admin.Delete(ctx, &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "done"}})).To(Succeed())
		t.patchQueue(ctx, `{"spec":{"stopPolicy":"None"}}`)
		t.expectAdmitted(ctx, apis.PodGroupNameLabel, "gang", 2)
		t.expectAdmitted(ctx, "app", "web", 2)
		Expect(env.Admin.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		t.drive(ctx, "second-stage", "first-stage", "waits", "evicted")
		for _, name := range []string{"partly", "queued"} {
			Eventually(func(g Gomega) {
				t.endPodsOf(ctx, g, name, 4)
				_, w := t.queued(ctx, g, name)
				g.Expect(stateOfStage(w)).To(Equal("Succeeded"))
			}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		}
		for _, w := range t.workloads(ctx, Default) {
			Expect(w.OwnerReferences).NotTo(BeEmpty(), "no quota Workload is from the backup")
		}
		t.expectReserved(ctx, "0")
		var gang corev1.PodList
		Expect(env.Admin.List(ctx, &gang, client.InNamespace(t.namespace), client.MatchingLabels{apis.PodGroupNameLabel: "gang"})).To(Succeed())
		Expect(gang.Items).To(HaveEach(HaveField("Status.Phase", corev1.PodSucceeded)))
	}, SpecTimeout(specTimeout))
})

// expectRefusedByKind checks that of a backup the objects are refused that controllers create, each with a message, and no others.
func expectRefusedByKind(refused []string) {
	GinkgoHelper()
	for _, refusal := range refused {
		Expect(refusal).To(Or(
			MatchRegexp(`^Workload .*only Tranche's manager adds, changes or removes labels .*; leave quota Workloads out of a restore`),
			MatchRegexp(`^Job (first-stage|second-stage|waits|evicted)-.*only the JobSet controller creates the Jobs of a JobSet, also of one that is restored from a backup`),
			MatchRegexp(`^Pod (first|second)-stage-.*only the Job controller creates the pods of a JobSet, also of one that is restored from a backup`),
			MatchRegexp(`^Pod partly-.*only the Job controller creates the pods of a queued Job`),
		))
	}
	for _, kind := range []string{"Workload ", "Job ", "Pod second-stage-", "Pod partly-"} {
		Expect(refused).To(ContainElement(HavePrefix(kind)))
	}
}

// expectRestoredHeld checks that objects that were just restored wait for quota.
func expectRestoredHeld(created []unstructured.Unstructured) {
	GinkgoHelper()
	kinds := map[string]int{}
	for i := range created {
		object := &created[i]
		kinds[object.GetKind()]++
		switch object.GetKind() {
		case "Pod":
			gates, _, err := unstructured.NestedSlice(object.Object, "spec", "schedulingGates")
			Expect(err).NotTo(HaveOccurred())
			Expect(gates).To(ConsistOf(map[string]any{"name": apis.PodAdmissionGate}), object.GetName())
			Expect(object.GetAnnotations()).NotTo(HaveKey(apis.AdmissionAnnotation))
		case "Job", "JobSet":
			suspended, _, err := unstructured.NestedBool(object.Object, "spec", "suspend")
			Expect(err).NotTo(HaveOccurred())
			Expect(suspended).To(BeTrue(), object.GetName())
			Expect(object.GetAnnotations()).NotTo(HaveKey(apis.StartedAnnotation), object.GetName())
		}
	}
	Expect(kinds).To(And(HaveKeyWithValue("JobSet", 5), HaveKeyWithValue("Job", 2), HaveKeyWithValue("Pod", 4), HaveKeyWithValue("Deployment", 1)))
}
