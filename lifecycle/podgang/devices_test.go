package podgang_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

const gpus = corev1.ResourceName("example.com/gpus")

func newDeviceGang(t failer, least int) *world {
	w := newGang(t, 0, "min-available", fmt.Sprint(least))
	w.devices = podgroup.Devices{
		Mapping: device.Mapping{"gpu": gpus}, Claims: map[string]device.Claim{}, Templates: map[string]struct{}{"devices": {}},
	}
	return w
}

// claim creates a pod that claims devices.
func (w *world) claim() *corev1.Pod {
	pod := w.add(1)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new("devices")}}
	return pod
}

// give creates the ResourceClaim of a pod, as Kubernetes does, or replaces it.
func (w *world) give(pod *corev1.Pod, class string, count int64) {
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "devices", ResourceClaimName: new(pod.Name + "-devices")}}
	c := device.Claim{Controller: &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
	}}}
	w.devices.Claims[pod.Name+"-devices"] = c
}

// devicesOf returns how many devices a pod can get.
func (w *world) devicesOf(pod *corev1.Pod) int64 {
	devices := int64(0)
	for _, s := range pod.Status.ResourceClaimStatuses {
		for _, r := range w.devices.Claims[*s.ResourceClaimName].Spec.Devices.Requests {
			devices += r.Exactly.Count
		}
	}
	return devices
}

// uncharged names a pod that runs with more devices than its quota Workload asks for, or is empty.
func (w *world) uncharged() string {
	for _, pod := range w.pods {
		if podgroup.IsGated(pod) || podgroup.IsTerminal(pod) {
			continue
		}
		var charged resource.Quantity
		for _, x := range w.workloads {
			for _, p := range x.Spec.PodSets {
				if strings.HasPrefix(pod.Annotations[apis.AdmissionAnnotation], string(x.UID)+".") && strings.HasSuffix(pod.Annotations[apis.AdmissionAnnotation], "/"+string(p.Name)) {
					charged = stageplan.PodRequests(&p.Template.Spec)[gpus]
				}
			}
		}
		if want := w.devicesOf(pod); charged.Value() != want {
			return fmt.Sprintf("pod %s has %d devices and is charged for %s", pod.Name, want, &charged)
		}
	}
	return ""
}

// TestDevices: a gang asks for quota when its ResourceClaims have been created, and for their devices.
func TestDevices(t *testing.T) {
	w := newDeviceGang(t, 2)
	first, second := w.claim(), w.claim()
	w.settle()
	w.expect("gg", 0, `Kubernetes has not created the ResourceClaims of pod "pod-01"`)
	w.give(first, "gpu", 8)
	w.settle()
	w.expect("gg", 0, `of pod "pod-02"`)
	w.give(second, "gpu", 1)
	w.settle()
	w.expect("gg", 1, "waits for quota")
	var asked []string
	for _, p := range w.workloads[0].Spec.PodSets {
		devices := stageplan.PodRequests(&p.Template.Spec)[gpus]
		asked = append(asked, fmt.Sprintf("%d pods with %s devices and %d claims", p.Count, &devices, len(p.Template.Spec.ResourceClaims)))
	}
	slices.Sort(asked)
	if got := strings.Join(asked, ", "); got != "1 pods with 1 devices and 0 claims, 1 pods with 8 devices and 0 claims" {
		t.Errorf("asked for %s", got)
	}
	w.admitAll()
	w.expect("rr", 1, "has started")
	if first.Spec.ResourceClaims == nil || first.Spec.Overhead != nil {
		t.Errorf("the pod was changed: %+v", first.Spec)
	}
	late := w.claim()
	w.settle()
	w.expect("rrg", 1, "has started")
	w.give(late, "gpu", 3)
	w.settle()
	w.expect("rrg", 2, "has started")
	w.admitAll()
	w.expect("rrr", 2, "has started")
	if why := w.uncharged(); why != "" {
		t.Error(why)
	}

	// A pod that waits for its ResourceClaim prevents the gang from finishing.
	for _, pod := range w.pods {
		pod.Status.Phase = corev1.PodSucceeded
	}
	last := w.claim()
	w.settle()
	w.expect("sssg", 1, "has started")
	w.give(last, "gpu", 1)
	w.settle()
	w.admitAll()
	w.expect("sssr", 2, "has started")
}

// TestPeerDevices: a gang that was admitted for other devices than its pods now have does not start.
func TestPeerDevices(t *testing.T) {
	w := newDeviceGang(t, 1)
	pod := w.claim()
	w.give(pod, "gpu", 1)
	w.settle()
	w.admit(w.workloads[0])
	w.give(pod, "gpu", 8)
	w.settle()
	w.expect("g", 1, "differ from those for which it was admitted")
	w.now = w.now.Add(time.Hour)
	w.settle()
	w.admitAll()
	w.expect("r", 1, "has started")
	if why := w.uncharged(); why != "" {
		t.Error(why)
	}
}

// TestDeviceProblems: a claim that cannot be charged is a problem of its gang.
func TestDeviceProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world, *corev1.Pod)
		want   string
	}{
		"no template": {
			func(w *world, _ *corev1.Pod) { w.devices.Templates = nil },
			`pod "pod-01": resource claim "devices" names ResourceClaimTemplate "devices", which does not exist: create it`,
		},
		"no mapping": {
			func(w *world, pod *corev1.Pod) { w.give(pod, "nic", 1) },
			`pod "pod-01": request "all" of resource claim "devices" is for DeviceClass "nic", which no quota is charged for: an administrator must map it`,
		},
		"shared": {func(_ *world, pod *corev1.Pod) {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimName: new("mine")}}
		}, `pod "pod-01": resource claim "devices" names a ResourceClaim, which pods can share, so that no quota can be charged for it: name a ResourceClaimTemplate; then recreate the pod`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeviceGang(t, 1)
			pod := w.claim()
			tc.change(w, pod)
			w.settle()
			w.expect("g", 0, tc.want)
			if w.last.Message.Reason != "Misconfigured" || !w.last.Message.IsWarning {
				t.Errorf("told as %+v", w.last.Message)
			}
			w.devices.Templates = map[string]struct{}{"devices": {}}
			pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "devices", ResourceClaimTemplateName: new("devices")}
			w.give(pod, "gpu", 1)
			w.settle()
			w.admitAll()
			w.expect("r", 1, "has started")
		})
	}
}

// TestDevicesAreCharged: whatever happens to a gang and to the ResourceClaims of its pods before they start, no pod starts with more devices
// than quota is charged for.
func TestDevicesAreCharged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newDeviceGang(t, rapid.IntRange(1, 3).Draw(t, "least"))
		w.settings[apis.KoordinatorPrefix+"mode"] = rapid.SampledFrom([]string{"Strict", "NonStrict"}).Draw(t, "mode")
		pod := func() *corev1.Pod { return w.pods[rapid.IntRange(0, len(w.pods)-1).Draw(t, "pod")] }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				if len(w.pods) < 6 {
					w.claim()
				}
			},
			"claim": func(t *rapid.T) {
				if len(w.pods) > 0 {
					if p := pod(); podgroup.IsGated(p) {
						w.give(p, rapid.SampledFrom([]string{"gpu", "gpu", "gpu", "nic"}).Draw(t, "class"), rapid.SampledFrom([]int64{0, 1, 8}).Draw(t, "devices"))
					}
				}
			},
			"lose": func(*rapid.T) {
				if len(w.pods) > 0 {
					if p := pod(); podgroup.IsGated(p) {
						delete(w.devices.Claims, p.Name+"-devices")
					}
				}
			},
			"end": func(*rapid.T) {
				if len(w.pods) > 0 {
					w.vanish(pod())
				}
			},
			"admit": func(*rapid.T) {
				for _, x := range slices.Clone(w.workloads) {
					w.admit(x)
				}
			},
			"preempt": func(*rapid.T) {
				if len(w.workloads) > 0 {
					x := w.workloads[rapid.IntRange(0, len(w.workloads)-1).Draw(t, "workload")]
					if quotaworkload.HoldsQuota(x) && !quotaworkload.IsTrue(x, kueue.WorkloadEvicted) && !quotaworkload.IsTrue(x, kueue.WorkloadFinished) {
						w.preempt(x)
					}
				}
			},
			"": func(*rapid.T) {
				w.settle()
				if why := w.uncharged(); why != "" {
					t.Error(why)
				}
			},
		})
	})
}

// TestDeviceProblemIsStable: caches list pods in any order, and a message that follows that order would be written again and again.
func TestDeviceProblemIsStable(t *testing.T) {
	w := newDeviceGang(t, 3)
	for range 3 {
		w.give(w.claim(), "nic", 1)
	}
	_, want := w.devices.Charge(w.pods)
	if len(want) != 1 {
		t.Fatalf("%d problems: %q, want one", len(want), want)
	}
	slices.Reverse(w.pods)
	if _, got := w.devices.Charge(w.pods); !slices.Equal(got, want) {
		t.Errorf("with the pods in another order the problem is %q, want %q", got, want)
	}
}
