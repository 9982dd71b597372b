package e2e_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

var _ = Describe("A JobSet with branches", func() {
	It("fits into the quota that a finished ReplicatedJob of a running stage releases", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "6")
		js := t.newJobSet("dag",
			replicatedJob{name: "a", cpus: "1", gpus: "6"},
			replicatedJob{name: "b", cpus: "1", gpus: "3"},
			replicatedJob{name: "c", cpus: "1", gpus: "3"},
			replicatedJob{name: "d", cpus: "1", gpus: "3"},
		)
		for i, after := range map[int][]jobset.DependsOn{
			1: {{Name: "a", Status: jobset.DependencyComplete}},
			2: {{Name: "a", Status: jobset.DependencyComplete}},
			3: {{Name: "b", Status: jobset.DependencyReady}, {Name: "c", Status: jobset.DependencyComplete}},
		} {
			js.Spec.ReplicatedJobs[i].DependsOn = after
		}
		submit(ctx, js)
		t.expectStages(ctx, "dag", "a=ready", "b.c=closed", "d=closed")
		t.end(ctx, "dag", "a", corev1.PodSucceeded)
		t.expectStages(ctx, "dag", "a=Succeeded", "b.c=ready", "d=closed")
		t.end(ctx, "dag", "c", corev1.PodSucceeded)
		t.expectStages(ctx, "dag", "b.c=ready", "d=ready")
		Eventually(func(g Gomega) { g.Expect(t.reserved(ctx, g)).To(Equal("6")) }).WithContext(ctx).Should(Succeed())
		t.end(ctx, "dag", "b", corev1.PodSucceeded)
		t.end(ctx, "dag", "d", corev1.PodSucceeded)
		t.expectOver(ctx, "dag", jobset.JobSetCompleted)
	}, SpecTimeout(specTimeout))
})
