package integration_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

var _ = Describe("The limits of queued JobSets", Ordered, func() {
	var namespace string
	BeforeAll(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		awaitGuards(ctx, namespace)
	})

	named := func(n int) []string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("r%d", i)
		}
		return names
	}
	inGroups := func(size int) func(*jobsetapi.JobSet) {
		return func(js *jobsetapi.JobSet) {
			for i := size; i < len(js.Spec.ReplicatedJobs); i++ {
				js.Spec.ReplicatedJobs[i].DependsOn = []jobset.DependsOn{{Name: fmt.Sprintf("r%d", i/size*size-1), Status: jobset.DependencyReady}}
			}
		}
	}
	inRules := func(size int) func(*jobsetapi.JobSet) {
		return func(js *jobsetapi.JobSet) {
			js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: []jobsetapi.StartupPolicyRule{{
				TargetReplicatedJobs: named(size), WaitForReplicatedJobsStatus: "Ready",
			}}}
		}
	}
	inOrder := func(js *jobsetapi.JobSet) {
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	}
	inChain := func(js *jobsetapi.JobSet) {
		for i := range js.Spec.ReplicatedJobs[1:] {
			js.Spec.ReplicatedJobs[i+1].DependsOn = []jobset.DependsOn{{Name: fmt.Sprintf("r%d", i), Status: jobset.DependencyReady}}
		}
	}
	sized := func(replicas, parallelism int32) func(*jobsetapi.JobSet) {
		return func(js *jobsetapi.JobSet) {
			js.Spec.ReplicatedJobs[0].Replicas = replicas
			js.Spec.ReplicatedJobs[0].Template.Spec.Parallelism = new(parallelism)
		}
	}
	text := func(size int) func(*jobsetapi.JobSet) {
		return func(js *jobsetapi.JobSet) {
			container := &js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]
			container.Env = []corev1.EnvVar{{Name: "TEXT", Value: strings.Repeat("x", size)}}
		}
	}

	DescribeTable("when one is created", func(ctx SpecContext, size int, change func(*jobsetapi.JobSet), want string) {
		js := newQueued(namespace, "bounded", named(size)...)
		change(js)
		expectAnswer(env.clientAs(alice).Create(ctx, js, client.DryRunAll), want)
		if want == allowed {
			Expect(ptr.Deref(js.Spec.Suspend, false)).To(BeTrue())
			for i := range js.Spec.ReplicatedJobs {
				Expect(js.Spec.ReplicatedJobs[i].Template.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldValue))
			}
		}
	},
		Entry("accept 300 ReplicatedJobs", 300, inGroups(18), allowed),
		Entry("accept 18 ReplicatedJobs that start together", 18, func(*jobsetapi.JobSet) {}, allowed),
		Entry("refuse 19 ReplicatedJobs that start together", 19, func(*jobsetapi.JobSet) {}, "at most 18 ReplicatedJobs of a JobSet in a queue start together, not 19; let some of them wait"),
		Entry("refuse 20 ReplicatedJobs with the same dependsOn", 40, inGroups(20), "at most 18 ReplicatedJobs of a JobSet in a queue start together, not 20"),
		Entry("accept 18 ReplicatedJobs in a rule", 19, inRules(18), allowed),
		Entry("refuse 19 ReplicatedJobs in a rule", 20, inRules(19), "at most 18 ReplicatedJobs of a JobSet in a queue start together"),
		Entry("let 19 ReplicatedJobs without a queue start together", 20, func(js *jobsetapi.JobSet) { js.Labels = nil; inRules(19)(js) }, noEffect),
		Entry("refuse 301 ReplicatedJobs", 301, func(*jobsetapi.JobSet) {}, "a JobSet in a queue, or with gangs, groups or rules, has at most 300 ReplicatedJobs, not 301; replace those with equal pods"),
		Entry("refuse 1000 ReplicatedJobs", 1000, func(*jobsetapi.JobSet) {}, "at most 300 ReplicatedJobs, not 1000"),
		Entry("accept 100 stages in order", 100, inOrder, allowed),
		Entry("refuse 101 stages in order", 101, inOrder, "a JobSet in a queue, or with gangs, groups or rules, has at most 100 stages, not 101; let more ReplicatedJobs start together"),
		Entry("accept 100 stages that depend on each other", 100, inChain, allowed),
		Entry("refuse 101 stages that depend on each other", 101, inChain, "at most 100 stages, not 101"),
		Entry("accept long texts", 1, text(260_000), allowed),
		Entry("refuse longer texts", 1, text(270_000), "have at most 262144 characters"),
		Entry("accept 5000 Jobs", 2, sized(4999, 1), allowed),
		Entry("refuse 5001 Jobs", 2, sized(5000, 1), "spec.replicatedJobs[*].replicas: a JobSet has at most 5000 Jobs, not 5001; give each Job more pods (parallelism)"),
		Entry("refuse more Jobs than memory has room for", 1, sized(1_000_000_000, 1), "at most 5000 Jobs, not 1000000000"),
		Entry("refuse as many without a queue", 2, func(js *jobsetapi.JobSet) { js.Labels = nil; sized(5000, 1)(js) }, "at most 5000 Jobs, not 5001"),
		Entry("not let a negative number make room", 2, func(js *jobsetapi.JobSet) { sized(5001, 1)(js); js.Spec.ReplicatedJobs[1].Replicas = -5000 }, "at most 5000 Jobs, not 5001"),
		Entry("accept 150000 pods at once", 1, sized(1000, 150), allowed),
		Entry("refuse more pods at once", 2, sized(1000, 150), "spec.replicatedJobs[*]: at most 150000 pods of a JobSet run at the same time, not 150001; lower replicas"),
		Entry("accept more pods one after another", 1, func(js *jobsetapi.JobSet) {
			sized(1, 1000)(js)
			js.Spec.ReplicatedJobs[0].Template.Spec.Completions = new(int32(200_000))
		}, allowed),
		Entry("accept more parallelism than there is to do", 1, func(js *jobsetapi.JobSet) {
			sized(100, 2000)(js)
			js.Spec.ReplicatedJobs[0].Template.Spec.Completions = new(int32(1000))
		}, allowed),
		Entry("accept texts in many Jobs", 1, func(js *jobsetapi.JobSet) { text(16_000)(js); sized(4096, 1)(js) }, allowed),
		Entry("refuse longer texts in as many", 1, func(js *jobsetapi.JobSet) { text(17_000)(js); sized(4096, 1)(js) }, "in all Jobs of a JobSet in a queue, or with gangs, groups or rules, have at most 67108864 characters, not 69"),
		Entry("do not limit other JobSets", 301, func(js *jobsetapi.JobSet) { js.Labels = nil; inChain(js) }, noEffect),
	)

	It("hold a JobSet that pretends to be held already", func(ctx SpecContext) {
		js := newQueued(namespace, "forged", "a", "b")
		js.Spec.Suspend = new(true)
		for i := range js.Spec.ReplicatedJobs {
			js.Spec.ReplicatedJobs[i].Template.Labels = map[string]string{apis.HoldLabel: apis.HoldValue}
			js.Spec.ReplicatedJobs[i].Template.Annotations = map[string]string{apis.GangGroupAnnotation: "all", "mine": "yes"}
		}
		Expect(env.clientAs(alice).Create(ctx, js, client.DryRunAll)).To(Succeed())
		for i := range js.Spec.ReplicatedJobs {
			Expect(js.Spec.ReplicatedJobs[i].Template.Annotations).To(Equal(map[string]string{"mine": "yes"}))
		}
	}, SpecTimeout(patience))

	It("keep the annotations of templates in gangs and groups", func(ctx SpecContext) {
		js := newQueued(namespace, "together", "a", "b")
		js.Annotations = map[string]string{apis.GangAnnotation: "Gang"}
		js.Spec.ReplicatedJobs[0].Template.Annotations = map[string]string{apis.GroupStartAnnotation: "9", "mine": "yes"}
		Expect(env.clientAs(alice).Create(ctx, js, client.DryRunAll)).To(Succeed())
		Expect(js.Spec.ReplicatedJobs[0].Template.Annotations).To(Equal(
			map[string]string{apis.GangGroupAnnotation: "all", apis.GroupStartAnnotation: "9", "mine": "yes"}))
		Expect(js.Spec.ReplicatedJobs[1].Template.Annotations).To(Equal(map[string]string{apis.GangGroupAnnotation: "all"}))
	}, SpecTimeout(patience))
})
