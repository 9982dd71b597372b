package kueue_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

// admissionOwner is the field manager that Kueue's scheduler admits as.
const admissionOwner = "kueue-admission"

var jobsetKind = jobset.GroupVersion.WithKind("JobSet")

// newJob returns a Job that asks for 1 GPU per pod in the queue of a tenant, and runs for a second.
func newJob(namespace string, pods int32) *batchv1.Job {
	template := sample.ReplicatedJob("main", pods, sample.Amounts(string(gpu), "1"), map[string]string{controlplane.FakeRunTime: "1"}).Template
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job", Labels: map[string]string{apis.QueueLabel: "queue"}}, Spec: template.Spec,
	}
}

// newJobSet returns a JobSet that is in no queue, with one pod that runs for a second.
func newJobSet(namespace, name string) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{sample.ReplicatedJob("main", 1, sample.Amounts(string(gpu), "1"), nil)}
	return js
}

// newWorkload creates a quota Workload for 2 pods with 1 GPU each, which Kueue has not made.
func newWorkload(ctx context.Context, namespace string, change func(*kueue.Workload)) *kueue.Workload {
	GinkgoHelper()
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "made-by-others"}, Spec: kueue.WorkloadSpec{QueueName: "queue"}}
	template := sample.ReplicatedJob("main", 2, sample.Amounts(string(gpu), "1"), nil).Template.Spec.Template
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: template}}
	if change != nil {
		change(w)
	}
	Expect(env.Admin.Create(ctx, w)).To(Succeed())
	return w
}

// workloadOf waits for the quota Workload of a Job.
func workloadOf(ctx context.Context, job *batchv1.Job) *kueue.Workload {
	GinkgoHelper()
	var found *kueue.Workload
	Eventually(func(g Gomega) {
		var list kueue.WorkloadList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(job.Namespace))).To(Succeed())
		for i := range list.Items {
			if metav1.IsControlledBy(&list.Items[i], job) {
				found = &list.Items[i]
			}
		}
		g.Expect(found).NotTo(BeNil())
	}).WithContext(ctx).Should(Succeed())
	return found
}

// admission is the status by which an engine admits a quota Workload with one pod set, with these conditions set to True.
func admission(w *kueue.Workload, queue kueue.ClusterQueueReference, conditions ...string) *kueue.WorkloadStatus {
	podSet := w.Spec.PodSets[0]
	usage := podSet.Template.Spec.Containers[0].Resources.Requests[gpu]
	usage.Mul(int64(podSet.Count))
	status := &kueue.WorkloadStatus{Admission: &kueue.Admission{ClusterQueue: queue, PodSetAssignments: []kueue.PodSetAssignment{{
		Name: podSet.Name, Count: &podSet.Count,
		Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: flavor}, ResourceUsage: corev1.ResourceList{gpu: usage},
	}}}}
	for _, name := range conditions {
		status.Conditions = append(status.Conditions, condition(name, metav1.ConditionTrue))
	}
	return status
}

func withEviction(status *kueue.WorkloadStatus) *kueue.WorkloadStatus {
	status.Conditions = append(status.Conditions, condition(kueue.WorkloadEvicted, metav1.ConditionTrue))
	return status
}

func condition(name string, status metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: "Test", Message: "written by a test", LastTransitionTime: metav1.Now()}
}

// apply writes a status as the scheduler of Kueue does.
func apply(ctx context.Context, w *kueue.Workload, status *kueue.WorkloadStatus) {
	GinkgoHelper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kueue.SchemeGroupVersion.String(), "kind": "Workload",
		"metadata": map[string]any{"namespace": w.Namespace, "name": w.Name, "uid": string(w.UID)}, "status": content,
	}}
	configuration := client.ApplyConfigurationFromUnstructured(object)
	Expect(env.Admin.Status().Apply(ctx, configuration, client.FieldOwner(admissionOwner), client.ForceOwnership)).To(Succeed())
}

// haveCheck matches the state of an AdmissionCheck of a quota Workload.
func haveCheck(name kueue.AdmissionCheckReference, state kueue.CheckState) OmegaMatcher {
	return HaveField("Status.AdmissionChecks", ContainElement(And(HaveField("Name", name), HaveField("State", state))))
}

// answer writes the state of an AdmissionCheck as its controller does.
func answer(ctx context.Context, w *kueue.Workload, name kueue.AdmissionCheckReference, state kueue.CheckState) {
	GinkgoHelper()
	writeStatus(ctx, w, func() {
		for i := range w.Status.AdmissionChecks {
			if c := &w.Status.AdmissionChecks[i]; c.Name == name {
				c.State, c.Message, c.LastTransitionTime = state, "written by a test", metav1.Now()
			}
		}
	})
}

// clearReservation does what the controller of a job does once the pods of an evicted Workload are gone.
func clearReservation(ctx context.Context, w *kueue.Workload) {
	GinkgoHelper()
	writeStatus(ctx, w, func() {
		w.Status.Admission = nil
		meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", Message: "written by a test",
		})
		meta.SetStatusCondition(&w.Status.Conditions, condition(kueue.WorkloadRequeued, metav1.ConditionTrue))
	})
}

// writeStatus changes the current status of an object, which Kueue may write at the same time.
func writeStatus(ctx context.Context, object client.Object, change func()) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		change()
		g.Expect(env.Admin.Status().Update(ctx, object)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// newCheck creates an active AdmissionCheck whose controller is the test.
func newCheck(ctx context.Context, name string) {
	GinkgoHelper()
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/test"}}
	Expect(env.Admin.Create(ctx, ac)).To(Succeed())
	writeStatus(ctx, ac, func() {
		ac.Status.Conditions = []metav1.Condition{condition(kueue.AdmissionCheckActive, metav1.ConditionTrue)}
	})
}
