package e2e_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/controlplane"
)

var _ = Describe("A launcher with GPUs", func() {
	It("waits for the quota of the stage that it starts, which is then reserved until it is ready", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.newJobSet("hog", replicatedJob{name: "main", cpus: "1", gpus: "5"}))
		t.expectStages(ctx, "hog", "main=ready")

		js := t.deepSpeed("launch")
		js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations[controlplane.FakeReadyAfter] = "1h"
		submit(ctx, js)
		t.end(ctx, "launch", "initializer", corev1.PodSucceeded)
		t.expectSays(ctx, "launch", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "(coStart): needs 20 nvidia.com/gpu of flavor a100: 15 of 20 free")
		Expect(t.pods(ctx, Default, "launcher")).To(BeEmpty())

		t.end(ctx, "hog", "main", corev1.PodSucceeded)
		t.expectStages(ctx, "launch", "initializer=Succeeded", "launcher=admitted", "trainer-node=closed")
		t.expectReserved(ctx, "20")
		submit(ctx, t.newJobSet("late", replicatedJob{name: "main", cpus: "1", gpus: "5"}))
		t.expectSays(ctx, "late", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "15 reserved for other stages")
		t.expectNow(ctx, "launch", "launcher=admitted", "trainer-node=closed") // the engine has decided about a later JobSet

		makeReady(ctx, t, "launcher")
		t.expectStages(ctx, "launch", "launcher=ready", "trainer-node=ready")
		Expect(t.pods(ctx, Default, "main")).To(HaveEach(HaveField("Status.Phase", corev1.PodSucceeded)))
	}, SpecTimeout(specTimeout))
})
