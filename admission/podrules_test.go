package admission_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

// The status of a waiting stage reports its demand, also when only that changes.
func TestRefusalFollowsLimitRange(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: cpu=4", func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = new(kueue.Hold) })
	w.lone("q", "a", "gpu=1", func(wl *kueue.Workload) {
		wl.Spec.PodSets[0].Template.Spec.Containers = []corev1.Container{{Name: "main"}}
	})
	for _, cpu := range []string{"1", "2"} {
		limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "defaults", UID: "defaults", ResourceVersion: cpu}}
		limits.Spec.Limits = []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}
		w.engine.Apply(admission.LimitRangeObserved{LimitRange: limits})
		var asked []string
		for _, d := range w.engine.Decide(w.now()) {
			if r, ok := d.(admission.Refuse); ok {
				amount := r.Wait().Requests[0].Resources[corev1.ResourceCPU]
				asked = append(asked, amount.String())
			}
		}
		if len(asked) != 1 || asked[0] != cpu {
			t.Errorf("refused with requests %v, want %s cpu once", asked, cpu)
		}
	}
}

// A quota Workload of another controller is charged for the devices that its pods claim, whenever its ResourceClaimTemplate is created, and keeps
// that charge when the ResourceClaimTemplate is gone.
func TestChargesClaimedDevices(t *testing.T) {
	w := newWorld(t, admission.Config{Devices: device.Mapping{"gpu.example.com": gpu}})
	w.queue("q", "a100: gpu=8")
	claims := func(wl *kueue.Workload) {
		wl.Spec.PodSets[0].Count = 2
		wl.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new("three")}}
	}
	template := func(class, uid string) {
		template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "three", UID: types.UID(uid), ResourceVersion: uid}}
		template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 3,
		}}}
		w.engine.Apply(admission.ClaimTemplateObserved{Template: template})
	}
	gone := admission.ClaimTemplateGone{Key: admission.StageKey{Namespace: "ns", Name: "three"}}
	w.lone("q", "a", "", claims)
	w.wantAdmitted()
	w.wantRefusal("a", "IsSupported", "Misconfigured", `spec.podSets[0].template.spec.resourceClaims: resource claim "devices" names ResourceClaimTemplate "three", which does not exist`)
	template("nic.example.com", "1")
	w.wantAdmitted()
	w.wantRefusal("a", "IsSupported", "Misconfigured", `is for DeviceClass "nic.example.com", which no quota is charged for`)
	w.engine.Apply(gone)
	template("gpu.example.com", "2")
	w.wantAdmitted("a")
	if got := w.used("q"); !strings.Contains(got, "6") {
		t.Errorf("uses %s, want 6 devices", got)
	}
	w.lone("q", "b", "", claims)
	w.wantAdmitted()
	w.wantRefusal("b", "QuotaFits", "WaitingForQuota", "needs 6 nvidia.com/gpu of flavor a100: 2 of 8 free")
	w.engine.Apply(gone)
	w.wantAdmitted()
	if got := w.used("q"); !strings.Contains(got, "6") {
		t.Errorf("uses %s without the ResourceClaimTemplate, want 6 devices", got)
	}
}

// A stage that has finished in an earlier attempt has to run again. If the API server would no longer create its pods, the first stage of the new
// attempt is not admitted, in whatever order the quota Workloads are observed.
func TestRestartMeetsLimitRange(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: cpu=8")
	w.submit("q", "js", job{name: "init", requests: "cpu=1"}, job{name: "load", requests: "cpu=6", after: []string{"init Complete"}},
		job{name: "train", requests: "cpu=2", after: []string{"load Complete"}})
	for _, name := range []string{"init", "load"} {
		w.wantAdmitted("js-" + name)
		w.reach("js", name, stageplan.Succeeded)
	}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "most", UID: "most"}}
	most := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	limits.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: most, Default: most}} // the API server sets this default
	w.engine.Apply(admission.LimitRangeObserved{LimitRange: limits})
	w.wantAdmitted("js-train")

	w.change("js-init", func(wl *kueue.Workload) {
		wl.Annotations = map[string]string{apis.AttemptAnnotation: "1"}
		wl.Status = kueue.WorkloadStatus{}
	})
	w.wantAdmitted()
	w.wantRefusal("js-init", "IsInPlan", kueue.WorkloadQuotaReservedReasonMisconfigured, `raise the limits of the pods of "load"`)
}

// A pod set of which no pod has still to be created violates no LimitRange.
func TestPodSetsWithoutPods(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: cpu=16")
	four := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "most", UID: "most"}}
	limits.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: four, Default: four}}
	w.engine.Apply(admission.LimitRangeObserved{LimitRange: limits})
	large := func(count int32) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Spec.PodSets = append(wl.Spec.PodSets, kueue.PodSet{Name: "large", Count: count, Template: template("cpu=8")})
		}
	}
	w.lone("q", "none", "cpu=2", large(0))
	w.lone("q", "done", "cpu=2", large(1), func(wl *kueue.Workload) {
		wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "large", Count: 1}}
	})
	w.lone("q", "one", "cpu=2", large(1))
	w.wantAdmitted("none", "done")
	w.wantRefusal("one", "PodsAreValid", "Misconfigured", `of the pods of "large"`)

	w.submit("q", "js", job{name: "load", requests: "cpu=8"}, job{name: "train", requests: "cpu=2", after: []string{"load Complete"}})
	w.wantAdmitted()
	js := w.jobSets["js"]
	js.plan.Stages[0].PodSets[0].Count = 0
	w.putPlan(js)
	w.change("js-load", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 0 })
	w.wantAdmitted("js-load")
}
