package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("A manager that starts with a backlog", func() {
	It("releases quota first, lets namespaces take turns, and stops at once", func(ctx SpecContext) {
		const jobSets = 120
		t, small := newTeam(ctx, "20", "20"), newTeam(ctx, "20", "20")
		finished, alone := sets.New("finished-1", "finished-2"), sets.New("alone-1", "alone-2", "alone-3")
		for name := range finished {
			submit(ctx, t.newJobSet(name, replicatedJob{name: "train", gpus: "10"}))
			t.end(ctx, name, "train", corev1.PodRunning)
		}
		Expect(manager.Stop()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			var err error
			manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
			Expect(err).NotTo(HaveOccurred())
		}, NodeTimeout(patience))
		for name := range finished {
			t.end(ctx, name, "train", corev1.PodSucceeded)
		}
		for i := range jobSets {
			submit(ctx, t.newJobSet(fmt.Sprintf("waits-%03d", i), replicatedJob{name: "train", gpus: "15"}))
		}
		for name := range alone {
			submit(ctx, small.newJobSet(name, replicatedJob{name: "train", gpus: "15"}))
		}

		written, err := env.Admin.Watch(ctx, &kueue.WorkloadList{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(written.Stop)
		first, err := env.LaunchManager(testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
		for created := 0; created < jobSets/4; {
			var e watch.Event
			Eventually(ctx, written.ResultChan()).Should(Receive(&e))
			workload, isWorkload := e.Object.(*kueue.Workload)
			Expect(isWorkload).To(BeTrue(), "%v", e.Object)
			switch name := workload.Labels[apis.JobSetLabel]; {
			case quotaworkload.IsTrue(workload, kueue.WorkloadFinished):
				finished.Delete(name)
			case e.Type == watch.Added && workload.Namespace == small.namespace:
				alone.Delete(name)
			case e.Type == watch.Added && strings.HasPrefix(name, "waits-"):
				created++
			}
		}
		Expect(finished).To(BeEmpty(), "these have finished and still hold quota, while quota Workloads of others are created")
		Expect(alone).To(BeEmpty(), "these have no quota Workload, while many of another namespace are created")
		By("stopping it while there is a backlog")
		Expect(first.Signal(syscall.SIGTERM)).To(Succeed())
		Eventually(first.Done()).WithContext(ctx).WithTimeout(15 * time.Second).Should(BeClosed())
	}, SpecTimeout(specTimeout))
})
