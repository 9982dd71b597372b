package gang_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// A role is a ReplicatedJob whose pods ask for one GPU each.
type role struct {
	name           string
	replicas, pods int32
	gang           jobsetapi.GangMode
}

func newJobSet(name string, roles ...role) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "ml"}}}
	for _, r := range roles {
		job := jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: r.name, Replicas: r.replicas}}
		job.Template.Spec = batchv1.JobSpec{
			Parallelism: &r.pods, Completions: &r.pods, BackoffLimit: new(int32(0)), CompletionMode: new(batchv1.IndexedCompletion),
			// They run until the spec ends them.
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{controlplane.FakeRunTime: "1h"}}, Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
				Name: "main", Image: "example.com/train",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}, Limits: corev1.ResourceList{gpu: resource.MustParse("1")},
				},
			}}}},
		}
		if r.gang != "" {
			job.GangConfig = &jobsetapi.GangConfig{GangMode: r.gang}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, job)
	}
	return js
}

func asGang(js *jobsetapi.JobSet) *jobsetapi.JobSet {
	js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
	return js
}

// submit creates a JobSet, and deletes it with all of its pods at the end of the spec.
func submit(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, js)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { remove(ctx, js) }, NodeTimeout(patience))
}

func remove(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationForeground)))).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(podsOf(ctx, g, js)).To(BeEmpty())
		g.Expect(podGroups(ctx, g, js)).To(BeEmpty(), "gangs go with their JobSet")
		g.Expect(apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js))).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

func podsOf(ctx context.Context, g Gomega, js *jobsetapi.JobSet) []corev1.Pod {
	var pods corev1.PodList
	g.Expect(env.Admin.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{jobset.JobSetNameKey: js.Name})).To(Succeed())
	return pods.Items
}

func podGroups(ctx context.Context, g Gomega, js *jobsetapi.JobSet) []schedulingv1alpha2.PodGroup {
	var groups schedulingv1alpha2.PodGroupList
	g.Expect(env.Admin.List(ctx, &groups, client.InNamespace(namespace), client.MatchingLabels{apis.JobSetLabel: js.Name})).To(Succeed())
	return groups.Items
}

// bound counts the pods of each gang that there are, and those of them that have a node, as "gang: bound of there", by the names of gangs
// without the digits of the UID.
func bound(ctx context.Context, g Gomega, js *jobsetapi.JobSet) []string {
	there, placed := map[string]int{}, map[string]int{}
	for _, pod := range podsOf(ctx, g, js) {
		name := "none"
		if group := pod.Spec.SchedulingGroup; group != nil {
			name = *group.PodGroupName
			name = name[:strings.LastIndex(name, "-")]
		}
		there[name]++
		if pod.Spec.NodeName != "" {
			placed[name]++
		}
	}
	var lines []string
	for name, n := range there {
		lines = append(lines, fmt.Sprintf("%s: %d of %d", name, placed[name], n))
	}
	slices.Sort(lines)
	return lines
}

func expectBound(ctx context.Context, js *jobsetapi.JobSet, want ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(bound(ctx, g, js)).To(Equal(want)) }).WithContext(ctx).Should(Succeed())
}

// expectTried waits until the scheduler has reported that a gang does not fit.
func expectTried(ctx context.Context, js *jobsetapi.JobSet, prefix string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		tried := false
		for _, group := range podGroups(ctx, g, js) {
			scheduled := apimeta.FindStatusCondition(group.Status.Conditions, "PodGroupScheduled")
			tried = tried || strings.HasPrefix(group.Name, prefix) && scheduled != nil && scheduled.Status == metav1.ConditionFalse
		}
		g.Expect(tried).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

func expectCondition(ctx context.Context, js *jobsetapi.JobSet, conditionType string, status metav1.ConditionStatus, message string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
		c := apimeta.FindStatusCondition(js.Status.Conditions, conditionType)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).To(Equal(status), c.Message)
		g.Expect(c.Message).To(ContainSubstring(message))
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A gang", func() {
	It("of a whole JobSet that fits is placed whole", func(ctx SpecContext) {
		js := asGang(newJobSet("fits", role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 2, pods: 4}))
		submit(ctx, js)
		expectBound(ctx, js, "fits-all-r0: 9 of 9")
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionTrue, "1 gang, each with a PodGroup of scheduling.k8s.io/v1alpha2")
		groups := podGroups(ctx, Default, js)
		Expect(groups).To(HaveLen(1))
		Expect(groups[0].Spec.SchedulingPolicy.Gang.MinCount).To(BeEquivalentTo(9))
		Expect(metav1.IsControlledBy(&groups[0], js)).To(BeTrue())
	}, SpecTimeout(patience))

	It("of a whole JobSet that does not fit is not placed at all, and blocks no nodes", func(ctx SpecContext) {
		large := asGang(newJobSet("large", role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 3, pods: 4}))
		submit(ctx, large)
		expectTried(ctx, large, "large-all")
		expectBound(ctx, large, "large-all-r0: 0 of 13")
		small := asGang(newJobSet("small", role{name: "workers", replicas: 3, pods: 4}))
		submit(ctx, small)
		expectBound(ctx, small, "small-all-r0: 12 of 12")
		expectBound(ctx, large, "large-all-r0: 0 of 13")
	}, SpecTimeout(patience))

	It("of a ReplicatedJob is placed whole or not at all", func(ctx SpecContext) {
		js := newJobSet("jobs", role{name: "fits", replicas: 2, pods: 4, gang: jobsetapi.GangModeGang}, role{name: "large", replicas: 2, pods: 7, gang: jobsetapi.GangModeGang})
		submit(ctx, js)
		expectTried(ctx, js, "jobs-large-1")
		expectBound(ctx, js, "jobs-fits-0-r0: 8 of 8", "jobs-large-1-r0: 0 of 14")
	}, SpecTimeout(patience))

	It("of each Job is placed whole or not at all", func(ctx SpecContext) {
		js := newJobSet("each", role{name: "fits", replicas: 2, pods: 5, gang: jobsetapi.GangModeReplicatedGang}, role{name: "large", replicas: 1, pods: 13, gang: jobsetapi.GangModeReplicatedGang})
		submit(ctx, js)
		expectTried(ctx, js, "each-large-1x0")
		expectBound(ctx, js, "each-fits-0x0-r0: 5 of 5", "each-fits-0x1-r0: 5 of 5", "each-large-1x0-r0: 0 of 13")
	}, SpecTimeout(patience))

	It("that competes with another gang waits until the other gang has finished", func(ctx SpecContext) {
		var all []*jobsetapi.JobSet
		for _, name := range []string{"one", "two"} {
			js := asGang(newJobSet(name, role{name: "workers", replicas: 2, pods: 4}))
			submit(ctx, js)
			all = append(all, js)
		}
		var first, second *jobsetapi.JobSet
		Eventually(func(g Gomega) {
			whole := slices.IndexFunc(all, func(js *jobsetapi.JobSet) bool {
				return slices.Equal(bound(ctx, g, js), []string{js.Name + "-all-r0: 8 of 8"})
			})
			g.Expect(whole).To(BeNumerically(">=", 0))
			first, second = all[whole], all[1-whole]
		}).WithContext(ctx).Should(Succeed())
		expectTried(ctx, second, second.Name)
		expectBound(ctx, second, second.Name+"-all-r0: 0 of 8")
		remove(ctx, first)
		expectBound(ctx, second, second.Name+"-all-r0: 8 of 8")
	}, SpecTimeout(patience))

	It("is recreated after a restart", func(ctx SpecContext) {
		js := asGang(newJobSet("restart", role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 2, pods: 4}))
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		expectBound(ctx, js, "restart-all-r0: 9 of 9")
		fail(ctx, js, "driver")
		expectBound(ctx, js, "restart-all-r1: 9 of 9")
		Eventually(func(g Gomega) {
			groups := podGroups(ctx, g, js)
			g.Expect(groups).To(HaveLen(1), "that of the first attempt goes with its pods")
			g.Expect(groups[0].Name).To(HavePrefix("restart-all-r1-"))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("is not placed in part while pods of the previous attempt terminate", func(ctx SpecContext) {
		js := asGang(newJobSet("slow", role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 2, pods: 4}))
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		expectBound(ctx, js, "slow-all-r0: 9 of 9")
		hold(ctx, js, "workers", "example.com/slow")
		DeferCleanup(func(ctx SpecContext) { hold(ctx, js, "workers") }, NodeTimeout(patience))
		fail(ctx, js, "driver")
		Eventually(func(g Gomega) {
			g.Expect(bound(ctx, g, js)).To(ContainElement(HavePrefix("slow-all-r1: ")))
		}).WithContext(ctx).Should(Succeed())
		expectOthersPlaced(ctx)
		Expect(bound(ctx, Default, js)).To(ContainElement(HavePrefix("slow-all-r1: 0 of ")))
		hold(ctx, js, "workers")
		expectBound(ctx, js, "slow-all-r1: 9 of 9")
	}, SpecTimeout(patience))

	It("is not placed in part when its JobSet is resumed while its pods terminate", func(ctx SpecContext) {
		js := asGang(newJobSet("resumed", role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 2, pods: 4}))
		submit(ctx, js)
		expectBound(ctx, js, "resumed-all-r0: 9 of 9")
		hold(ctx, js, "workers", "example.com/slow")
		DeferCleanup(func(ctx SpecContext) { hold(ctx, js, "workers") }, NodeTimeout(patience))
		suspend(ctx, js, true)
		expectBound(ctx, js, "resumed-all-r0: 8 of 8")
		suspend(ctx, js, false)
		awaitHandled(ctx)
		Expect(bound(ctx, Default, js)).To(Equal([]string{"resumed-all-r0: 8 of 8"}), "the pods that are ending count as members")
		hold(ctx, js, "workers")
		expectBound(ctx, js, "resumed-all-r0: 9 of 9")
	}, SpecTimeout(patience))

	It("with a terminated pod is recreated when its JobSet is suspended and resumed", func(ctx SpecContext) {
		js := asGang(newJobSet("again", role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 1, pods: 4}))
		submit(ctx, js)
		expectBound(ctx, js, "again-all-r0: 5 of 5")
		first := jobUIDs(ctx, js)
		endOne(ctx, js, "workers")
		suspend(ctx, js, true)
		Eventually(func(g Gomega) { g.Expect(unended(ctx, g, js)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		suspend(ctx, js, false)
		Eventually(func(g Gomega) {
			g.Expect(bound(ctx, g, js)).To(Equal([]string{"again-all-r0: 5 of 5"}), "the scheduler does not count terminated pods")
		}).WithContext(ctx).Should(Succeed())
		second := jobUIDs(ctx, js)
		Expect(second["driver"]).To(Equal(first["driver"]))
		Expect(second["workers"]).NotTo(Equal(first["workers"]))
	}, SpecTimeout(patience))

	It("of one stage does not wait for the pods of the next", func(ctx SpecContext) {
		js := newJobSet("stages", role{name: "driver", replicas: 1, pods: 2, gang: jobsetapi.GangModeGang}, role{name: "workers", replicas: 2, pods: 4, gang: jobsetapi.GangModeGang})
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
		submit(ctx, js)
		expectBound(ctx, js, "stages-driver-0-r0: 2 of 2", "stages-workers-1-r0: 8 of 8")
	}, SpecTimeout(patience))

	It("across stages is refused, because it could never start", func(ctx SpecContext) {
		js := asGang(newJobSet("never", role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 1, pods: 1}))
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
		submit(ctx, js)
		expectCondition(ctx, js, "StageAdmitted", metav1.ConditionFalse, `spec.gangConfig.gangMode: Gang can never start`)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, `stage "workers" opens only when stage "driver" is Ready`)
		awaitHandled(ctx)
		Expect(podsOf(ctx, Default, js)).To(BeEmpty())
		var stages kueue.WorkloadList
		Expect(env.Admin.List(ctx, &stages, client.InNamespace(namespace), client.MatchingLabels{apis.JobSetLabel: js.Name})).To(Succeed())
		for _, w := range stages.Items {
			Expect(w.Status.Admission).To(BeNil(), "%s holds quota for a JobSet that can never start", w.Name)
		}
	}, SpecTimeout(patience))

	It("may be requested by annotations, and have a truncated name", func(ctx SpecContext) {
		name, long := "with-a-long-name", "and-a-longer-one-than-there-is-room"
		js := newJobSet(name, role{name: long, replicas: 2, pods: 2}, role{name: "other", replicas: 1, pods: 1})
		js.Spec.ReplicatedJobs[0].Template.Annotations = map[string]string{apis.GangAnnotation: "ReplicatedGang"}
		submit(ctx, js)
		head := (name + "-" + long)[:63-len("-0x0-r0-0123456789ab")]
		expectBound(ctx, js, "none: 1 of 1", head+"-0x0-r0: 2 of 2", head+"-0x1-r0: 2 of 2")
		Expect(podGroups(ctx, Default, js)).To(HaveLen(2))
	}, SpecTimeout(patience))

	It("recreates its deleted PodGroup", func(ctx SpecContext) {
		js := asGang(newJobSet("repair", role{name: "workers", replicas: 1, pods: 13}))
		submit(ctx, js)
		expectTried(ctx, js, "repair-all")
		group := podGroups(ctx, Default, js)[0]
		// It is deleted only when no pod names it; suspending deletes the pods.
		suspend(ctx, js, true)
		Eventually(func(g Gomega) { g.Expect(podsOf(ctx, g, js)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		Expect(env.Admin.Delete(ctx, &group)).To(Succeed())
		suspend(ctx, js, false)
		Eventually(func(g Gomega) {
			groups := podGroups(ctx, g, js)
			g.Expect(groups).To(HaveLen(1))
			g.Expect(groups[0].UID).NotTo(Equal(group.UID))
			g.Expect(groups[0].DeletionTimestamp).To(BeNil())
		}).WithContext(ctx).Should(Succeed())
		expectBound(ctx, js, "repair-all-r0: 0 of 13")
	}, SpecTimeout(patience))

	It("that the user created is not changed", func(ctx SpecContext) {
		own := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"}}
		own.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: 2}
		Expect(env.Admin.Create(ctx, own)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Admin.Delete(ctx, own)).To(Succeed()) }, NodeTimeout(patience))
		js := asGang(newJobSet("own", role{name: "workers", replicas: 1, pods: 4}))
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("mine")}
		submit(ctx, js)
		Eventually(func(g Gomega) {
			for _, pod := range podsOf(ctx, g, js) {
				g.Expect(pod.Spec.SchedulingGroup.PodGroupName).To(HaveValue(Equal("mine")))
				g.Expect(pod.Spec.NodeName).NotTo(BeEmpty())
			}
			g.Expect(podsOf(ctx, g, js)).To(HaveLen(4))
		}).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionTrue, `ReplicatedJob "workers" is in the user-created gang "mine"`)
		Expect(podGroups(ctx, Default, js)).To(BeEmpty())
		kept := &schedulingv1alpha2.PodGroup{}
		Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(own), kept)).To(Succeed())
		Expect(kept.Spec).To(Equal(own.Spec))
		Expect([]map[string]string{kept.Labels, kept.Annotations}).To(Equal([]map[string]string{own.Labels, own.Annotations}))
		Expect(kept.OwnerReferences).To(BeEmpty())
	}, SpecTimeout(patience))
})

// awaitHandled waits until the controllers have handled all earlier writes: the manager releases another JobSet after that, and the scheduler places its pod.
// Each watch delivers changes in their order.
func awaitHandled(ctx context.Context) {
	GinkgoHelper()
	probe := newJobSet("probe", role{name: "main", replicas: 1, pods: 1})
	submit(ctx, probe)
	expectBound(ctx, probe, "none: 1 of 1")
}

// fail makes a pod of a ReplicatedJob fail.
func fail(ctx context.Context, js *jobsetapi.JobSet, replicatedJob string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, pod := range podsOf(ctx, g, js) {
			if pod.Labels[jobset.ReplicatedJobNameKey] == replicatedJob {
				// Before that, the kubelet would write over it.
				g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
				pod.Status.Phase = corev1.PodFailed
				g.Expect(env.Admin.Status().Update(ctx, &pod)).To(Succeed())
				return
			}
		}
		g.Expect(replicatedJob).To(BeEmpty(), "has no pod")
	}).WithContext(ctx).Should(Succeed())
}

// hold adds these finalizers to the pods of a ReplicatedJob, or removes them.
func hold(ctx context.Context, js *jobsetapi.JobSet, replicatedJob string, finalizers ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, pod := range podsOf(ctx, g, js) {
			if pod.Labels[jobset.ReplicatedJobNameKey] != replicatedJob {
				continue
			}
			pod.Finalizers = append(slices.DeleteFunc(pod.Finalizers, func(f string) bool { return strings.HasPrefix(f, "example.com/") }), finalizers...)
			g.Expect(client.IgnoreNotFound(env.Admin.Update(ctx, &pod))).To(Succeed())
		}
	}).WithContext(ctx).Should(Succeed())
}

// expectOthersPlaced makes the scheduler place a pod that is in no gang, so that it has observed all earlier objects.
func expectOthersPlaced(ctx context.Context) {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "other-"}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/other"}}
	Expect(env.Admin.Create(ctx, pod)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Spec.NodeName).NotTo(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
	Expect(env.Admin.Delete(ctx, pod)).To(Succeed())
}

// endOne makes a pod of a ReplicatedJob succeed, and waits until its Job counts that.
func endOne(ctx context.Context, js *jobsetapi.JobSet, replicatedJob string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pods := slices.DeleteFunc(podsOf(ctx, g, js), func(p corev1.Pod) bool { return p.Labels[jobset.ReplicatedJobNameKey] != replicatedJob })
		if !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }) {
			// Before that, the kubelet would write over it.
			g.Expect(pods[0].Status.Phase).To(Equal(corev1.PodRunning))
			pods[0].Status.Phase = corev1.PodSucceeded
			g.Expect(env.Admin.Status().Update(ctx, &pods[0])).To(Succeed())
		}
		var job batchv1.Job
		g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pods[0].Labels[batchv1.JobNameLabel]}, &job)).To(Succeed())
		g.Expect(job.Status.Succeeded).To(BeEquivalentTo(1))
	}).WithContext(ctx).Should(Succeed())
}

// unended returns the pods of a JobSet that have not ended.
func unended(ctx context.Context, g Gomega, js *jobsetapi.JobSet) []corev1.Pod {
	return slices.DeleteFunc(podsOf(ctx, g, js), func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
}

// jobUIDs are those of the Jobs of a JobSet, by their ReplicatedJobs.
func jobUIDs(ctx context.Context, js *jobsetapi.JobSet) map[string]types.UID {
	GinkgoHelper()
	var jobs batchv1.JobList
	Expect(env.Admin.List(ctx, &jobs, client.InNamespace(namespace), client.MatchingLabels{jobset.JobSetNameKey: js.Name})).To(Succeed())
	uids := map[string]types.UID{}
	for _, job := range jobs.Items {
		uids[job.Labels[jobset.ReplicatedJobNameKey]] = job.UID
	}
	return uids
}
