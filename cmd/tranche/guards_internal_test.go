package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// The policies of one mode do not serve the other.
func TestKueueManager(t *testing.T) {
	for name, c := range map[string]struct {
		mode configapi.Mode
		user string
		want string
	}{
		"instead of Kueue":                        {configapi.ModeInstead, "", ""},
		"instead, with the policies for Kueue":    {configapi.ModeInstead, "kueue", "install config/default"},
		"beside Kueue":                            {configapi.ModeBeside, "kueue", ""},
		"beside, with the policies without Kueue": {configapi.ModeBeside, "", "install config/beside"},
	} {
		err := checkKueueManager(&corev1.ConfigMap{Data: map[string]string{"kueueManager": c.user}}, c.mode)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Beside a Kueue that is older than what Tranche relies on, the manager does not start. A version that cannot be read may be any.
func TestVersionBeside(t *testing.T) {
	for version, isRefused := range map[string]bool{
		"v0.18.9": true, "v0.9.0": true, "v0.18.0-rc.1": true, "v0.19.0": false, "v0.19.2": false, "v0.20.0": false, "v1.0.0": false, "": false, "main": false,
		"v20260101-v0.18.0-5-gabcdef": false,
	} {
		err := checkVersion(version, "system:serviceaccount:kueue-system:kueue-controller-manager")
		if (err != nil) != isRefused || err != nil && !strings.Contains(err.Error(), version+": install Kueue 0.19 or later") {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

// A lock that is left over from the mode Beside would keep the manager from admitting anything.
func TestTakeovers(t *testing.T) {
	lock := &corev1.ConfigMap{Data: map[string]string{"manager": "m", "queue.b": "Tranche", "queue.a": "Tranche", "cohort.c": "Locked"}}
	if err := checkTakeovers(lock, configapi.ModeInstead); err == nil || !strings.Contains(err.Error(), "tranche hand-back a b;") {
		t.Errorf("taken over: %v", err)
	}
	if err := checkTakeovers(lock, configapi.ModeBeside); err != nil {
		t.Errorf("beside: %v", err)
	}
	if err := checkTakeovers(&corev1.ConfigMap{Data: map[string]string{"manager": "m"}}, configapi.ModeInstead); err != nil {
		t.Errorf("handed back: %v", err)
	}
}

// The policies refuse pods with accelerators, which the manager counts, too.
func TestAccelerators(t *testing.T) {
	for named, isEqual := range map[string]bool{"": false, "a": false, "a\nb": true, "b\na\n": true, "a\nc": false, "a\nb\nc": false} {
		err := checkAccelerators(&corev1.ConfigMap{Data: map[string]string{"accelerators": named}}, []corev1.ResourceName{"b", "a"})
		if (err == nil) != isEqual || err != nil && !strings.Contains(err.Error(), "coStart.accelerators is") {
			t.Errorf("%q: %v", named, err)
		}
	}
	if err := checkAccelerators(&corev1.ConfigMap{}, nil); err != nil {
		t.Errorf("by default: %v", err)
	}
}

func TestWaitingContainer(t *testing.T) {
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	cases := map[string]struct {
		data map[string]string
		want *corev1.Container
		// wantErr is a part of the error.
		wantErr string
	}{
		"turned off": {data: map[string]string{"groupStartCPU": "x"}},
		"without requests": {data: map[string]string{"groupStartImage": "tranche", "groupStartCPU": ""}, want: &corev1.Container{
			Name: "group-scheduling-init", Image: "tranche",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}},
		}},
		"with requests": {
			data: map[string]string{"groupStartImage": "tranche", "groupStartCPU": "10m", "groupStartMemory": "16Mi"},
			want: &corev1.Container{
				Name: "group-scheduling-init", Image: "tranche", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
			},
		},
		"invalid quantity":  {data: map[string]string{"groupStartImage": "tranche", "groupStartCPU": "much"}, wantErr: `data.groupStartCPU is "much"`},
		"negative quantity": {data: map[string]string{"groupStartImage": "tranche", "groupStartMemory": "-1"}, wantErr: `data.groupStartMemory is "-1"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := waitingContainer(c.data)
			if (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("err = %v, want %q", err, c.wantErr)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
