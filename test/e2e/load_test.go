package e2e_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

var _ = Describe("A queue", beginsFirst, func() {
	It("drains 50 JobSets of 3 stages on quota for 10", func(ctx SpecContext) {
		const jobSets = 50
		t := newTeam(ctx, "20", "50")
		for i := range jobSets {
			submit(ctx, inOrder(t.newJobSet(fmt.Sprintf("load-%03d", i),
				replicatedJob{name: "init", cpus: "1", runs: "200ms"},
				replicatedJob{name: "train", cpus: "1", gpus: "5", runs: "200ms"},
				replicatedJob{name: "eval", cpus: "1", gpus: "1", runs: "200ms"},
			), rule(jobsetapi.SucceededStatus, "init"), rule(jobsetapi.SucceededStatus, "train")))
		}
		started := time.Now()
		Eventually(func(g Gomega) {
			var list jobsetapi.JobSetList
			g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace))).To(Succeed())
			completed := 0
			for i := range list.Items {
				if list.Items[i].Status.TerminalState == string(jobset.JobSetCompleted) {
					completed++
				}
			}
			g.Expect(completed).To(Equal(jobSets))
		}).WithContext(ctx).WithTimeout(4*time.Minute).WithPolling(time.Second).Should(Succeed(), func() string { return t.describe(ctx) })
		AddReportEntry("drained", fmt.Sprintf("%d JobSets in %s", jobSets, time.Since(started).Round(time.Second)))
		Eventually(func(g Gomega) { g.Expect(t.reserved(ctx, g)).To(Equal("0")) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})
