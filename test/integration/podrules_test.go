package integration_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

const accelerators corev1.ResourceName = "example.com/accelerators"

// Quota Workloads of users, of JobSets and of gangs of pods are all charged, and refused, according to the pods that the API server would
// create for them.
var _ = Describe("The way in which the API server changes pods", Ordered, ContinueOnFailure, func() {
	var t *tenant
	const (
		name     = "podrules.example.com"
		admitted = "Admitted=True Admitted"
	)

	BeforeAll(func(ctx SpecContext) {
		startManager(ctx, map[string]any{"resources": map[string]any{
			"deviceClassMappings": []map[string]any{{"name": string(accelerators), "deviceClassNames": []string{name}}},
		}})
	}, NodeTimeout(patience))
	BeforeEach(func(ctx SpecContext) { t = newQueue(ctx) }, NodeTimeout(patience))

	cpus := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
	limitRange := func(ctx context.Context, item corev1.LimitRangeItem) *corev1.LimitRange {
		GinkgoHelper()
		r := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
		Expect(env.adminClient.Create(ctx, r)).To(Succeed())
		return r
	}
	// workloadOf waits for the only quota Workload with a label.
	workloadOf := func(ctx context.Context, label, value string) *kueue.Workload {
		GinkgoHelper()
		var list kueue.WorkloadList
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingLabels{label: value})).To(Succeed())
			g.Expect(list.Items).To(HaveLen(1))
		}).WithContext(ctx).Should(Succeed())
		return &list.Items[0]
	}
	jobSet := func(ctx context.Context, name string, change func(*corev1.PodSpec)) *kueue.Workload {
		GinkgoHelper()
		js := newQueued(t.namespace, name, "main")
		js.Labels[apis.QueueLabel] = t.localQueue.Name
		change(&js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec)
		Expect(env.adminClient.Create(ctx, js)).To(Succeed())
		DeferCleanup(deleteJobSets, t.namespace)
		return workloadOf(ctx, apis.JobSetLabel, name)
	}
	gang := func(ctx context.Context, name string, resources corev1.ResourceRequirements) *kueue.Workload {
		GinkgoHelper()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: t.namespace, Name: name,
				Labels:      map[string]string{apis.QueueLabel: t.localQueue.Name, apis.PodGroupNameLabel: name},
				Annotations: map[string]string{"kueue.x-k8s.io/pod-group-total-count": "1"},
			},
			Spec: plainJob(t.namespace, "").Spec.Template.Spec,
		}
		pod.Spec.Containers[0].Resources = resources
		Expect(env.adminClient.Create(ctx, pod)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
		})
		var list kueue.WorkloadList
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(t.namespace), client.HasLabels{apis.PodGroupKey})).To(Succeed())
			g.Expect(list.Items).To(HaveLen(1))
		}).WithContext(ctx).Should(Succeed())
		return &list.Items[0]
	}
	refused := func(ctx context.Context, w *kueue.Workload, why string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			c := apimeta.FindStatusCondition(fresh(ctx, w).Status.Conditions, kueue.WorkloadQuotaReserved)
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Message).To(ContainSubstring(why))
		}).WithContext(ctx).Should(Succeed())
	}
	charged := func(w *kueue.Workload, of corev1.ResourceName) string {
		amount := w.Status.Admission.PodSetAssignments[0].ResourceUsage[of]
		return amount.String()
	}

	It("prevents requests above limits from holding quota", func(ctx SpecContext) {
		wrong := t.workload("wrong", "3")
		wrong.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = cpus("2")
		refused(ctx, create(ctx, wrong), "resources validation failed: spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]: requests must not exceed its limits")
		expect(ctx, wrong, "QuotaReserved=False Pending", "tranche.dev/Waiting=True Misconfigured")
		podLevel := t.workload("pod-level", "1")
		podLevel.Spec.PodSets[0].Template.Spec.Resources = &corev1.ResourceRequirements{Requests: cpus("3"), Limits: cpus("2")}
		refused(ctx, create(ctx, podLevel), "spec.podSets[0].template.spec.resources: Invalid value")
		refused(ctx, jobSet(ctx, "train", func(spec *corev1.PodSpec) {
			spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: cpus("3"), Limits: cpus("2")}
		}), "resources validation failed")
		expect(ctx, create(ctx, t.workload("right", "8")), admitted)
	}, SpecTimeout(patience))

	It("prevents pods outside of a LimitRange from holding quota until the LimitRange changes", func(ctx SpecContext) {
		two := corev1.ResourceRequirements{Requests: cpus("2"), Limits: cpus("2")}
		limits := limitRange(ctx, corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpus("1")})
		plain := t.workload("plain", "2")
		plain.Spec.PodSets[0].Template.Spec.Containers[0].Resources = two
		create(ctx, plain)
		staged := jobSet(ctx, "train", func(spec *corev1.PodSpec) { spec.Containers[0].Resources = two })
		const above = "resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]: requests must not be above the limitRange max"
		for _, w := range []*kueue.Workload{plain, staged} {
			refused(ctx, w, above)
		}
		limits.Spec.Limits[0] = corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: cpus("3")}
		Expect(env.adminClient.Update(ctx, limits)).To(Succeed())
		refused(ctx, plain, "requests must not be below the limitRange min")
		Expect(env.adminClient.Delete(ctx, limits)).To(Succeed())
		expect(ctx, plain, admitted)
		expect(ctx, workloadOf(ctx, apis.JobSetLabel, "train"), admitted)
	}, SpecTimeout(patience))

	It("matters when a pod is created: later LimitRanges neither refuse nor charge gangs of existing pods", func(ctx SpecContext) {
		t.stopLocalQueue(ctx, kueue.Hold)
		large := gang(ctx, "large", corev1.ResourceRequirements{Requests: cpus("2"), Limits: cpus("2")})
		limitRange(ctx, corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpus("1"), Default: cpus("1"), DefaultRequest: cpus("1")})
		// The manager knows the LimitRange when it refuses a quota Workload because of it.
		Expect(env.adminClient.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "open"}, Spec: kueue.LocalQueueSpec{ClusterQueue: t.localQueue.Spec.ClusterQueue},
		})).To(Succeed())
		probe := t.workload("probe", "2")
		probe.Spec.QueueName = "open"
		probe.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = cpus("2")
		refused(ctx, create(ctx, probe), "resources didn't satisfy LimitRange constraints")
		t.stopLocalQueue(ctx, kueue.None)
		Expect(charged(expect(ctx, large, admitted), corev1.ResourceCPU)).To(Equal("2"))
	}, SpecTimeout(patience))

	It("is charged: defaults of LimitRanges, limits and the overhead of a RuntimeClass", func(ctx SpecContext) {
		limitRange(ctx, corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: cpus("4"), DefaultRequest: cpus("3")})
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}, Handler: "kata", Overhead: &nodev1.Overhead{PodFixed: cpus("500m")}}
		Expect(env.adminClient.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, class)).To(Succeed()) })
		empty := t.workload("default", "1")
		empty.Spec.PodSets[0].Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		Expect(charged(expect(ctx, create(ctx, empty), admitted), corev1.ResourceCPU)).To(Equal("3"))
		limited := t.workload("limited", "1")
		limited.Spec.PodSets[0].Template.Spec.RuntimeClassName = &class.Name
		limited.Spec.PodSets[0].Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: cpus("2")}
		Expect(charged(expect(ctx, create(ctx, limited), admitted), corev1.ResourceCPU)).To(Equal("2500m"))
		staged := jobSet(ctx, "train", func(spec *corev1.PodSpec) { spec.RuntimeClassName = &class.Name })
		Expect(charged(expect(ctx, staged, admitted), corev1.ResourceCPU)).To(Equal("3500m"))
	}, SpecTimeout(patience))

	It("is charged to plain quota Workloads, too: the devices that they claim", func(ctx SpecContext) {
		t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
			spec.ResourceGroups[0].CoveredResources = append(spec.ResourceGroups[0].CoveredResources, accelerators)
			for i := range spec.ResourceGroups[0].Flavors {
				flavor := &spec.ResourceGroups[0].Flavors[i]
				flavor.Resources = append(flavor.Resources, kueue.ResourceQuota{Name: accelerators, NominalQuota: resource.MustParse("3")})
			}
		})
		template := func(class string) *resourcev1.ResourceClaimTemplate {
			r := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "two"}}
			r.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Count: 2}}}
			return r
		}
		claims := t.workload("claims", "1")
		claims.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new("two")}}
		refused(ctx, create(ctx, claims), `spec.podSets[0].template.spec.resourceClaims: resource claim "devices" names ResourceClaimTemplate "two", which does not exist: create it`)
		other := template("nic.example.com")
		Expect(env.adminClient.Create(ctx, other)).To(Succeed())
		refused(ctx, claims, `is for DeviceClass "nic.example.com", which no quota is charged for`)
		expect(ctx, claims, "QuotaReserved=False Inadmissible")
		Expect(env.adminClient.Delete(ctx, other)).To(Succeed())
		Expect(env.adminClient.Create(ctx, template(name))).To(Succeed())
		Expect(charged(expect(ctx, claims, admitted), accelerators)).To(Equal("2"))
	}, SpecTimeout(patience))

	It("is charged to the mapping of a DeviceClass that serves an extended resource", func(ctx SpecContext) {
		const extended corev1.ResourceName = "example.com/podrules"
		t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
			spec.ResourceGroups = []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{corev1.ResourceCPU, accelerators},
				Flavors: []kueue.FlavorQuotas{{Name: onDemand, Resources: []kueue.ResourceQuota{
					{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("9")}, {Name: accelerators, NominalQuota: resource.MustParse("9")},
				}}},
			}}
		})
		asks := func(r *corev1.ResourceRequirements) {
			r.Requests, r.Limits = corev1.ResourceList{extended: resource.MustParse("2")}, corev1.ResourceList{extended: resource.MustParse("2")}
		}
		plain := t.workload("plain", "1")
		asks(&plain.Spec.PodSets[0].Template.Spec.Containers[0].Resources)
		refused(ctx, create(ctx, plain), "resource "+string(extended)+" unavailable")
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new(string(extended))}}
		Expect(env.adminClient.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, class)).To(Succeed()) })
		staged := jobSet(ctx, "train", func(spec *corev1.PodSpec) { asks(&spec.Containers[0].Resources) })
		for _, w := range []*kueue.Workload{plain, staged} {
			Expect(charged(expect(ctx, w, admitted), accelerators)).To(Equal("2"))
		}
	}, SpecTimeout(patience))
})

var _ = Describe("Devices where no DeviceClass is mapped", Ordered, func() {
	BeforeAll(func(ctx SpecContext) { startManager(ctx, map[string]any{"resources": map[string]any{}}) }, NodeTimeout(patience))

	It("are refused with the same message before and after the ResourceClaimTemplate exists", func(ctx SpecContext) {
		t := newQueue(ctx)
		refused := func(name string) {
			GinkgoHelper()
			w := t.workload(name, "1")
			w.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new("two")}}
			conditions := expect(ctx, create(ctx, w), "QuotaReserved=False Inadmissible").Status.Conditions
			Expect(apimeta.FindStatusCondition(conditions, kueue.WorkloadQuotaReserved).Message).To(ContainSubstring(
				`resource claim "devices" is for devices, which no quota is charged for: an administrator must map their DeviceClasses in resources.deviceClassMappings`))
		}
		refused("before")
		template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "two"}}
		template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com", Count: 2}}}
		Expect(env.adminClient.Create(ctx, template)).To(Succeed())
		refused("after")
	}, SpecTimeout(patience))
})
