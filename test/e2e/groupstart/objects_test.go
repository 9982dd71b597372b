package groupstart_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	configMapSuffix = "-group-scheduling"
	container       = "group-scheduling-init"
)

// A role is a ReplicatedJob. Its pods run their first init container as soon as they have a node, unless they are late: then a test decides
// when.
type role struct {
	name           string
	replicas, pods int32
	late           bool
}

// newJobSet makes a JobSet of pods that the Pod Security Standard "restricted" accepts, and that run until they are deleted.
func newJobSet(name string, roles ...role) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "ml"}}}
	for _, r := range roles {
		job := jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: r.name, Replicas: r.replicas}}
		fakes := map[string]string{controlplane.FakeInit: "waits", controlplane.FakeExit: controlplane.FakeExitNever}
		if r.late {
			fakes[controlplane.FakeReadyAfter] = "24h"
		}
		job.Template.Spec = batchv1.JobSpec{
			Parallelism: &r.pods, Completions: &r.pods, BackoffLimit: new(int32(0)), CompletionMode: new(batchv1.IndexedCompletion),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: fakes}, Spec: corev1.PodSpec{
				RestartPolicy:   corev1.RestartPolicyNever,
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				Containers: []corev1.Container{{
					Name: "main", Image: "example.com/train",
					Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				}},
			}},
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, job)
	}
	return js
}

// inGroup makes the main containers of these ReplicatedJobs, or of all, start together.
func inGroup(js *jobsetapi.JobSet, targets ...string) *jobsetapi.JobSet {
	js.Spec.GroupSchedulingConfig = &jobsetapi.GroupSchedulingConfig{TimeoutAfterSeconds: new(int32(300)), TargetReplicatedJobs: targets}
	return js
}

// submit creates a JobSet, and deletes it with all of its pods at the end of the spec.
func submit(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, js)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { remove(ctx, js) }, NodeTimeout(muchPatience))
}

func remove(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationForeground)))).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), &jobsetapi.JobSet{}))).To(BeTrue())
		g.Expect(podsOf(ctx, g, js)).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
}

func podsOf(ctx context.Context, g Gomega, js *jobsetapi.JobSet) []corev1.Pod {
	var pods corev1.PodList
	g.Expect(env.Admin.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{jobset.JobSetNameKey: js.Name})).To(Succeed())
	return pods.Items
}

func jobsOf(ctx context.Context, g Gomega, js *jobsetapi.JobSet) []batchv1.Job {
	var jobs batchv1.JobList
	g.Expect(env.Admin.List(ctx, &jobs, client.InNamespace(namespace), client.MatchingLabels{jobset.JobSetNameKey: js.Name})).To(Succeed())
	slices.SortFunc(jobs.Items, func(a, b batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	return jobs.Items
}

// isWaiting reports whether the init container of a pod runs.
func isWaiting(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container && s.State.Running != nil })
}

// expectWaiting waits until so many pods wait. To look at many costs the API server time that they need.
func expectWaiting(ctx context.Context, js *jobsetapi.JobSet, want int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		waiting := 0
		for _, pod := range podsOf(ctx, g, js) {
			if isWaiting(&pod) {
				waiting++
			}
		}
		g.Expect(waiting).To(Equal(want))
	}).WithContext(ctx).WithPolling(max(poll, time.Duration(want)*time.Millisecond)).Should(Succeed())
}

// signalsOf returns the entries that the pods of some ReplicatedJobs wait for.
func signalsOf(ctx context.Context, g Gomega, js *jobsetapi.JobSet, replicatedJobs ...string) []string {
	var signals []string
	for _, job := range jobsOf(ctx, g, js) {
		if slices.Contains(replicatedJobs, job.Labels[jobset.ReplicatedJobNameKey]) {
			signals = append(signals, string(job.UID)+"."+job.Spec.Template.Annotations[apis.ReleaseAnnotation])
		}
	}
	slices.Sort(signals)
	return signals
}

func configMapOf(ctx context.Context, g Gomega, js *jobsetapi.JobSet) *corev1.ConfigMap {
	var configMap corev1.ConfigMap
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: js.Name + configMapSuffix}, &configMap)).To(Succeed())
	return &configMap
}

// withoutStarted returns the data of the ConfigMap of a group without the entry started, while its next pods wait.
func withoutStarted(data map[string]string) map[string]string {
	data = maps.Clone(data)
	delete(data, "started")
	return data
}

// expectReleased waits until exactly the pods of these ReplicatedJobs, as they are now, may start. The file started is that of KEP-498.
func expectReleased(ctx context.Context, js *jobsetapi.JobSet, replicatedJobs ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		data := configMapOf(ctx, g, js).Data
		g.Expect(strings.Fields(data["released"])).To(Equal(signalsOf(ctx, g, js, replicatedJobs...)), told(ctx, g, js))
		g.Expect(data["started"]).NotTo(BeEmpty(), told(ctx, g, js))
	}).WithContext(ctx).Should(Succeed())
	expectCondition(ctx, js, metav1.ConditionTrue, "AllStarted", "")
}

func expectCondition(ctx context.Context, js *jobsetapi.JobSet, status metav1.ConditionStatus, reason, message string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		c := conditionOf(ctx, g, js)
		g.Expect(c.Reason).To(Equal(reason), c.Message)
		g.Expect(c.Status).To(Equal(status))
		g.Expect(c.Message).To(ContainSubstring(message))
	}).WithContext(ctx).Should(Succeed())
}

// conditionOf reads a JobSet, and returns the condition about its group.
func conditionOf(ctx context.Context, g Gomega, js *jobsetapi.JobSet) *metav1.Condition {
	g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
	c := apimeta.FindStatusCondition(js.Status.Conditions, "GroupScheduling")
	g.Expect(c).NotTo(BeNil())
	return c
}

// startLate starts the pods of a ReplicatedJob that are late: so many of them, or all there are.
// Pods that outlive their Job for a moment, until the garbage collector finds them, do not count.
func startLate(ctx context.Context, js *jobsetapi.JobSet, replicatedJob string, want int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		started := 0
		jobs := jobsOf(ctx, g, js)
		for _, pod := range podsOf(ctx, g, js) {
			orphan := !slices.ContainsFunc(jobs, func(job batchv1.Job) bool { return metav1.IsControlledBy(&pod, &job) })
			if pod.Labels[jobset.ReplicatedJobNameKey] != replicatedJob || pod.DeletionTimestamp != nil || orphan || started == want {
				continue
			}
			if !isWaiting(&pod) {
				g.Expect(pod.Spec.NodeName).NotTo(BeEmpty())
				pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
					Name: container, Image: "image", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				}}
				g.Expect(env.Admin.Status().Update(ctx, &pod)).To(Succeed())
			}
			started++
		}
		g.Expect(started).To(Equal(want))
	}).WithContext(ctx).Should(Succeed())
}

// endPod ends the init container of a pod with a code, and with it the pod if that is not 0.
func endPod(ctx context.Context, pod *corev1.Pod, code int32) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
			Name: container, Image: "image", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		}}
		if code != 0 {
			pod.Status.Phase = corev1.PodFailed
		}
		g.Expect(env.Admin.Status().Update(ctx, pod)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// podOf returns a pod of a ReplicatedJob that is not terminating.
func podOf(ctx context.Context, js *jobsetapi.JobSet, replicatedJob string) *corev1.Pod {
	GinkgoHelper()
	for _, pod := range podsOf(ctx, Default, js) {
		if pod.Labels[jobset.ReplicatedJobNameKey] == replicatedJob && pod.DeletionTimestamp == nil {
			return &pod
		}
	}
	Fail("there is no pod of " + replicatedJob)
	return nil
}

func suspend(ctx context.Context, js *jobsetapi.JobSet, suspended bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
		js.Spec.Suspend = &suspended
		g.Expect(env.Admin.Update(ctx, js)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

func expectEvent(ctx context.Context, js *jobsetapi.JobSet, reason, note string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
		var notes []string
		for _, event := range list.Items {
			if event.Regarding.UID == js.UID && event.Reason == reason {
				notes = append(notes, event.Note)
			}
		}
		g.Expect(notes).To(ContainElement(ContainSubstring(note)))
	}).WithContext(ctx).Should(Succeed())
}

// A jobsetSpec is a JobSet to be spoiled.
type jobsetSpec struct{ *jobsetapi.JobSet }

func (s *jobsetSpec) inOrder() {
	s.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
}

// told returns the conditions of a JobSet and the state of its pods, for the output of a failed test.
func told(ctx context.Context, g Gomega, js *jobsetapi.JobSet) string {
	var now jobsetapi.JobSet
	g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), &now)).To(Succeed())
	var b strings.Builder
	for _, c := range now.Status.Conditions {
		fmt.Fprintf(&b, "%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, pod := range podsOf(ctx, g, js) {
		fmt.Fprintf(&b, "%s on %q: %s, waiting %t\n", pod.Name, pod.Spec.NodeName, pod.Status.Phase, isWaiting(&pod))
	}
	return b.String()
}

// expectMetric waits until the manager that leads reports a line that begins so.
func expectMetric(ctx context.Context, line string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		body, err := testenv.ReadMetrics(ctx, leader.Metrics)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(body).To(ContainSubstring("\n" + line))
	}).WithContext(ctx).Should(Succeed())
}
