package podgang

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// TestStripDevices: the reduced pod and ResourceClaim in the caches are charged the same as the whole objects.
func TestStripDevices(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "pod", UID: "1"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new("eight")}}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "devices", ResourceClaimName: new("pod-devices")}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ml", Name: "pod-devices", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "1", Controller: new(true)}},
	}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpus", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu.example.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 8,
	}}}
	claim.Status.Allocation = &resourcev1.AllocationResult{}
	strippedPod, err := stripPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	strippedClaim, err := StripClaim(claim)
	if err != nil {
		t.Fatal(err)
	}
	if strippedClaim.(*resourcev1.ResourceClaim).Status.Allocation != nil { //nolint:forcetypeassert // the type is that of the argument
		t.Error("kept too much of the ResourceClaim")
	}
	overhead := func(pod, claim any) corev1.ResourceList {
		c := claim.(*resourcev1.ResourceClaim) //nolint:forcetypeassert // see above
		devices := podgroup.Devices{
			Mapping: device.Mapping{"gpu.example.com": "example.com/gpus"},
			Claims:  map[string]device.Claim{c.Name: {Controller: metav1.GetControllerOfNoCopy(c), Spec: c.Spec}},
		}
		charged, problems := devices.Charge([]*corev1.Pod{pod.(*corev1.Pod)}) //nolint:forcetypeassert // see above
		if len(problems) > 0 || len(charged[0].Spec.ResourceClaims) > 0 {
			t.Errorf("problems %v, claims %v", problems, charged[0].Spec.ResourceClaims)
		}
		return charged[0].Spec.Overhead
	}
	if diff := cmp.Diff(overhead(pod, claim), overhead(strippedPod, strippedClaim)); diff != "" {
		t.Errorf("charges (-whole +stripped):\n%s", diff)
	}
}
