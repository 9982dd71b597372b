package node_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

// grace is longer than any container here goes on after it was asked to end.
const grace = 60

// A team is a namespace with a LocalQueue "queue" on a ClusterQueue of its own, and a meter.
type team struct {
	namespace string
	meter     *meter
}

var teams int

// newTeam makes a team with this quota of GPUs. Its meter runs until the end of the spec; then all that it has submitted is deleted.
func newTeam(ctx context.Context, gpus string) *team {
	GinkgoHelper()
	teams++
	t := &team{namespace: "team-" + strconv.Itoa(teams)}
	restricted := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	Expect(env.CreateNamespace(ctx, t.namespace, restricted)).To(Succeed())
	group := func(flavor kueue.ResourceFlavorReference, amounts corev1.ResourceList) (g kueue.ResourceGroup) {
		quotas := kueue.FlavorQuotas{Name: flavor}
		for name, amount := range amounts {
			g.CoveredResources = append(g.CoveredResources, name)
			quotas.Resources = append(quotas.Resources, kueue.ResourceQuota{Name: name, NominalQuota: amount})
		}
		g.Flavors = []kueue.FlavorQuotas{quotas}
		return g
	}
	Expect(env.Admin.Create(ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups:    []kueue.ResourceGroup{group("cpu", sample.Amounts("cpu", "100", "memory", "1Ti")), group("real", sample.Amounts(string(gpu), gpus))},
		Preemption:        &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority},
	}})).To(Succeed())
	Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "queue"},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.namespace)},
	})).To(Succeed())
	metering, cancel := context.WithCancel(suite)
	t.meter = startMeter(metering, t.namespace)
	DeferCleanup(func(ctx SpecContext) {
		cancel()
		<-t.meter.stopped
		defer t.clear(ctx)
		t.meter.expectPaid()
	}, NodeTimeout(patience))
	return t
}

// clear deletes all that a team has submitted, has its containers killed, and waits until its quota is released.
func (t *team) clear(ctx context.Context) {
	GinkgoHelper()
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	Expect(env.Admin.DeleteAllOf(ctx, &jobsetapi.JobSet{}, client.InNamespace(t.namespace), background)).To(Succeed())
	Expect(env.Admin.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(t.namespace), client.MatchingLabels{apis.HoldLabel: apis.HoldQueued}, background)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(t.namespace), client.GracePeriodSeconds(1))).To(Succeed())
		g.Expect(t.pods(ctx, g)).To(BeEmpty())
		g.Expect(containersOf(t.namespace)).To(BeEmpty())
		g.Expect(chargedTo(ctx, t.namespace)).To(BeZero())
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// A role is a ReplicatedJob, or a Job by itself, whose pods each have a container with a GPU.
type role struct {
	name string
	pods int32
	// args are flags of the payload.
	args []string
	// retries is the backoffLimit.
	retries int32
	after   []jobset.DependsOn
}

// template makes the ReplicatedJob of a role. Its pods meet the Pod Security Standard "restricted".
func (t *team) template(r role) jobsetapi.ReplicatedJob {
	made := sample.ReplicatedJob(r.name, max(r.pods, 1), sample.Amounts("cpu", "10m", string(gpu), "1"), nil)
	made.DependsOn, made.Template.Spec.BackoffLimit = r.after, &r.retries
	pod := &made.Template.Spec.Template.Spec
	pod.TerminationGracePeriodSeconds = new(int64(grace))
	pod.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	main := &pod.Containers[0]
	main.Image, main.Args = controlplane.PayloadImage, append([]string{"-team=" + t.namespace}, r.args...)
	main.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	return made
}

// jobSet makes a JobSet and does not submit it.
func (t *team) jobSet(name string, roles ...role) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "queue"}}}
	for _, r := range roles {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, t.template(r))
	}
	return js
}

// job makes a Job that is queued by itself, and does not submit it.
func (t *team) job(r role) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: r.name, Labels: map[string]string{apis.QueueLabel: "queue"}}, Spec: t.template(r).Template.Spec,
	}
}

func submit(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(env.Admin.Create(ctx, object)).To(Succeed())
	}
}

// lingering are the flags of a payload that goes on for so long after it is asked to end.
func lingering(d time.Duration) []string { return []string{"-linger=" + d.String()} }

func (t *team) pods(ctx context.Context, g Gomega) []corev1.Pod {
	var pods corev1.PodList
	g.Expect(env.Admin.List(ctx, &pods, client.InNamespace(t.namespace))).To(Succeed())
	return pods.Items
}

// running returns the pods whose main container runs, and that are not being deleted.
func (t *team) running(ctx context.Context, g Gomega) []corev1.Pod {
	var running []corev1.Pod
	for _, pod := range t.pods(ctx, g) {
		if pod.DeletionTimestamp == nil && len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Running != nil {
			running = append(running, pod)
		}
	}
	return running
}

// expectRunning waits until so many containers run, all of pods that are not being deleted, and returns the pods.
func (t *team) expectRunning(ctx context.Context, want int) []corev1.Pod {
	GinkgoHelper()
	var running []corev1.Pod
	Eventually(func(g Gomega) {
		running = t.running(ctx, g)
		g.Expect(running).To(HaveLen(want))
		g.Expect(containersOf(t.namespace)).To(HaveLen(want))
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
	return running
}

// expectCondition waits until a condition of a JobSet is true, or has another status, and returns its message.
func (t *team) expectCondition(ctx context.Context, jobSet, name string, status metav1.ConditionStatus) string {
	GinkgoHelper()
	var message string
	Eventually(func(g Gomega) {
		var js jobsetapi.JobSet
		g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: jobSet}, &js)).To(Succeed())
		condition := apimeta.FindStatusCondition(js.Status.Conditions, name)
		g.Expect(condition).NotTo(BeNil(), "%s: %+v", name, js.Status.Conditions)
		g.Expect(condition.Status).To(Equal(status), condition.Message)
		message = condition.Message
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
	return message
}

func (t *team) patch(ctx context.Context, object client.Object, name, change string) {
	GinkgoHelper()
	object.SetNamespace(t.namespace)
	object.SetName(name)
	Expect(env.Admin.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(change)))).To(Succeed())
}

// describe returns the state of a team, for failures.
func (t *team) describe(ctx context.Context) string {
	text := "state of " + t.namespace + ":\n"
	var workloads kueue.WorkloadList
	var jobs batchv1.JobList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&workloads, &jobs, &pods} {
		if err := env.Admin.List(ctx, list, client.InNamespace(t.namespace)); err != nil {
			return text + err.Error()
		}
	}
	for i := range workloads.Items {
		text += fmt.Sprintf("  Workload %s\n", workloads.Items[i].Name)
		for _, c := range workloads.Items[i].Status.Conditions {
			text += fmt.Sprintf("    %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		text += fmt.Sprintf("  Job %s suspend=%v active=%d terminating=%d\n", j.Name, ptr.Deref(j.Spec.Suspend, false), j.Status.Active, ptr.Deref(j.Status.Terminating, 0))
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		text += fmt.Sprintf("  Pod %s on %q %s deleted=%v: %+v %+v\n", p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp, p.Status.Conditions, p.Status.ContainerStatuses)
	}
	return text + fmt.Sprintf("  processes %v", containersOf(t.namespace))
}
