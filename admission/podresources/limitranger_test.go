package podresources_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The cases are those of the LimitRanger of the API server.
func TestContainerViolation(t *testing.T) {
	const field = "spec.podSets[1].template.spec"
	init := func(requests, limits string) corev1.PodSpec {
		return corev1.PodSpec{InitContainers: []corev1.Container{container(requests, limits)}}
	}
	one := func(requests, limits string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{container(requests, limits)}}
	}
	maximum := []limitRange{{limitType: "Container", max: "cpu=4"}}
	minimum := []limitRange{{limitType: "Container", min: "cpu=2"}}
	ratio := []limitRange{{limitType: "Container", ratio: "cpu=3"}, {limitType: "Container", ratio: "cpu=1500m"}}
	for name, tc := range map[string]violation{
		"no limit":                      {ranges: maximum, pod: one("cpu=1", ""), want: field + `.containers[0]: Invalid value: ["cpu"]: limits must be set because of the limitRange max`},
		"no limit of an init container": {ranges: maximum, pod: init("", ""), want: field + `.initContainers[0]: Invalid value: ["cpu"]: limits must be set because of the limitRange max`},
		"no limit and a high request":   {ranges: maximum, pod: one("cpu=5", ""), want: `LimitRange constraints: ` + field + `.containers[0]: Invalid value: ["cpu"]: requests must not be above the limitRange max; change`},
		"a limit":                       {ranges: maximum, pod: one("", "cpu=4")},
		"no request":                    {ranges: minimum, pod: one("memory=1Gi", "memory=1Gi"), want: `["cpu"]: requests must be set because of the limitRange min`},
		"a limit is the request":        {ranges: minimum, pod: one("", "cpu=2")},
		"a low request":                 {ranges: minimum, pod: one("cpu=1", "cpu=2"), want: "requests must not be below the limitRange min"},
		"within the lowest ratio":       {ranges: ratio, pod: one("cpu=2", "cpu=3")},
		"above the lowest ratio":        {ranges: ratio, pod: one("cpu=2", "cpu=3001m"), want: "limits must not be above the requests times the limitRange maxLimitRequestRatio"},
		"no request for a ratio":        {ranges: ratio, pod: one("", ""), want: "limitRange maxLimitRequestRatio, and both must be set"},
		"no limit for a ratio":          {ranges: ratio, pod: init("cpu=1", ""), want: field + `.initContainers[0]: Invalid value: ["cpu"]: limits must not be above`},
		"a request of 0 for a ratio":    {ranges: ratio, pod: one("cpu=0", "cpu=1"), want: "limitRange maxLimitRequestRatio"},
		"finer than the API server":     {ranges: maximum, pod: one("cpu=3999900u", "cpu=3999100u")},
		"too large for thousandths": {
			ranges: []limitRange{{limitType: "Container", max: "memory=8Ei"}}, pod: one("memory=7Ei", "memory=6Ei"), want: "requests must not exceed its limits",
		},
	} {
		t.Run(name, func(t *testing.T) { tc.check(t) })
	}
}

func TestPodViolation(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := func(requests, limits string) corev1.Container {
		c := container(requests, limits)
		c.RestartPolicy = &always
		return c
	}
	two := func(requests, limits string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{container(requests, limits), container(requests, limits)}}
	}
	withInit := func(spec corev1.PodSpec, init ...corev1.Container) corev1.PodSpec {
		spec.InitContainers = init
		return spec
	}
	podLevel := func(spec corev1.PodSpec, requests, limits string) corev1.PodSpec {
		r := container(requests, limits).Resources
		spec.Resources = &r
		return spec
	}
	maximum := []limitRange{{limitType: "Pod", max: "cpu=4"}}
	minimum := []limitRange{{limitType: "Pod", min: "cpu=4"}}
	ratio := []limitRange{{limitType: "Pod", ratio: "cpu=2"}}
	for name, tc := range map[string]violation{
		"sum of limits":                     {ranges: maximum, pod: two("cpu=1", "cpu=2")},
		"sum of limits above the maximum":   {ranges: maximum, pod: two("cpu=1", "cpu=3"), want: `spec.podSets[1].template.spec: Invalid value: ["cpu"]: requests must not be above the limitRange max`},
		"sum of requests above the maximum": {ranges: maximum, pod: two("cpu=3", ""), want: "requests must not be above the limitRange max"},
		"no limit":                          {ranges: maximum, pod: two("cpu=1", ""), want: "limits must be set because of the limitRange max"},
		"one of two limits":                 {ranges: maximum, pod: corev1.PodSpec{Containers: []corev1.Container{container("cpu=1", "cpu=2"), container("", "")}}},
		"init container above the maximum":  {ranges: maximum, pod: withInit(two("cpu=1", "cpu=2"), container("", "cpu=5")), want: "above the limitRange max"},
		"init container within the maximum": {ranges: maximum, pod: withInit(two("cpu=1", "cpu=2"), container("", "cpu=4"))},
		"sidecar above the maximum":         {ranges: maximum, pod: withInit(two("cpu=1", "cpu=2"), sidecar("", "cpu=1")), want: "above the limitRange max"},
		"pod-level limit":                   {ranges: maximum, pod: podLevel(two("cpu=1", "cpu=3"), "cpu=2", "cpu=4")},
		"pod-level limit above the maximum": {ranges: maximum, pod: podLevel(two("cpu=1", ""), "cpu=2", "cpu=5"), want: "above the limitRange max"},
		"pod-level request alone":           {ranges: maximum, pod: podLevel(two("cpu=1", ""), "cpu=2", ""), want: "limits must be set because of the limitRange max"},
		"no request":                        {ranges: minimum, pod: two("memory=1Gi", ""), want: "requests must be set because of the limitRange min"},
		"sum of requests below the minimum": {ranges: minimum, pod: two("cpu=1", "cpu=2"), want: "requests must not be below the limitRange min"},
		"sum of requests":                   {ranges: minimum, pod: two("cpu=2", "")},
		"sum of limits below the minimum":   {ranges: minimum, pod: corev1.PodSpec{Containers: []corev1.Container{container("cpu=3", ""), container("cpu=1", "cpu=2")}}, want: "below the limitRange min"},
		"pod-level request":                 {ranges: minimum, pod: podLevel(two("cpu=1", ""), "cpu=4", "")},
		"overhead":                          {ranges: maximum, pod: corev1.PodSpec{Containers: []corev1.Container{container("cpu=4", "cpu=4")}, Overhead: list("cpu=1")}},
		"overhead does not reach a minimum": {
			ranges: minimum, pod: corev1.PodSpec{Containers: []corev1.Container{container("cpu=3", "cpu=5")}, Overhead: list("cpu=1")}, want: "below the limitRange min",
		},
		"ratio of the sums":     {ranges: ratio, pod: two("cpu=1", "cpu=2")},
		"above the ratio":       {ranges: ratio, pod: two("cpu=1", "cpu=2500m"), want: "limitRange maxLimitRequestRatio"},
		"pod-level ratio":       {ranges: ratio, pod: podLevel(two("cpu=1", "cpu=2500m"), "cpu=2", "cpu=3")},
		"no limit for a ratio":  {ranges: ratio, pod: two("cpu=1", ""), want: "limitRange maxLimitRequestRatio"},
		"huge pages of the pod": {ranges: []limitRange{{limitType: "Pod", max: "hugepages-2Mi=4Mi"}}, pod: podLevel(two("", ""), "hugepages-2Mi=4Mi", "hugepages-2Mi=4Mi"), want: "limits must be set"},
	} {
		t.Run(name, func(t *testing.T) { tc.check(t) })
	}
}

// The API server validates resources of a pod as a whole against those of its containers.
func TestPodLevelResources(t *testing.T) {
	of := func(requests, limits string, containers ...corev1.Container) corev1.PodSpec {
		r := container(requests, limits).Resources
		return corev1.PodSpec{Containers: containers, Resources: &r}
	}
	for name, tc := range map[string]violation{
		"enough for the containers": {pod: of("cpu=2", "cpu=3", container("cpu=1", "cpu=3"), container("cpu=1", ""))},
		"requests below those of the containers": {
			pod:  of("cpu=1", "cpu=3", container("cpu=1", ""), container("cpu=1", "")),
			want: `.resources: Invalid value: ["cpu"]: requests must not be below those of the containers together`,
		},
		"limit of a container above that of the pod": {
			pod: of("", "cpu=3", container("cpu=1", "cpu=1"), container("cpu=1", "cpu=4")), want: `.containers[1]: Invalid value: ["cpu"]: limits must not exceed those of the pod`,
		},
		"containers request more than the limit": {pod: of("", "cpu=1", container("cpu=2", "")), want: `.resources: Invalid value: ["cpu"]: requests must not exceed its limits`},
	} {
		t.Run(name, func(t *testing.T) { tc.check(t) })
	}
}
