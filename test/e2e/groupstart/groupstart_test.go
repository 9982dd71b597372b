package groupstart_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

var _ = Describe("A group", func() {
	It("starts only when all of its pods have started", func(ctx SpecContext) {
		js := inGroup(newJobSet("all", role{name: "workers", replicas: 2, pods: 2}, role{name: "driver", replicas: 1, pods: 1, late: true}))
		submit(ctx, js)
		expectWaiting(ctx, js, 4)
		expectCondition(ctx, js, metav1.ConditionFalse, "WaitingForPods", "spec.groupSchedulingConfig: main containers wait until all 5 pods of the group have started")
		configMap := configMapOf(ctx, Default, js)
		Expect(metav1.IsControlledBy(configMap, js)).To(BeTrue())
		Expect(configMap.Data).To(HaveKeyWithValue("pods", "5"))
		Expect(configMap.Data["token"]).NotTo(BeEmpty())
		Expect(configMap.Data["endpoint"]).To(HaveSuffix("/v1/groups/ml/all"))
		expectCounted(ctx, js, "workers", "4 of 5 pods")
		Expect(configMapOf(ctx, Default, js).Data).NotTo(Or(HaveKey("released"), HaveKey("started")))
		expectMetric(ctx, `tranche_group_start_waiting_groups{replica_role="leader"} 1`)
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
		expectMetric(ctx, `tranche_group_start_waiting_groups{replica_role="leader"} 0`)
		expectMetric(ctx, `tranche_group_start_wait_seconds_count{replica_role="leader"} `)
	}, SpecTimeout(patience))

	It("may include only some ReplicatedJobs", func(ctx SpecContext) {
		js := inGroup(newJobSet("some", role{name: "workers", replicas: 1, pods: 2}, role{name: "aux", replicas: 1, pods: 1, late: true}), "workers")
		submit(ctx, js)
		expectReleased(ctx, js, "workers")
		for _, job := range jobsOf(ctx, Default, js) {
			if job.Labels[jobset.ReplicatedJobNameKey] == "aux" {
				Expect(job.Spec.Template.Spec.InitContainers).To(BeEmpty())
				Expect(job.Spec.Template.Spec.Volumes).To(BeEmpty())
			}
		}
	}, SpecTimeout(patience))

	It("may be requested by annotation", func(ctx SpecContext) {
		js := newJobSet("annotated", role{name: "workers", replicas: 1, pods: 2}, role{name: "aux", replicas: 1, pods: 1, late: true})
		js.Spec.ReplicatedJobs[0].Template.Annotations = map[string]string{apis.GroupStartAnnotation: "20"}
		submit(ctx, js)
		expectReleased(ctx, js, "workers")
		for _, pod := range podsOf(ctx, Default, js) {
			if pod.Labels[jobset.ReplicatedJobNameKey] == "workers" {
				Expect(pod.Spec.InitContainers[0].Args).To(ContainElement("--timeout=20s"))
			}
		}
	}, SpecTimeout(patience))

	It("waits again after a restart", func(ctx SpecContext) {
		js := inGroup(newJobSet("restart", role{name: "workers", replicas: 1, pods: 2}, role{name: "driver", replicas: 1, pods: 1, late: true}))
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		expectWaiting(ctx, js, 2)
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
		first := configMapOf(ctx, Default, js)
		pod := podOf(ctx, js, "driver")
		endPod(ctx, pod, 0)
		pod.Status.Phase = corev1.PodFailed
		Expect(env.Admin.Status().Update(ctx, pod)).To(Succeed())
		expectCondition(ctx, js, metav1.ConditionFalse, "WaitingForPods", "")
		expectWaiting(ctx, js, 2)
		expectCounted(ctx, js, "workers", "2 of 3 pods")
		Expect(configMapOf(ctx, Default, js).Data).To(Equal(withoutStarted(first.Data)), "the pods of the second attempt are not those that were released")
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
		Expect(configMapOf(ctx, Default, js).Data["released"]).NotTo(Equal(first.Data["released"]))
	}, SpecTimeout(patience))

	It("waits again for one Job that is restarted alone", func(ctx SpecContext) {
		js := inGroup(newJobSet("single", role{name: "workers", replicas: 2, pods: 1, late: true}))
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1, Rules: []jobset.FailurePolicyRule{{Name: "alone", Action: jobset.RestartJob}}}
		submit(ctx, js)
		Eventually(func(g Gomega) { g.Expect(podsOf(ctx, g, js)).To(HaveLen(2)) }).WithContext(ctx).Should(Succeed())
		startLate(ctx, js, "workers", 2)
		expectReleased(ctx, js, "workers")
		first, before := configMapOf(ctx, Default, js), jobsOf(ctx, Default, js)
		endPod(ctx, podOf(ctx, js, "workers"), 1)
		expectCondition(ctx, js, metav1.ConditionFalse, "WaitingForPods", "")
		Eventually(func(g Gomega) { g.Expect(podsOf(ctx, g, js)).To(HaveLen(2)) }).WithContext(ctx).Should(Succeed())
		expectCounted(ctx, js, "workers", "1 of 2 pods")
		Expect(configMapOf(ctx, Default, js).Data).To(Equal(withoutStarted(first.Data)))
		startLate(ctx, js, "workers", 2)
		expectReleased(ctx, js, "workers")
		kept := 0
		for i, job := range jobsOf(ctx, Default, js) {
			if job.UID == before[i].UID {
				kept++
			}
		}
		Expect(kept).To(Equal(1), "one Job is another, one is the same")
		Expect(js.Status.Restarts).To(BeZero())
	}, SpecTimeout(patience))

	It("does not wait for a Job that has succeeded, and was deleted and recreated", func(ctx SpecContext) {
		js := inGroup(newJobSet("outlived", role{name: "workers", replicas: 1, pods: 1}, role{name: "driver", replicas: 1, pods: 1, late: true}))
		submit(ctx, js)
		expectWaiting(ctx, js, 1)
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
		pod := podOf(ctx, js, "workers")
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			pod.Status.Phase = corev1.PodSucceeded
			g.Expect(env.Admin.Status().Update(ctx, pod)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		Eventually(func(g Gomega) {
			var workloads kueue.WorkloadList
			g.Expect(env.Admin.List(ctx, &workloads, client.InNamespace(js.Namespace), client.MatchingLabels{apis.JobSetLabel: js.Name})).To(Succeed())
			g.Expect(workloads.Items).To(HaveLen(1))
			g.Expect(workloads.Items[0].Annotations).To(HaveKeyWithValue(apis.SucceededJobsAnnotation, "workers=0"))
		}).WithContext(ctx).Should(Succeed())
		before := jobsOf(ctx, Default, js)
		for i := range before {
			Expect(env.Admin.Delete(ctx, &before[i], client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		}
		Eventually(func(g Gomega) {
			after := jobsOf(ctx, g, js)
			g.Expect(after).To(HaveLen(2))
			for i := range after {
				g.Expect(after[i].UID).NotTo(Equal(before[i].UID))
			}
		}).WithContext(ctx).Should(Succeed())
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "driver")
	}, SpecTimeout(patience))

	It("waits again after its JobSet was suspended", func(ctx SpecContext) {
		js := inGroup(newJobSet("resume", role{name: "workers", replicas: 1, pods: 2}, role{name: "driver", replicas: 1, pods: 1, late: true}))
		submit(ctx, js)
		expectWaiting(ctx, js, 2)
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
		first := configMapOf(ctx, Default, js)
		before := jobsOf(ctx, Default, js)
		suspend(ctx, js, true)
		Eventually(func(g Gomega) { g.Expect(podsOf(ctx, g, js)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		suspend(ctx, js, false)
		expectWaiting(ctx, js, 2)
		// The driver may be released after the workers wait: not before the status of its Job says that its pod has terminated.
		Eventually(func(g Gomega) {
			after := jobsOf(ctx, g, js)
			g.Expect(after).To(HaveLen(len(before)))
			for i := range after {
				g.Expect(after[i].UID).To(Equal(before[i].UID), "the Jobs are the same")
				g.Expect(after[i].Spec.Template.Annotations).To(HaveKeyWithValue(apis.ReleaseAnnotation, "2"))
			}
		}).WithContext(ctx).Should(Succeed())
		expectCounted(ctx, js, "workers", "2 of 3 pods")
		Expect(configMapOf(ctx, Default, js).Data).To(Equal(withoutStarted(first.Data)), "their pods are others")
		expectCondition(ctx, js, metav1.ConditionFalse, "WaitingForPods", "")
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
	}, SpecTimeout(patience))

	It("that has exceeded its timeout reports it", func(ctx SpecContext) {
		js := inGroup(newJobSet("late", role{name: "workers", replicas: 1, pods: 2}, role{name: "driver", replicas: 1, pods: 1, late: true}))
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		expectWaiting(ctx, js, 2)
		endPod(ctx, podOf(ctx, js, "workers"), 3)
		expectEvent(ctx, js, "GroupTimedOut", "of 3 pods have started")
		expectWaiting(ctx, js, 2)
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
	}, SpecTimeout(patience))

	It("does not overwrite a ConfigMap of its user", func(ctx SpecContext) {
		own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own" + configMapSuffix}, Data: map[string]string{"mine": "yes"}}
		Expect(env.Admin.Create(ctx, own)).To(Succeed())
		js := inGroup(newJobSet("own", role{name: "workers", replicas: 1, pods: 1}))
		submit(ctx, js)
		expectWaiting(ctx, js, 1)
		expectCondition(ctx, js, metav1.ConditionFalse, "ConfigMapOfUser", `Tranche did not create ConfigMap "own-group-scheduling"`)
		Expect(configMapOf(ctx, Default, js).Data).To(Equal(own.Data))
		Expect(env.Admin.Delete(ctx, own)).To(Succeed())
	}, SpecTimeout(patience))

	It("recreates its deleted ConfigMap with the same data", func(ctx SpecContext) {
		js := inGroup(newJobSet("repair", role{name: "workers", replicas: 1, pods: 1}))
		submit(ctx, js)
		expectReleased(ctx, js, "workers")
		first := configMapOf(ctx, Default, js)
		Expect(env.Admin.Delete(ctx, first)).To(Succeed())
		expectReleased(ctx, js, "workers")
		second := configMapOf(ctx, Default, js)
		Expect(second.UID).NotTo(Equal(first.UID))
		Expect(second.Data["token"]).NotTo(Equal(first.Data["token"]))
	}, SpecTimeout(patience))

	It("loses its ConfigMap when its JobSet is deleted", func(ctx SpecContext) {
		js := inGroup(newJobSet("gone", role{name: "workers", replicas: 1, pods: 1}))
		submit(ctx, js)
		expectReleased(ctx, js, "workers")
		remove(ctx, js)
		Eventually(func(g Gomega) {
			err := env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "gone" + configMapSuffix}, &corev1.ConfigMap{})
			g.Expect(client.IgnoreNotFound(err)).To(Succeed())
			g.Expect(err).To(HaveOccurred())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))
})

var _ = Describe("A group that can never start together", func() {
	DescribeTable("is refused when it is submitted", func(ctx SpecContext, want string, change func(*jobsetSpec)) {
		js := newJobSet("refused", role{name: "a", replicas: 1, pods: 1}, role{name: "b", replicas: 1, pods: 1})
		change(&jobsetSpec{js})
		err := env.Admin.Create(ctx, js, client.DryRunAll)
		Expect(err).To(HaveOccurred())
		Expect(strings.Join(strings.Fields(err.Error()), " ")).To(ContainSubstring(want))
	},
		Entry("later stages", "differ in dependsOn, so that they begin in different stages", func(s *jobsetSpec) {
			inGroup(s.JobSet)
			s.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "a", Status: jobset.DependencyReady}}
		}),
		Entry("one after the other, by annotation", "startupPolicyOrder InOrder exclude each other", func(s *jobsetSpec) {
			s.Annotations = map[string]string{apis.GroupStartAnnotation: "9"}
			s.inOrder()
		}),
		Entry("no number", "must be a whole number of seconds", func(s *jobsetSpec) {
			s.Annotations = map[string]string{apis.GroupStartAnnotation: "5m"}
		}),
		Entry("no number on a ReplicatedJob", "must be a whole number of seconds", func(s *jobsetSpec) {
			s.Spec.ReplicatedJobs[1].Template.Annotations = map[string]string{apis.GroupStartAnnotation: "-1"}
		}),
		Entry("a volume of our name", "give the volume of a another name", func(s *jobsetSpec) {
			inGroup(s.JobSet)
			s.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "group-scheduling"}}
		}),
		Entry("Windows", "runs on Linux only", func(s *jobsetSpec) {
			inGroup(s.JobSet)
			s.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
		}),
	)
})
