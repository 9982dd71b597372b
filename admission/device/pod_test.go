package device_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// claiming returns a pod for whose resource claims ResourceClaims of these names have been created, or none if a name is empty.
func claiming(created ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}, Spec: pod().Spec}
	for _, name := range created {
		claim := "c-" + name
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimTemplateName: new("t")})
		if name != "" {
			p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: claim, ResourceClaimName: &name})
		}
	}
	return p
}

func claim(owner types.UID, requests ...resourcev1.DeviceRequest) device.Claim {
	c := device.Claim{Spec: template("", requests...).Spec}
	if owner != "" {
		c.Controller = &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: owner}
	}
	return c
}

// TestChargePod: a pod is charged for the ResourceClaims that were created for it.
func TestChargePod(t *testing.T) {
	mapping := device.Mapping{"gpu": whole}
	ofGroup := claim("group", exactly("gpu", 3))
	ofGroup.Controller.APIVersion, ofGroup.Controller.Kind, ofGroup.Controller.Name = "scheduling.k8s.io/v1alpha2", "PodGroup", "g"
	claims := map[string]device.Claim{
		"eight": claim("p", exactly("gpu", 8)), "one": claim("p", exactly("gpu", 1)), "others": claim("other", exactly("gpu", 1)),
		"free": claim("", exactly("gpu", 1)), "nic": claim("p", exactly("nic", 1)), "group": ofGroup,
	}
	inGroup, unneeded, named := claiming("group"), claiming("eight"), claiming("one")
	inGroup.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
	unneeded.Status.ResourceClaimStatuses[0].ResourceClaimName = nil
	named.Spec.ResourceClaims[0].ResourceClaimTemplateName, named.Spec.ResourceClaims[0].ResourceClaimName = nil, new("one")
	const isMissing = `names ResourceClaimTemplate "t", which does not exist`
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
		// problem is a part of the message, instead.
		problem string
	}{
		"no claim":                    {pod: claiming(), want: "0"},
		"one claim":                   {pod: claiming("eight"), want: "8"},
		"several claims":              {pod: claiming("eight", "one"), want: "9"},
		"that of its PodGroup":        {pod: inGroup, want: "3"},
		"none needed":                 {pod: unneeded, want: "0"},
		"not created":                 {pod: claiming("one", ""), problem: isMissing},
		"deleted":                     {pod: claiming("gone"), problem: isMissing},
		"that of another pod":         {pod: claiming("others"), problem: isMissing},
		"that of another PodGroup":    {pod: claiming("group"), problem: isMissing},
		"what nothing controls":       {pod: claiming("free"), problem: isMissing},
		"not mapped":                  {pod: claiming("nic"), problem: `for DeviceClass "nic", which no quota is charged for`},
		"a ResourceClaim that it has": {pod: named, problem: "which pods can share"},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.pod.DeepCopy()
			charged, problem := mapping.ChargePod(tc.pod, claims)
			if diff := cmp.Diff(before, tc.pod); diff != "" {
				t.Errorf("the pod changed: %s", diff)
			}
			if tc.problem != "" {
				if problem == nil || !strings.Contains(problem.Message, tc.problem) || problem.IsMissing != (tc.problem == isMissing) || charged != tc.pod {
					t.Errorf("problem %+v, want %q", problem, tc.problem)
				}
				return
			}
			requests := stageplan.PodRequests(&charged.Spec)
			if got := requests[whole]; problem != nil || got.String() != tc.want || len(charged.Spec.ResourceClaims) > 0 {
				t.Errorf("the pod asks for %v with claims %v, problem %+v; want %s devices", requests, charged.Spec.ResourceClaims, problem, tc.want)
			}
		})
	}
}

// TestPodsWithoutMapping: the problem does not depend on the ResourceClaims of the pod, and is that of the administrator.
func TestPodsWithoutMapping(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: new("eight")}}}}
	charged, problem := device.Mapping(nil).ChargePod(pod, nil)
	if charged != pod || problem == nil || !problem.IsUnmapped || problem.IsMissing || !strings.Contains(problem.Message, `resource claim "gpus" is for devices`) {
		t.Errorf("problem %+v, want one for the administrator", problem)
	}
}

// TestRequests has every way in which Kubernetes lets a request name devices: each is charged for at least the devices that it can get, or refused.
func TestRequests(t *testing.T) {
	mapping := device.Mapping{"gpu": whole}
	rapid.Check(t, func(t *rapid.T) {
		devices, isFree := int64(0), false
		var requests []resourcev1.DeviceRequest
		for range rapid.IntRange(0, 4).Draw(t, "requests") {
			r := exactly(rapid.SampledFrom([]string{"gpu", "gpu", "nic", ""}).Draw(t, "class"), rapid.Int64Range(1, 9).Draw(t, "count"))
			r.Exactly.AllocationMode = rapid.SampledFrom([]resourcev1.DeviceAllocationMode{
				resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeAll, "",
			}).Draw(t, "mode")
			if rapid.Bool().Draw(t, "capacity") {
				r.Exactly.Capacity = &resourcev1.CapacityRequirements{}
			}
			if rapid.IntRange(0, 4).Draw(t, "admin") == 0 {
				r.Exactly.AdminAccess = new(true)
			}
			devices += r.Exactly.Count
			isFree = isFree || r.Exactly.DeviceClassName != "gpu" || r.Exactly.AllocationMode != resourcev1.DeviceAllocationModeExactCount || r.Exactly.AdminAccess != nil
			if rapid.IntRange(0, 4).Draw(t, "alternatives") == 0 {
				r = resourcev1.DeviceRequest{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}
				isFree = true
			}
			requests = append(requests, r)
		}
		charged, problem := mapping.ChargePod(claiming("claim"), map[string]device.Claim{"claim": claim("p", requests...)})
		if (problem != nil) != isFree {
			t.Fatalf("problem %+v of requests %+v, want one: %t", problem, requests, isFree)
		}
		if got := stageplan.PodRequests(&charged.Spec)[whole]; problem == nil && got.Value() != devices {
			t.Errorf("charged %s for %d devices of %+v", &got, devices, requests)
		}
	})
}
