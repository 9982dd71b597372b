package device_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/admission/device"
)

func deviceClass(name, extended string, second int) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(second), 0))}}
	if extended != "" {
		class.Spec.ExtendedResourceName = &extended
	}
	return class
}

func TestExtended(t *testing.T) {
	mapping := device.Mapping{"old": "example.com/gpus", "new": "example.com/accelerators", "same": "example.com/nic"}
	for name, tc := range map[string]struct {
		classes []*resourcev1.DeviceClass
		want    device.Extended
	}{
		"mapped":                  {classes: []*resourcev1.DeviceClass{deviceClass("old", "example.com/gpu", 1)}, want: device.Extended{"example.com/gpu": "example.com/gpus"}},
		"not mapped":              {classes: []*resourcev1.DeviceClass{deviceClass("other", "example.com/gpu", 1)}, want: device.Extended{}},
		"no extended resource":    {classes: []*resourcev1.DeviceClass{deviceClass("old", "", 1)}, want: device.Extended{}},
		"the same name":           {classes: []*resourcev1.DeviceClass{deviceClass("same", "example.com/nic", 1)}, want: device.Extended{}},
		"the newest":              {classes: []*resourcev1.DeviceClass{deviceClass("old", "example.com/gpu", 1), deviceClass("new", "example.com/gpu", 2)}, want: device.Extended{"example.com/gpu": "example.com/accelerators"}},
		"the newest is no longer": {classes: []*resourcev1.DeviceClass{deviceClass("other", "example.com/gpu", 2), deviceClass("old", "example.com/gpu", 1)}, want: device.Extended{}},
		"of the same age":         {classes: []*resourcev1.DeviceClass{deviceClass("old", "example.com/gpu", 1), deviceClass("new", "example.com/gpu", 1)}, want: device.Extended{"example.com/gpu": "example.com/accelerators"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, mapping.Extended(tc.classes)); diff != "" {
				t.Errorf("-want +got: %s", diff)
			}
		})
	}
}

func TestReplace(t *testing.T) {
	extended := device.Extended{"example.com/gpu": "gpus", "example.com/mig": "gpus"}
	list := func(cpu, gpu, mig, gpus string) corev1.ResourceList {
		all := corev1.ResourceList{}
		for name, amount := range map[corev1.ResourceName]string{"cpu": cpu, "example.com/gpu": gpu, "example.com/mig": mig, "gpus": gpus} {
			if amount != "" {
				all[name] = resource.MustParse(amount)
			}
		}
		return all
	}
	for name, tc := range map[string]struct{ requests, charged, want corev1.ResourceList }{
		"nothing":                   {list("1", "", "", ""), list("1", "", "", ""), list("1", "", "", "")},
		"one":                       {list("1", "2", "", ""), list("1", "2", "", ""), list("1", "", "", "2")},
		"two with one name":         {list("", "2", "1", ""), list("", "2", "1", ""), list("", "", "", "3")},
		"added to existing amounts": {list("", "2", "", "1"), list("", "2", "", "1"), list("", "", "", "3")},
		"excluded by other rules":   {list("", "2", "", ""), list("", "", "", ""), list("", "", "", "2")},
		"zero":                      {list("", "0", "", ""), list("", "0", "", ""), list("", "0", "", "")},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.charged.DeepCopy()
			same := cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
			if diff := cmp.Diff(tc.want, extended.Replace(tc.requests, tc.charged), same); diff != "" {
				t.Errorf("-want +got: %s", diff)
			}
			if diff := cmp.Diff(before, tc.charged, same); diff != "" {
				t.Errorf("the argument was changed: %s", diff)
			}
		})
	}
}
