package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// smallTune is a JobSet with a CPU initializer and then one trainer with 5 GPUs.
func (t team) smallTune(name string) *jobsetapi.JobSet {
	return inOrder(t.newJobSet(name,
		replicatedJob{name: "initializer", cpus: "1"},
		replicatedJob{name: "trainer-node", cpus: "1", gpus: "5"},
	), rule(jobsetapi.SucceededStatus, "initializer"))
}

var _ = Describe("Under StrictFIFO a later stage that waits", func() {
	It("blocks the stages of later JobSets, whether these JobSets have started or not", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		queue := &kueue.ClusterQueue{}
		queue.Name = t.namespace
		Expect(env.Admin.Patch(ctx, queue, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"queueingStrategy":"StrictFIFO"}}`)))).To(Succeed())
		submit(ctx, t.smallTune("running"))
		t.end(ctx, "running", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "running", "trainer-node=ready")
		submit(ctx, t.fineTune("big"))
		t.expectStages(ctx, "big", "initializer=ready")
		submit(ctx, t.smallTune("begun"))
		t.expectStages(ctx, "begun", "initializer=ready")

		t.end(ctx, "big", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "big", "trainer-node=waiting")
		t.end(ctx, "begun", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "begun", "trainer-node=waiting")
		submit(ctx, t.smallTune("new"))
		t.expectStages(ctx, "new", "initializer=waiting", "trainer-node=closed")
		t.expectBehind(ctx, "begun", "trainer-node")
		t.expectBehind(ctx, "new", "initializer")
		t.expectNow(ctx, "begun", "trainer-node=waiting") // there is quota for it, and the engine has decided about a later stage

		t.end(ctx, "running", "trainer-node", corev1.PodSucceeded)
		t.expectStages(ctx, "big", "trainer-node=ready")
		t.end(ctx, "big", "trainer-node", corev1.PodSucceeded)
		t.expectOver(ctx, "big", jobset.JobSetCompleted)
		t.expectStages(ctx, "begun", "trainer-node=ready")
		t.expectStages(ctx, "new", "initializer=ready")
	}, SpecTimeout(specTimeout))
})

// expectBehind waits until the trainers of the JobSet big block a stage.
func (t team) expectBehind(ctx context.Context, jobSet, stage string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, c := range t.workload(ctx, g, jobSet, stage).Status.Conditions {
			if c.Type == kueue.WorkloadQuotaReserved {
				g.Expect(c.Message).To(ContainSubstring(`waits behind stage "trainer-node" of JobSet "big"`))
				return
			}
		}
		g.Expect(jobSet+"/"+stage).To(BeEmpty(), "has no condition QuotaReserved")
	}).WithContext(ctx).Should(Succeed())
}
