package groupstart_test

import (
	"context"
	"flag"
	"maps"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

var update = flag.Bool("update", false, "rewrite the expected pod templates")

// setParameters changes the parameters of the guards until the spec has finished.
func setParameters(ctx SpecContext, parameters map[string]string) {
	GinkgoHelper()
	guards := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}}
	Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(guards), guards)).To(Succeed())
	before := guards.DeepCopy()
	maps.Copy(guards.Data, parameters)
	Expect(env.Admin.Patch(ctx, guards, client.MergeFrom(before))).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		back, err := yaml.Marshal(map[string]any{"data": before.Data})
		Expect(err).NotTo(HaveOccurred())
		patch, err := yaml.YAMLToJSON(back)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Admin.Patch(ctx, guards, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	}, NodeTimeout(patience))
}

var _ = Describe("The pod template of a Job in a group", func() {
	DescribeTable("gets the init container of the group", func(ctx SpecContext, golden string, parameters map[string]string, change func(*corev1.PodSpec)) {
		setParameters(ctx, parameters)
		js := inGroup(newJobSet(golden, role{name: "workers", replicas: 1, pods: 1}))
		change(&js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec)
		js.Spec.Suspend = new(true)
		// The API server applies the parameters a moment after they were written.
		Eventually(func(g Gomega) {
			fresh := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: js.Namespace, Name: js.Name, Labels: js.Labels}, Spec: *js.Spec.DeepCopy()}
			g.Expect(env.Admin.Create(ctx, fresh)).To(Succeed())
			defer remove(ctx, fresh)
			Eventually(func(g Gomega) { g.Expect(jobsOf(ctx, g, js)).To(HaveLen(1)) }).WithContext(ctx).Should(Succeed())
			spec := jobsOf(ctx, g, js)[0].Spec.Template.Spec
			got, err := yaml.Marshal(map[string]any{"initContainers": spec.InitContainers, "volumes": spec.Volumes})
			g.Expect(err).NotTo(HaveOccurred())
			path := filepath.Join("testdata", golden+".yaml")
			if *update {
				g.Expect(os.WriteFile(path, got, 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(got)).To(Equal(string(want)))
		}).WithContext(ctx).Should(Succeed())
	},
		Entry("by default", "default", nil, func(*corev1.PodSpec) {}, SpecTimeout(patience)),
		Entry("before those of the user", "others", nil, func(pod *corev1.PodSpec) {
			pod.InitContainers = []corev1.Container{{Name: "download", Image: "example.com/download"}}
			pod.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}, SpecTimeout(patience)),
		Entry("as another user than root", "root", nil, func(pod *corev1.PodSpec) {
			pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))}
		}, SpecTimeout(patience)),
		Entry("as the sample has it", "sample", nil, func(pod *corev1.PodSpec) {
			var sample jobsetapi.JobSet
			data, err := os.ReadFile(filepath.Join(env.Root, "config", "samples", "jobsets", "group-start.yaml"))
			Expect(err).NotTo(HaveOccurred())
			Expect(yaml.UnmarshalStrict(data, &sample)).To(Succeed())
			*pod = sample.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
			sample.Namespace = namespace
			Expect(env.Admin.Create(context.Background(), &sample, client.DryRunAll)).To(Succeed())
			Expect(sample.Spec.ReplicatedJobs[0].Template.Annotations).To(HaveKeyWithValue(apis.GroupStartAnnotation, "600"))
			Expect(sample.Spec.ReplicatedJobs[1].Template.Annotations).NotTo(HaveKey(apis.GroupStartAnnotation))
		}, SpecTimeout(patience)),
		Entry("as it is configured", "configured", map[string]string{
			"groupStartImage": "example.com/busybox", "groupStartCommand": "sh\n-c\nwait for it", "groupStartCPU": "10m", "groupStartMemory": "16Mi",
		}, func(*corev1.PodSpec) {}, SpecTimeout(patience)),
	)
})
