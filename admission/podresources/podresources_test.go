package podresources_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/admission/podresources"
)

// list parses "cpu=2 memory=1Gi".
func list(text string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for word := range strings.FieldsSeq(text) {
		name, amount, _ := strings.Cut(word, "=")
		all[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// A limitRange has a type, and lists in the format of list.
type limitRange struct{ limitType, max, min, limit, request, ratio string }

func merged(ranges []limitRange) podresources.Limits {
	var all []*corev1.LimitRange
	for i, r := range ranges {
		all = append(all, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("r%d", i)}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitType(r.limitType), Max: list(r.max), Min: list(r.min), Default: list(r.limit), DefaultRequest: list(r.request), MaxLimitRequestRatio: list(r.ratio),
		}}}})
	}
	return podresources.Merge(all)
}

func container(requests, limits string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}}
}

func TestEffective(t *testing.T) {
	const ofContainer = "Container"
	for name, tc := range map[string]struct {
		ranges   []limitRange
		pod      corev1.PodSpec
		overhead string
		want     corev1.PodSpec
	}{
		"nothing to add": {pod: corev1.PodSpec{Containers: []corev1.Container{container("cpu=1", "")}}, want: corev1.PodSpec{Containers: []corev1.Container{container("cpu=1", "")}}},
		"defaults": {
			ranges: []limitRange{{limitType: ofContainer, limit: "cpu=2", request: "cpu=1"}},
			pod:    corev1.PodSpec{InitContainers: []corev1.Container{container("", "")}, Containers: []corev1.Container{container("memory=1Gi", "")}},
			want:   corev1.PodSpec{InitContainers: []corev1.Container{container("cpu=1", "cpu=2")}, Containers: []corev1.Container{container("cpu=1 memory=1Gi", "cpu=2")}},
		},
		"its own limit before the default request": {
			ranges: []limitRange{{limitType: ofContainer, limit: "cpu=2", request: "cpu=1"}},
			pod:    corev1.PodSpec{Containers: []corev1.Container{container("", "cpu=4")}},
			want:   corev1.PodSpec{Containers: []corev1.Container{container("cpu=4", "cpu=4")}},
		},
		"a limit of the pod before the default request of its containers": {
			ranges: []limitRange{{limitType: ofContainer, request: "cpu=1"}},
			pod:    corev1.PodSpec{Containers: []corev1.Container{container("", "")}, Resources: &corev1.ResourceRequirements{Limits: list("cpu=4")}},
			want: corev1.PodSpec{
				Containers: []corev1.Container{container("cpu=1", "")}, Resources: &corev1.ResourceRequirements{Limits: list("cpu=4"), Requests: list("cpu=4")},
			},
		},
		"the sum of the containers before a limit of the pod": {
			ranges: []limitRange{{limitType: ofContainer, request: "cpu=1"}},
			pod: corev1.PodSpec{
				Containers: []corev1.Container{container("cpu=1 example.com/gpu=1", "example.com/gpu=1"), container("", "")},
				Resources:  &corev1.ResourceRequirements{Limits: list("cpu=4")},
			},
			want: corev1.PodSpec{
				Containers: []corev1.Container{container("cpu=1 example.com/gpu=1", "example.com/gpu=1"), container("cpu=1", "")},
				Resources:  &corev1.ResourceRequirements{Limits: list("cpu=4"), Requests: list("cpu=1")},
			},
		},
		"the first of several defaults": {
			ranges: []limitRange{{limitType: ofContainer, request: "cpu=1"}, {limitType: ofContainer, request: "cpu=2 memory=1Gi"}},
			pod:    corev1.PodSpec{Containers: []corev1.Container{container("", "")}},
			want:   corev1.PodSpec{Containers: []corev1.Container{container("cpu=1 memory=1Gi", "")}},
		},
		"defaults of another type": {
			ranges: []limitRange{{limitType: "PersistentVolumeClaim", request: "cpu=1"}},
			pod:    corev1.PodSpec{Containers: []corev1.Container{container("", "")}},
			want:   corev1.PodSpec{Containers: []corev1.Container{container("", "")}},
		},
		"overhead": {overhead: "cpu=1", pod: corev1.PodSpec{}, want: corev1.PodSpec{Overhead: list("cpu=1")}},
		"its own overhead": {
			overhead: "cpu=1", pod: corev1.PodSpec{Overhead: list("memory=1Gi")}, want: corev1.PodSpec{Overhead: list("memory=1Gi")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			limits, before := merged(tc.ranges), tc.pod.DeepCopy()
			if diff := cmp.Diff(&tc.want, limits.Effective(&tc.pod, list(tc.overhead))); diff != "" {
				t.Errorf("effective (-want +got): %s", diff)
			}
			if diff := cmp.Diff(before, &tc.pod); diff != "" {
				t.Errorf("the template was changed (-before +after): %s", diff)
			}
		})
	}
}

// A violation is a pod in a namespace with LimitRanges, and part of what Violation reports of it.
type violation struct {
	ranges []limitRange
	pod    corev1.PodSpec
	want   string
}

func (tc *violation) check(t *testing.T) {
	t.Helper()
	limits := merged(tc.ranges)
	got := limits.Violation([]podresources.PodSet{{Name: "b", Index: 1, Spec: &tc.pod}})
	if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
		t.Errorf("got  %q\nwant %q", got, tc.want)
	}
}

func TestViolation(t *testing.T) {
	const field = "spec.podSets[1].template.spec"
	podLevel := func(requests, limits string) corev1.PodSpec {
		r := container(requests, limits).Resources
		return corev1.PodSpec{Containers: []corev1.Container{container("cpu=1", "cpu=1")}, Resources: &r}
	}
	one := func(requests, limits string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{container(requests, limits)}}
	}
	for name, tc := range map[string]violation{
		"within its limits": {pod: one("cpu=1 memory=2Gi", "cpu=1")},
		"above its limits":  {pod: one("cpu=2 memory=2Gi", "cpu=1 memory=1Gi"), want: "resources validation failed: " + field + `.containers[0]: Invalid value: ["cpu","memory"]: requests must not exceed its limits`},
		"init container": {
			pod:  corev1.PodSpec{InitContainers: []corev1.Container{container("", ""), container("cpu=2", "cpu=1")}},
			want: field + `.initContainers[1]: Invalid value: ["cpu"]: requests must not exceed its limits`,
		},
		"of the pod": {pod: podLevel("cpu=2", "cpu=1"), want: field + `.resources: Invalid value: ["cpu"]: requests must not exceed its limits`},
		"above the maximum of a container": {
			ranges: []limitRange{{limitType: "Container", max: "cpu=4"}, {limitType: "Container", max: "cpu=1"}},
			pod:    one("cpu=2", "cpu=3"), want: "resources didn't satisfy LimitRange constraints: " + field + `.containers[0]: Invalid value: ["cpu"]: requests must not be above the limitRange max; change the pods of "b", or LimitRange r0, r1`,
		},
		"limit above the maximum": {ranges: []limitRange{{limitType: "Container", max: "cpu=2"}}, pod: one("cpu=1", "cpu=3"), want: "above the limitRange max"},
		"below the minimum of a container": {
			ranges: []limitRange{{limitType: "Container", min: "cpu=3"}}, pod: one("cpu=2", "cpu=3"), want: field + `.containers[0]: Invalid value: ["cpu"]: requests must not be below the limitRange min`,
		},
		"several": {
			ranges: []limitRange{{limitType: "Container", max: "cpu=1"}, {limitType: "Pod", max: "cpu=1"}}, pod: one("cpu=2", "cpu=2"),
			want: "[" + field + `.containers[0]: Invalid value: ["cpu"]: requests must not be above the limitRange max, ` + field + `: Invalid value`,
		},
	} {
		t.Run(name, func(t *testing.T) { tc.check(t) })
	}
}
