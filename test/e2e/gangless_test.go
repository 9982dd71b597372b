package e2e_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// This API server serves no objects for gangs: test/e2e/gang has another that does.
var _ = Describe("A gang whose scheduler's API is not installed", func() {
	It("gets its quota and runs, and a condition reports the missing API", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		queue := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "queue"}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+apis.GangProviderAnnotation+`":"Kube"}}}`))
		Expect(env.Admin.Patch(ctx, queue, patch)).To(Succeed())
		js := t.newJobSet("gang", replicatedJob{name: "main", pods: 2, cpus: "1"})
		js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
		submit(ctx, js)
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
			c := apimeta.FindStatusCondition(js.Status.Conditions, "GangScheduling")
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Reason).To(Equal("APINotServed"), c.Message)
			g.Expect(c.Message).To(ContainSubstring("turn on the feature gate GenericWorkload and to serve scheduling.k8s.io/v1alpha2"))
		}).WithContext(ctx).Should(Succeed())
		t.expectStages(ctx, "gang", "main=ready")
		t.end(ctx, "gang", "main", corev1.PodSucceeded)
		t.expectOver(ctx, "gang", jobset.JobSetCompleted)
	}, SpecTimeout(specTimeout))
})
