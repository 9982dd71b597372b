package groupstart_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/testenv"
)

// expectKept waits until all but the driver wait, and makes sure that they have not been released.
func expectKept(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	expectWaiting(ctx, js, 2)
	expectCondition(ctx, js, metav1.ConditionFalse, "WaitingForPods", "")
	released := strings.Fields(configMapOf(ctx, Default, js).Data["released"])
	for _, signal := range signalsOf(ctx, Default, js, "workers", "driver") {
		Expect(released).NotTo(ContainElement(signal), "the driver has not started")
	}
}

var _ = Describe("A manager that is killed while a group starts", func() {
	It("reaches the same final state after a crash at any write, also after a restart of the JobSet", func(ctx SpecContext) {
		Expect(leader.Stop()).To(Succeed())
		DeferCleanup(func() { leader, _ = startManager() })
		proxy, err := env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { proxy.Stop() })
		for n, struck := 1, true; struck; n++ {
			By(fmt.Sprintf("killing it after write %d", n))
			managers, err := env.StartRelay(proxy, n, testenv.ManagerOptions{})
			Expect(err).NotTo(HaveOccurred())
			js := inGroup(newJobSet(fmt.Sprintf("run-%d", n), role{name: "workers", replicas: 1, pods: 2}, role{name: "driver", replicas: 1, pods: 1, late: true}))
			js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
			Expect(env.Admin.Create(ctx, js)).To(Succeed())
			expectKept(ctx, js)
			startLate(ctx, js, "driver", 1)
			expectReleased(ctx, js, "workers", "driver")
			pod := podOf(ctx, js, "driver")
			endPod(ctx, pod, 0)
			pod.Status.Phase = corev1.PodFailed
			Expect(env.Admin.Status().Update(ctx, pod)).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(conditionOf(ctx, g, js).Reason).To(Equal("WaitingForPods"))
				jobs := jobsOf(ctx, g, js)
				g.Expect(jobs).To(HaveLen(2))
				for _, job := range jobs {
					g.Expect(job.Labels).To(HaveKeyWithValue(constants.RestartsKey, "1"))
				}
				for _, pod := range podsOf(ctx, g, js) {
					g.Expect(pod.Labels).To(HaveKeyWithValue(constants.RestartsKey, "1"))
				}
			}).WithContext(ctx).Should(Succeed())
			expectKept(ctx, js)
			startLate(ctx, js, "driver", 1)
			expectReleased(ctx, js, "workers", "driver")
			Expect(configMapOf(ctx, Default, js).Data).To(HaveKeyWithValue("pods", "3"))
			remove(ctx, js)
			struck, err = managers.Stop()
			Expect(err).NotTo(HaveOccurred())
			if n > 80 {
				Fail("the manager writes without end: " + fmt.Sprint(proxy.Writes()))
			}
		}
		GinkgoWriter.Println(strings.Join(proxy.Writes(), "\n"))
	}, SpecTimeout(2*muchPatience))
})
