package node_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

const (
	barrier = "group-scheduling-init"
	volume  = "group-scheduling"
)

var _ = Describe("A group that starts together", func() {
	It("waits in init containers for the answer of the manager, and finds the file started", func(ctx SpecContext) {
		t := newTeam(ctx, "3")
		submit(ctx, t.group("answered"))
		t.expectWaiting(ctx, 2)
		t.labelNode(ctx)
		t.expectRunning(ctx, 3)
		t.expectFound(ctx)
		Expect(t.logs(ctx, "workers", barrier)).To(BeEmpty(), "they print why they cannot ask the manager")
	}, SpecTimeout(specTimeout))

	It("reads the files of its ConfigMap if it cannot reach the manager, also if the pods began without that ConfigMap", func(ctx SpecContext) {
		t := newTeam(ctx, "3")
		js := t.group("filed")
		submit(ctx, js)
		t.expectWaiting(ctx, 2)
		Expect(manager.Stop()).To(Succeed())
		Expect(env.Admin.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: js.Name + "-" + volume}})).To(Succeed())
		t.labelNode(ctx)
		t.expectWaiting(ctx, 3)
		port, err := controlplane.FreePort()
		Expect(err).NotTo(HaveOccurred())
		silent, err := controlplane.FreePort()
		Expect(err).NotTo(HaveOccurred())
		manager = startManager(port, silent)
		t.expectRunning(ctx, 3)
		t.expectFound(ctx)
		Expect(t.logs(ctx, "workers", barrier)).To(ContainSubstring("the manager does not answer"))
		Expect(manager.Stop()).To(Succeed())
		manager = startManager(port, port)
	}, SpecTimeout(specTimeout))
})

// group makes a JobSet of workers and a driver that start together. The driver needs a label of the node, and all of them print a line when they find the
// file that KEP-498 names.
func (t *team) group(name string) *jobsetapi.JobSet {
	args := []string{"-await=/mnt/group-scheduling/started"}
	js := t.jobSet(name, role{name: "workers", pods: 2, args: args}, role{name: "driver", args: args})
	js.Spec.GroupSchedulingConfig = &jobsetapi.GroupSchedulingConfig{TimeoutAfterSeconds: new(int32(300))}
	for i := range js.Spec.ReplicatedJobs {
		pod := &js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: volume, MountPath: "/mnt/group-scheduling", ReadOnly: true}}
	}
	js.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.NodeSelector = map[string]string{t.namespace: "yes"}
	return js
}

// expectWaiting waits until so many init containers run, and checks that no main container does.
func (t *team) expectWaiting(ctx context.Context, want int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		waiting := 0
		for _, pod := range t.pods(ctx, g) {
			for _, status := range pod.Status.InitContainerStatuses {
				if status.Name == barrier && status.State.Running != nil {
					waiting++
				}
			}
		}
		g.Expect(waiting).To(Equal(want))
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
	Expect(containersOf(t.namespace)).To(BeEmpty())
}

// labelNode lets the driver of the team run on the real node.
func (t *team) labelNode(ctx context.Context) {
	GinkgoHelper()
	t.patch(ctx, &corev1.Node{}, controlplane.RealNodeName, `{"metadata":{"labels":{"`+t.namespace+`":"yes"}}}`)
}

// expectFound waits until all containers have found the file that says that the group has started.
func (t *team) expectFound(ctx context.Context) {
	GinkgoHelper()
	for _, replicatedJob := range []string{"workers", "driver"} {
		Eventually(func() string { return t.logs(ctx, replicatedJob, "main") }).WithContext(ctx).Should(ContainSubstring("found /mnt/group-scheduling/started\n"))
	}
}

func (t *team) logs(ctx context.Context, replicatedJob, container string) string {
	GinkgoHelper()
	logs, err := env.KubectlOutput(ctx, "--namespace", t.namespace, "logs", "--selector", jobset.ReplicatedJobNameKey+"="+replicatedJob, "--container", container)
	Expect(err).NotTo(HaveOccurred())
	return string(logs)
}
