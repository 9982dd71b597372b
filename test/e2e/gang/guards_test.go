package gang_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
)

// setGuards changes the parameters of the guards.
func setGuards(ctx context.Context, provider, schedulerName string) {
	GinkgoHelper()
	guards := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}}
	patch := fmt.Sprintf(`{"data":{"gangProvider":%q,"gangSchedulerName":%q}}`, provider, schedulerName)
	Expect(env.Admin.Patch(ctx, guards, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// born returns the schedulerName and the PodGroup that a child Job in a gang gets when it is created.
func born(ctx context.Context, g Gomega, change func(*corev1.PodTemplateSpec)) string {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: "probe", Labels: map[string]string{
			apis.HoldLabel: apis.HoldValue, jobset.JobSetNameKey: "probe", jobset.JobSetUIDKey: "0f",
		},
		Annotations: map[string]string{apis.GangGroupAnnotation: "all"},
	}}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "example.com/probe"}}}
	if change != nil {
		change(&job.Spec.Template)
	}
	g.Expect(env.Admin.Create(ctx, job, client.DryRunAll)).To(Succeed())
	group := job.Spec.Template.Spec.SchedulingGroup
	if group == nil {
		return job.Spec.Template.Spec.SchedulerName
	}
	return job.Spec.Template.Spec.SchedulerName + " " + ptr.Deref(group.PodGroupName, "")
}

func expectBorn(ctx context.Context, change func(*corev1.PodTemplateSpec), want string) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(born(ctx, g, change)).To(Equal(want)) }).WithContext(ctx).Should(Succeed())
}

func labeled(key string) func(*corev1.PodTemplateSpec) {
	return func(template *corev1.PodTemplateSpec) { template.Labels = map[string]string{key: "mine"} }
}

func annotated(pairs ...string) func(*corev1.PodTemplateSpec) {
	return func(template *corev1.PodTemplateSpec) {
		template.Annotations = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			template.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

var _ = Describe("The guards", func() {
	DescribeTable("set schedulerName of a Job in a gang, unless its user has",
		func(ctx SpecContext, provider, schedulerName, want string, of func(*corev1.PodTemplateSpec)) {
			setGuards(ctx, provider, schedulerName)
			DeferCleanup(func(ctx SpecContext) {
				setGuards(ctx, "Kube", "")
				expectBorn(ctx, nil, "default-scheduler probe-all-r0-0f")
			}, NodeTimeout(patience))
			expectBorn(ctx, nil, want)
			if of != nil {
				Expect(born(ctx, Default, of)).To(Equal("default-scheduler"), "its user has placed it in a gang")
			}
			own := func(template *corev1.PodTemplateSpec) { template.Spec.SchedulerName = "mine" }
			Expect(born(ctx, Default, own)).To(HavePrefix("mine"))
			chosen := annotated(apis.GangProviderAnnotation, "Volcano", apis.GangSchedulerAnnotation, "chosen")
			Expect(born(ctx, Default, chosen)).To(Equal("chosen"), "the manager has chosen another")
			Expect(born(ctx, Default, annotated(apis.GangProviderAnnotation, "None"))).To(Equal("default-scheduler"), "the manager has chosen none")
		},
		Entry("no scheduler of gangs", "None", "", "default-scheduler", nil, SpecTimeout(patience)),
		Entry("Kubernetes", "Kube", "", "default-scheduler probe-all-r0-0f", nil, SpecTimeout(patience)),
		Entry("Coscheduling", "Coscheduling", "", apis.CoschedulingScheduler, labeled("scheduling.x-k8s.io/pod-group"), SpecTimeout(patience)),
		Entry("Volcano", "Volcano", "", apis.VolcanoScheduler, annotated("scheduling.k8s.io/group-name", "mine"), SpecTimeout(patience)),
		Entry("Volcano by another name", "Volcano", "volcano-2", "volcano-2", nil, SpecTimeout(patience)),
		Entry("Koordinator", "Koordinator", "", apis.KoordinatorScheduler, labeled("pod-group.scheduling.sigs.k8s.io"), SpecTimeout(patience)),
		Entry("Koordinator, with annotations", "Koordinator", "", apis.KoordinatorScheduler, annotated("gang.scheduling.koordinator.sh/name", "mine"), SpecTimeout(patience)),
	)
})
