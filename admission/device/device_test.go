package device_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

const whole = corev1.ResourceName("example.com/whole-gpus")

func exactly(class string, count int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
	}}
}

func template(uid types.UID, requests ...resourcev1.DeviceRequest) device.Template {
	return device.Template{UID: uid, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}}
}

func pod(templates ...string) *corev1.PodTemplateSpec {
	p := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}}}}
	for _, name := range templates {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "c-" + name, ResourceClaimTemplateName: &name})
	}
	return p
}

func TestCharge(t *testing.T) {
	mapping := device.Mapping{"gpu": whole, "big-gpu": whole}
	admin, all, first := exactly("gpu", 1), exactly("gpu", 1), resourcev1.DeviceRequest{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{{}}}
	admin.Exactly.AdminAccess = new(true)
	all.Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
	templates := map[string]device.Template{
		"eight": template("1", exactly("gpu", 8)), "two": template("2", exactly("gpu", 1), exactly("big-gpu", 1)), "none": template("3"),
		"admin": template("4", admin), "all": template("5", all), "first": template("6", first), "nic": template("7", exactly("nic", 1)),
		"huge": template("8", exactly("gpu", 1<<62)),
	}
	for name, tc := range map[string]struct {
		pod  *corev1.PodTemplateSpec
		want string
		// problem is a part of the message, instead.
		problem   string
		isMissing bool
	}{
		"one claim":      {pod: pod("eight"), want: "8"},
		"several claims": {pod: pod("eight", "two"), want: "10"},
		"no devices":     {pod: pod("none"), want: "0"},
		"sum too large":  {pod: pod("huge", "huge"), want: "9223372036854775808"},
		"missing":        {pod: pod("eight", "gone"), problem: `resource claim "c-gone" names ResourceClaimTemplate "gone", which does not exist`, isMissing: true},
		"admin access":   {pod: pod("admin"), problem: "has adminAccess"},
		"all devices":    {pod: pod("all"), problem: `has the allocationMode "All"`},
		"alternatives":   {pod: pod("first"), problem: "lists alternatives (firstAvailable)"},
		"not mapped":     {pod: pod("nic"), problem: `for DeviceClass "nic", which no quota is charged for: an administrator must map it in resources.deviceClassMappings`},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.pod.DeepCopy()
			problem := mapping.Charge(tc.pod, templates)
			if tc.problem != "" {
				if problem == nil || !strings.Contains(problem.Message, tc.problem) || problem.IsMissing != tc.isMissing {
					t.Errorf("problem %+v, want %q", problem, tc.problem)
				}
				if diff := cmp.Diff(before, tc.pod); diff != "" {
					t.Errorf("the pod template changed: %s", diff)
				}
				return
			}
			if problem != nil {
				t.Fatalf("problem %+v", problem)
			}
			requests := stageplan.PodRequests(&tc.pod.Spec)
			got, cpu := requests[whole], requests[corev1.ResourceCPU]
			if got.String() != tc.want || cpu.String() != "1" || len(tc.pod.Spec.ResourceClaims) > 0 {
				t.Errorf("the pod asks for %v with claims %v, want %s devices", requests, tc.pod.Spec.ResourceClaims, tc.want)
			}
		})
	}
	for name, known := range map[string]map[string]device.Template{"existing": templates, "unread": nil} {
		if problem := device.Mapping(nil).Charge(pod("eight"), known); problem == nil || !problem.IsUnmapped || problem.IsMissing ||
			!strings.Contains(problem.Message, `"c-eight" is for devices, which no quota is charged for: an administrator must map`) {
			t.Errorf("%s ResourceClaimTemplate without a mapping: problem %+v", name, problem)
		}
	}
	shared := pod()
	shared.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("shared")}}
	if problem := mapping.Charge(shared, nil); problem == nil || !strings.Contains(problem.Message, "which pods can share") {
		t.Errorf("a shared ResourceClaim: problem %+v", problem)
	}
}

// TestSame replaces a ResourceClaimTemplate by another of its name: pods may have claims of either.
func TestSame(t *testing.T) {
	mapping := device.Mapping{"gpu": whole}
	charged, replaced, gone, unresolved := pod("t"), pod("t"), pod("t"), pod("t")
	mapping.Charge(charged, map[string]device.Template{"t": template("1", exactly("gpu", 1))})
	mapping.Charge(replaced, map[string]device.Template{"t": template("2", exactly("gpu", 1))})
	device.Inherit(gone, charged)
	if device.IsSame(charged, replaced) || device.IsSame(charged, unresolved) || !device.IsSame(charged, gone) || !device.IsSame(pod(), pod()) {
		t.Error("IsSame: want false for another UID and for a claim that is left, true for what is inherited")
	}
	if diff := cmp.Diff(charged, gone); diff != "" {
		t.Errorf("inherited: %s", diff)
	}
}
