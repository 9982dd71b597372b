package node_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

var _ = Describe("A staged JobSet", func() {
	It("runs in containers, and on fake nodes beside them", func(ctx SpecContext) {
		t := newTeam(ctx, "2")
		js := t.jobSet("train",
			role{name: "initializer"},
			role{name: "trainer", pods: 2, args: []string{"-say=trains", "-run=2s"}, after: []jobset.DependsOn{{Name: "initializer", Status: jobset.DependencyComplete}}},
			role{name: "evaluator", args: []string{"-run=1s"}, after: []jobset.DependsOn{{Name: "trainer", Status: jobset.DependencyComplete}}},
		)
		initializer := &js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
		initializer.Containers[0].Resources = corev1.ResourceRequirements{Requests: sample.Amounts("cpu", "1")}
		initializer.NodeSelector = map[string]string{"pool": "fake"}
		submit(ctx, js)

		trainers := t.expectRunning(ctx, 2)
		for _, pod := range trainers {
			Expect(pod.Spec.NodeName).To(Equal(controlplane.RealNodeName))
		}
		Eventually(func(g Gomega) {
			logs, err := env.KubectlOutput(ctx, "--namespace", t.namespace, "logs", trainers[0].Name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(logs)).To(Equal("trains\n"))
		}).WithContext(ctx).Should(Succeed())
		t.expectCondition(ctx, "train", string(jobset.JobSetCompleted), metav1.ConditionTrue)
		for _, pod := range t.pods(ctx, Default) {
			Expect(pod.Status.Phase).To(Equal(corev1.PodSucceeded), pod.Name)
		}
	}, SpecTimeout(specTimeout))
})
