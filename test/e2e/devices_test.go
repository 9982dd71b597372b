package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/test/sample"
)

// The configuration of the tests maps DeviceClass gpu.example.com to the GPUs of the quota.
var _ = Describe("The charge of a pod", func() {
	claiming := func(js *jobsetapi.JobSet, index int, template string) *jobsetapi.JobSet {
		pod := &js.Spec.ReplicatedJobs[index].Template.Spec.Template.Spec
		pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: &template}}
		return js
	}
	refused := func(ctx context.Context, t team, jobSet string, parts ...string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			c := apimeta.FindStatusCondition(t.jobSet(ctx, g, jobSet).Status.Conditions, jobsetstatus.StageAdmitted)
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Reason).To(Equal("Misconfigured"))
			for _, part := range parts {
				g.Expect(c.Message).To(ContainSubstring(part))
			}
		}).WithContext(ctx).Should(Succeed())
	}
	reserves := func(ctx context.Context, t team, gpus string) {
		GinkgoHelper()
		Eventually(func(g Gomega) { g.Expect(t.reserved(ctx, g)).To(Equal(gpus)) }).WithContext(ctx).
			Should(Succeed(), func() string { return t.describe(ctx) })
	}

	It("includes the devices that the pod claims", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		t.createClaimTemplate(ctx, "eight", "gpu.example.com", 8)
		submit(ctx, claiming(t.newJobSet("first", replicatedJob{name: "main", cpus: "1"}), 0, "eight"))
		t.expectStages(ctx, "first", "main=admitted")
		submit(ctx, claiming(t.newJobSet("second", replicatedJob{name: "main", cpus: "1"}), 0, "eight"))
		Eventually(func(g Gomega) {
			c := apimeta.FindStatusCondition(t.jobSet(ctx, g, "second").Status.Conditions, jobsetstatus.StageAdmitted)
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Message).To(ContainSubstring("nvidia.com/gpu"))
		}).WithContext(ctx).Should(Succeed())
		reserves(ctx, t, "8")

		By("replacing the ResourceClaimTemplate by another of its name, which the next pods would use")
		Expect(env.Admin.Delete(ctx, t.claimTemplate("eight", "gpu.example.com", 8))).To(Succeed())
		t.createClaimTemplate(ctx, "eight", "gpu.example.com", 5)
		reserves(ctx, t, "10")
		t.expectStages(ctx, "first", "main=admitted")
		t.expectStages(ctx, "second", "main=admitted")
	}, SpecTimeout(specTimeout))

	It("includes the devices that the pods of a queued Job claim, also when their ResourceClaimTemplate was replaced", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		replace := func(count int64) {
			GinkgoHelper()
			Expect(env.Admin.Delete(ctx, t.claimTemplate("some", "", 0))).To(Succeed())
			t.createClaimTemplate(ctx, "some", "gpu.example.com", count)
		}
		// claims waits until a Job runs with one pod, which claims as many devices as are charged.
		claims := func(name string, devices int64) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				job, workload := t.queued(ctx, g, name)
				g.Expect(*job.Spec.Suspend).To(BeFalse())
				pods := t.podsOfJob(ctx, g, name)
				g.Expect(pods).To(HaveLen(1))
				g.Expect(pods[0].Status.ResourceClaimStatuses).To(HaveLen(1))
				claim := resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: *pods[0].Status.ResourceClaimStatuses[0].ResourceClaimName}}
				g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(&claim), &claim)).To(Succeed())
				g.Expect(claim.Spec.Devices.Requests[0].Exactly.Count).To(Equal(devices))
				g.Expect(workload.Status.Admission).NotTo(BeNil())
				usage := workload.Status.Admission.PodSetAssignments[0].ResourceUsage[gpu]
				g.Expect(usage.Value()).To(Equal(devices))
			}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		}
		Expect(env.Admin.Create(ctx, t.newJob("first", 1, "15"))).To(Succeed())
		t.expectJob(ctx, "first", "ready")
		t.createClaimTemplate(ctx, "some", "gpu.example.com", 1)
		job := t.newJob("claims", 1, "")
		job.Spec.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new("some")}}
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		t.expectJob(ctx, "claims", "waiting")

		By("replacing it while the Job waits")
		replace(8)
		t.endPodsOf(ctx, Default, "first", 1)
		claims("claims", 8)

		By("replacing it while the Job runs")
		replace(7)
		claims("claims", 7)

		By("replacing it while the Job is suspended")
		t.patchJob(ctx, "claims", `{"spec":{"suspend":true}}`)
		reserves(ctx, t, "0")
		replace(9)
		t.patchJob(ctx, "claims", `{"spec":{"suspend":false}}`)
		claims("claims", 9)
	}, SpecTimeout(specTimeout))

	It("is unknown for unmapped devices, and no stage of their JobSet gets quota until it is known", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.newJobSet("free", replicatedJob{name: "init", cpus: "1"}, replicatedJob{name: "main", cpus: "1"})
		submit(ctx, inOrder(claiming(js, 1, "late")))
		refused(ctx, t, "free", `resource claim "devices" names ResourceClaimTemplate "late", which does not exist: create it`)
		t.createClaimTemplate(ctx, "late", "nic.example.com", 1)
		refused(ctx, t, "free", `is for DeviceClass "nic.example.com", which no quota is charged for`, "resources.deviceClassMappings")
		Expect(t.workloads(ctx, Default)).To(BeEmpty(), "nothing starts that could not be continued")
		Expect(env.Admin.Delete(ctx, t.claimTemplate("late", "", 0))).To(Succeed())
		t.createClaimTemplate(ctx, "late", "gpu.example.com", 1)
		t.expectStages(ctx, "free", "init=ready", "main=admitted")
		reserves(ctx, t, "1")

		By("refusing a claim that pods can share")
		shared := t.newJobSet("shared", replicatedJob{name: "main", cpus: "1"})
		shared.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimName: new("one")}}
		submit(ctx, shared)
		refused(ctx, t, "shared", `resource claim "devices" names a ResourceClaim, which pods can share`)
	}, SpecTimeout(specTimeout))

	It("refuses devices of unknown number or DeviceClass, and counts a shared device or a partition as one", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		exactly := func(change func(*resourcev1.ExactDeviceRequest)) resourcev1.DeviceRequest {
			r := resourcev1.DeviceRequest{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com"}}
			change(r.Exactly)
			return r
		}
		// The API server lets only such a namespace ask for adminAccess.
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+resourcev1.DRAAdminNamespaceLabelKey+`":"true"}}}`))
		Expect(env.Admin.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}, label)).To(Succeed())
		for name, tc := range map[string]struct {
			request resourcev1.DeviceRequest
			refusal string
		}{
			"every": {exactly(func(r *resourcev1.ExactDeviceRequest) { r.AllocationMode = resourcev1.DeviceAllocationModeAll }), `has the allocationMode "All": request a number of devices`},
			"admin": {exactly(func(r *resourcev1.ExactDeviceRequest) { r.AdminAccess = new(true) }), "has adminAccess, which no quota is charged for: remove it"},
			"alternative": {
				resourcev1.DeviceRequest{Name: "all", FirstAvailable: []resourcev1.DeviceSubRequest{
					{Name: "eight", DeviceClassName: "gpu.example.com", Count: 8}, {Name: "free", DeviceClassName: "nic.example.com"},
				}},
				"lists alternatives (firstAvailable)",
			},
			"capacity": {exactly(func(r *resourcev1.ExactDeviceRequest) {
				r.Count = 2
				r.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"gpu.example.com/memory": resource.MustParse("80Gi")}}
			}), ""},
			"selected": {exactly(func(r *resourcev1.ExactDeviceRequest) {
				r.Count = 3
				r.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["gpu.example.com"].profile == "1g.5gb"`}}}
			}), ""},
		} {
			template := t.claimTemplate(name, "", 0)
			template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{tc.request}
			Expect(env.Admin.Create(ctx, template)).To(Succeed())
			submit(ctx, claiming(t.newJobSet(name, replicatedJob{name: "main", cpus: "1"}), 0, name))
			if tc.refusal != "" {
				refused(ctx, t, name, `request "all" of resource claim "devices"`, tc.refusal)
			} else {
				t.expectStages(ctx, name, "main=admitted")
			}
		}
		reserves(ctx, t, "5")

		By("charging an extended resource of the DeviceClass to the mapping, and refusing the implicit extended resource, which has no quota")
		class := &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("gpu.example.com/whole")},
		}
		Expect(env.Admin.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Admin.Delete(ctx, class)).To(Succeed()) }, NodeTimeout(patience))
		asking := func(name, extended string) {
			js := t.newJobSet(name, replicatedJob{name: "main", cpus: "1"})
			amounts := sample.Amounts("cpu", "1", extended, "8")
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts, Limits: amounts}
			submit(ctx, js)
		}
		asking("named", "gpu.example.com/whole")
		reserves(ctx, t, "13")
		implicit := resourcev1.ResourceDeviceClassPrefix + "gpu.example.com"
		asking("implicit", implicit)
		Eventually(func(g Gomega) {
			c := apimeta.FindStatusCondition(t.jobSet(ctx, g, "implicit").Status.Conditions, jobsetstatus.StageAdmitted)
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Message).To(ContainSubstring("pod set main asks for " + implicit + ", for which ClusterQueue " + t.namespace + " has no quota"))
		}).WithContext(ctx).Should(Succeed())
		reserves(ctx, t, "13")
	}, SpecTimeout(specTimeout))

	It("is the transformed requests, without excluded resources", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "3")
		js := t.newJobSet("halves", replicatedJob{name: "main", cpus: "1"})
		amounts := sample.Amounts("cpu", "1", "example.com/half-gpus", "6", "excluded.example.com/nic", "1")
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts, Limits: amounts}
		submit(ctx, js)
		t.expectStages(ctx, "halves", "main=admitted")
		reserves(ctx, t, "3")
		usage := t.workload(ctx, Default, "halves", "main").Status.Admission.PodSetAssignments[0].ResourceUsage
		Expect(usage).To(HaveLen(2), "cpu and GPUs")
		// Its child Jobs are released as they are.
		Eventually(func(g Gomega) { g.Expect(t.pods(ctx, g, "main")).To(HaveLen(1)) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))
})

func (t team) claimTemplate(name, class string, count int64) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Count: count}}},
		}}},
	}
}

func (t team) createClaimTemplate(ctx context.Context, name, class string, count int64) {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, t.claimTemplate(name, class, count))).To(Succeed())
}
