package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/test/testenv"
)

// onDemand and spot are the flavors of the ClusterQueues here.
const (
	onDemand = "lifecycle-on-demand"
	spot     = "lifecycle-spot"

	// gate prevents the engine from admitting Workloads whose quota the test reserves itself.
	gate = "example.com/lifecycle"
)

// startManager runs the manager, behind a proxy that counts its writes, until the specs of the container have finished.
func startManager(ctx context.Context, settings map[string]any) *testenv.Proxy {
	GinkgoHelper()
	createFlavors(ctx)
	proxy, err := env.StartProxy()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Stop)
	manager, err := env.StartManager(ctx, testenv.ManagerOptions{Server: proxy.URL(), Settings: settings})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return manager.Stop() })
	return proxy
}

func createFlavors(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{onDemand, spot} {
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
		Expect(client.IgnoreAlreadyExists(env.adminClient.Create(ctx, flavor))).To(Succeed())
	}
}

// A tenant is a namespace with a LocalQueue "queue" on a ClusterQueue of its own.
type tenant struct {
	namespace    string
	clusterQueue *kueue.ClusterQueue
	localQueue   *kueue.LocalQueue
}

// newQueue makes a tenant whose ClusterQueue has 8 cpu of each flavor, and these checks.
func newQueue(ctx context.Context, checks ...kueue.AdmissionCheckStrategyRule) *tenant {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "lifecycle-"}}
	Expect(env.adminClient.Create(ctx, namespace)).To(Succeed())
	quota := []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("8")}}
	t := &tenant{
		namespace: namespace.Name,
		clusterQueue: &kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: namespace.Name},
			Spec: kueue.ClusterQueueSpec{
				NamespaceSelector: &metav1.LabelSelector{},
				ResourceGroups: []kueue.ResourceGroup{{
					CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
					Flavors:          []kueue.FlavorQuotas{{Name: onDemand, Resources: quota}, {Name: spot, Resources: quota}},
				}},
			},
		},
		localQueue: &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "queue"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(namespace.Name)},
		},
	}
	if len(checks) > 0 {
		t.clusterQueue.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: checks}
	}
	Expect(env.adminClient.Create(ctx, t.clusterQueue)).To(Succeed())
	Expect(env.adminClient.Create(ctx, t.localQueue)).To(Succeed())
	DeferCleanup(t.clear)
	return t
}

// clear deletes the objects of a tenant, so that the ClusterQueue can be deleted.
func (t *tenant) clear(ctx SpecContext) {
	Expect(env.adminClient.DeleteAllOf(ctx, &kueue.Workload{}, client.InNamespace(t.namespace))).To(Succeed())
	Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, t.clusterQueue))).To(Succeed())
}

// workload makes a quota Workload of one pod with so many cpu.
func (t *tenant) workload(name, cpus string) *kueue.Workload {
	request := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name},
		Spec: kueue.WorkloadSpec{
			QueueName: "queue",
			PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "main", Image: "example.com/main", Resources: corev1.ResourceRequirements{Requests: request}}},
			}}}},
		},
	}
}

func create(ctx context.Context, w *kueue.Workload) *kueue.Workload {
	GinkgoHelper()
	Expect(env.adminClient.Create(ctx, w)).To(Succeed())
	return w
}

// reserved creates a quota Workload and reserves its quota as the engine would, since the given time. The engine itself ignores it.
func (t *tenant) reserved(ctx context.Context, name, flavor string, change ...func(*kueue.Workload)) *kueue.Workload {
	GinkgoHelper()
	w := t.workload(name, "1")
	w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: gate}
	for _, f := range change {
		f(w)
	}
	reserve(ctx, create(ctx, w), flavor, time.Now())
	return w
}

func reserve(ctx context.Context, w *kueue.Workload, flavor string, since time.Time, more ...metav1.Condition) {
	GinkgoHelper()
	usage, flavors := w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests, map[corev1.ResourceName]kueue.ResourceFlavorReference{}
	for name := range usage {
		flavors[name] = kueue.ResourceFlavorReference(flavor)
	}
	write(ctx, w, apis.AdmissionFieldManager, func(status *kueue.WorkloadStatus) {
		status.RequeueState = w.Status.RequeueState
		status.AdmissionChecks = w.Status.AdmissionChecks
		status.AccumulatedPastExecutionTimeSeconds = w.Status.AccumulatedPastExecutionTimeSeconds
		status.Admission = &kueue.Admission{
			ClusterQueue:      kueue.ClusterQueueReference(w.Namespace),
			PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1)), Flavors: flavors, ResourceUsage: usage}},
		}
		status.Conditions = append([]metav1.Condition{condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", since)}, more...)
	})
}

func admittedSince(since time.Time) metav1.Condition {
	return condition(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", since)
}

func condition(conditionType string, status metav1.ConditionStatus, reason string, since time.Time) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: "by the test", LastTransitionTime: metav1.NewTime(since)}
}

// write applies a status as a field manager.
func write(ctx context.Context, w *kueue.Workload, manager string, change func(*kueue.WorkloadStatus)) {
	GinkgoHelper()
	var status kueue.WorkloadStatus
	change(&status)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	Expect(err).NotTo(HaveOccurred())
	patch := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	patch.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	patch.SetNamespace(w.Namespace)
	patch.SetName(w.Name)
	Expect(env.adminClient.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), client.FieldOwner(manager), client.ForceOwnership)).To(Succeed())
}

// evict sets the condition Evicted on a Workload, as the engine would. It repeats the earlier fields of the field manager.
func evict(ctx context.Context, w *kueue.Workload, reason string) {
	GinkgoHelper()
	w = fresh(ctx, w)
	write(ctx, w, apis.AdmissionFieldManager, func(status *kueue.WorkloadStatus) {
		status.Admission, status.AdmissionChecks, status.RequeueState = w.Status.Admission, w.Status.AdmissionChecks, w.Status.RequeueState
		status.AccumulatedPastExecutionTimeSeconds = w.Status.AccumulatedPastExecutionTimeSeconds
		for _, c := range w.Status.Conditions {
			if c.Type == kueue.WorkloadQuotaReserved || c.Type == kueue.WorkloadAdmitted {
				status.Conditions = append(status.Conditions, c)
			}
		}
		status.Conditions = append(status.Conditions, condition(kueue.WorkloadEvicted, metav1.ConditionTrue, reason, time.Now()))
	})
}

// finishEviction waits until a quota Workload is evicted and releases its quota, as a job controller outside of Tranche does when the pods
// have terminated.
func finishEviction(ctx context.Context, w *kueue.Workload) {
	GinkgoHelper()
	var now *kueue.Workload
	Eventually(func(g Gomega) {
		now = fresh(ctx, w)
		g.Expect(quotaworkload.IsTrue(now, kueue.WorkloadEvicted)).To(BeTrue(), "conditions: %v", now.Status.Conditions)
	}).WithContext(ctx).Should(Succeed())
	if quotaworkload.HoldsQuota(now) {
		write(ctx, now, apis.AdmissionFieldManager, func(status *kueue.WorkloadStatus) { *status = workloadstatus.QuotaReleased(now, time.Now()) })
	}
}

// answer gives the state of an AdmissionCheck, as the controller of the check does: under a field manager of its own.
func answer(ctx context.Context, w *kueue.Workload, check kueue.AdmissionCheckState) {
	GinkgoHelper()
	check.LastTransitionTime = metav1.Now()
	write(ctx, w, "controller-of-"+string(check.Name), func(status *kueue.WorkloadStatus) {
		status.AdmissionChecks = []kueue.AdmissionCheckState{check}
	})
}

func fresh(ctx context.Context, w *kueue.Workload) *kueue.Workload {
	GinkgoHelper()
	var now kueue.Workload
	Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(w), &now)).To(Succeed())
	return &now
}

// setActive sets spec.active, as a user does.
func setActive(ctx context.Context, w *kueue.Workload, active bool) {
	GinkgoHelper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"active":%t}}`, active))
	Expect(env.adminClient.Patch(ctx, w.DeepCopy(), patch)).To(Succeed())
}

// state describes a Workload in words: conditions as Type=Status Reason, checks as check NAME=State, and the other requested fields.
func state(w *kueue.Workload) []string {
	var all []string
	for _, c := range w.Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	for i := range w.Status.AdmissionChecks {
		check := &w.Status.AdmissionChecks[i]
		text := fmt.Sprintf("check %s=%s", check.Name, check.State)
		if check.RetryCount != nil {
			text += fmt.Sprintf("/%d", *check.RetryCount)
		}
		all = append(all, text)
	}
	if w.Status.Admission != nil {
		all = append(all, "admission")
	}
	if !ptr.Deref(w.Spec.Active, true) {
		all = append(all, "inactive")
	}
	if s := w.Status.RequeueState; s != nil {
		all = append(all, fmt.Sprintf("count %d", ptr.Deref(s.Count, 0)))
		if s.RequeueAt != nil {
			all = append(all, "requeueAt")
		}
	}
	return all
}

// expect waits until a Workload has this state, where "no X" means fields that must be absent, and returns it.
func expect(ctx context.Context, w *kueue.Workload, want ...string) *kueue.Workload {
	GinkgoHelper()
	var now *kueue.Workload
	Eventually(func(g Gomega) {
		now = fresh(ctx, w)
		shown := state(now)
		for _, part := range want {
			if unwanted, negative := strings.CutPrefix(part, "no "); negative {
				g.Expect(slices.ContainsFunc(shown, func(s string) bool { return strings.HasPrefix(s, unwanted) })).To(BeFalse(), "%q in %q", unwanted, shown)
			} else {
				g.Expect(shown).To(ContainElement(part))
			}
		}
	}).WithContext(ctx).Should(Succeed())
	return now
}

// awaitHandled waits until the manager has handled all earlier writes: after that it admits a quota Workload whose quota it reserves itself, and one whose
// quota the test has reserved. Each watch delivers changes in their order. A spec that something does not happen calls it before its last check, which could
// not fail before the manager has had the opportunity.
func awaitHandled(ctx context.Context) {
	GinkgoHelper()
	t := newQueue(ctx)
	expect(ctx, create(ctx, t.workload("probe", "1")), "Admitted=True Admitted")
	expect(ctx, t.reserved(ctx, "reserved", onDemand), "Admitted=True Admitted")
}

// expectEvent waits for an Event on a Workload.
func expectEvent(ctx context.Context, w *kueue.Workload, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(w.Namespace))).To(Succeed())
		var reasons []string
		for i := range list.Items {
			if list.Items[i].Regarding.UID == w.UID {
				reasons = append(reasons, list.Items[i].Reason)
			}
		}
		g.Expect(reasons).To(ContainElement(reason))
	}).WithContext(ctx).Should(Succeed())
}

func find(w *kueue.Workload, conditionType string) *metav1.Condition {
	GinkgoHelper()
	c := apimeta.FindStatusCondition(w.Status.Conditions, conditionType)
	Expect(c).NotTo(BeNil(), conditionType)
	return c
}
