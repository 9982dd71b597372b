package node_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// The Job controller would start each of these pods while the one before it ends.
var _ = Describe("A pod that replaces another one starts when the containers of that one have ended", func() {
	It("when a user deletes a pod of a Job and one of a JobSet", func(ctx SpecContext) {
		// The Job controller waits for 10 seconds before it replaces the first pod that has failed, and longer for the next.
		slow := role{name: "main", pods: 2, retries: 6, args: lingering(12 * time.Second)}
		job, js := newTeam(ctx, "2"), newTeam(ctx, "2")
		submit(ctx, job.job(slow))
		submit(ctx, js.jobSet("main", slow))
		deleted := map[*team][]corev1.Pod{}
		for _, t := range []*team{job, js} {
			deleted[t] = t.expectRunning(ctx, 2)[:1]
			Expect(env.Admin.Delete(ctx, &deleted[t][0])).To(Succeed())
		}
		for t, pods := range deleted {
			t.expectGone(ctx, pods)
			t.expectRunning(ctx, 2)
		}
	}, SpecTimeout(specTimeout))

	It("when a user suspends a queued Job and resumes it while its pods terminate, again and again", func(ctx SpecContext) {
		t := newTeam(ctx, "2")
		queued := t.job(role{name: "main", pods: 2, args: lingering(lasting)})
		submit(ctx, queued)
		for range 2 {
			before := t.expectRunning(ctx, 2)
			t.patch(ctx, queued, "main", `{"spec":{"suspend":true}}`)
			t.expectTerminating(ctx, before)
			t.patch(ctx, queued, "main", `{"spec":{"suspend":false}}`)
			t.expectGone(ctx, before)
		}
		t.expectRunning(ctx, 2)
	}, SpecTimeout(specTimeout))
})
