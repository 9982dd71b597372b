package stageplan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestCount(t *testing.T) {
	cases := map[string]struct {
		job  job
		want int32
	}{
		"one Job of one pod":                 {job: newJob("a", ""), want: 1},
		"parallelism without completions":    {job: newJob("a", "", parallelism(4)), want: 4},
		"completions without parallelism":    {job: newJob("a", "", completions(4)), want: 1},
		"parallelism below completions":      {job: newJob("a", "", replicas(2), parallelism(3), completions(10)), want: 6},
		"parallelism above completions":      {job: newJob("a", "", replicas(2), parallelism(10), completions(3)), want: 6},
		"no completions":                     {job: newJob("a", "", completions(0)), want: 0},
		"no parallelism":                     {job: newJob("a", "", parallelism(0), completions(3)), want: 0},
		"no replicas":                        {job: newJob("a", "", replicas(0), parallelism(8)), want: 0},
		"no replicas of many, no overflow":   {job: newJob("a", "", replicas(0), parallelism(1<<30)), want: 0},
		"many replicas of none, no overflow": {job: newJob("a", "", replicas(1<<30), parallelism(0)), want: 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.job.Template.Spec.Template.Spec.Containers[0].Resources.Requests = resources("gpu=1")
			p := mustPlan(t, newSpec(c.job, newJob("b", "cpu=1")))
			if got := p.Stages[0].PodSets[0].Count; got != c.want {
				t.Errorf("count %d, want %d", got, c.want)
			}
			gpus := p.Peak()["gpu"]
			if got := gpus.Value(); got != int64(c.want) {
				t.Errorf("peak of %d GPUs, want %d", got, c.want)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	container := func(requests, limits string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: resources(requests), Limits: resources(limits)}}
	}
	sidecar := func(requests string) corev1.Container {
		c := container(requests, "")
		always := corev1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
		return c
	}
	podLevel := func(requests, limits string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: resources(requests), Limits: resources(limits)}
	}
	cases := map[string]struct {
		pod  corev1.PodSpec
		want string
	}{
		"containers add up": {
			pod:  corev1.PodSpec{Containers: []corev1.Container{container("cpu=1 gpu=2", ""), container("cpu=500m", "")}},
			want: "cpu=1500m gpu=2",
		},
		"a limit counts where there is no request": {
			pod:  corev1.PodSpec{Containers: []corev1.Container{container("cpu=1", "cpu=4 nvidia.com/gpu=5")}},
			want: "cpu=1 nvidia.com/gpu=5",
		},
		"a request of zero is a request": {
			pod:  corev1.PodSpec{Containers: []corev1.Container{container("cpu=0", "cpu=4")}},
			want: "cpu=0",
		},
		"the largest init container goes before the sum": {
			pod: corev1.PodSpec{
				InitContainers: []corev1.Container{container("cpu=8", ""), container("cpu=3", "memory=8Gi")},
				Containers:     []corev1.Container{container("cpu=1 memory=4Gi", "")},
			},
			want: "cpu=8 memory=8Gi",
		},
		"a sidecar runs beside containers and later init containers": {
			pod: corev1.PodSpec{
				InitContainers: []corev1.Container{container("cpu=4", ""), sidecar("cpu=1"), container("cpu=5", "")},
				Containers:     []corev1.Container{container("cpu=2", "")},
			},
			want: "cpu=6",
		},
		"overhead": {
			pod:  corev1.PodSpec{Containers: []corev1.Container{container("cpu=1", "")}, Overhead: resources("cpu=250m memory=64Mi")},
			want: "cpu=1250m memory=64Mi",
		},
		"requests of the pod go before those of its containers": {
			pod:  corev1.PodSpec{Containers: []corev1.Container{container("cpu=1 gpu=2", "")}, Resources: podLevel("cpu=3", "")},
			want: "cpu=3 gpu=2",
		},
		"a limit of the pod counts where no container requests": {
			pod:  corev1.PodSpec{Containers: []corev1.Container{container("cpu=1", "")}, Resources: podLevel("", "cpu=3 memory=2Gi")},
			want: "cpu=1 memory=2Gi",
		},
		"a limit of the pod counts where nothing else is requested": {
			pod: corev1.PodSpec{
				Containers: []corev1.Container{container("", "")},
				Resources:  &corev1.ResourceRequirements{Limits: resources("cpu=3 memory=2Gi")},
			},
			want: "cpu=3 memory=2Gi",
		},
		"a request of the pod goes before its limit": {
			pod:  corev1.PodSpec{Containers: []corev1.Container{container("", "")}, Resources: podLevel("cpu=1", "cpu=3")},
			want: "cpu=1",
		},
		"a limit of the pod for huge pages is a request": {
			pod: corev1.PodSpec{
				Containers: []corev1.Container{container("hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi")},
				Resources:  podLevel("", "hugepages-2Mi=8Mi"),
			},
			want: "hugepages-2Mi=8Mi",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			j := newJob("a", "")
			j.Template.Spec.Template.Spec = c.pod
			before := c.pod.DeepCopy()
			p := mustPlan(t, newSpec(j))
			if diff := cmp.Diff(resources(c.want), p.Stages[0].PodSets[0].Requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, &c.pod); diff != "" {
				t.Errorf("New changed the pod template (-before +after):\n%s", diff)
			}
		})
	}
}

// TestRounding shows that amounts are charged per pod in whole units, and thousandths of CPUs, rounded up.
func TestRounding(t *testing.T) {
	p := mustPlan(t, newSpec(newJob("a", "cpu=100u gpu=500m memory=1Ki", replicas(3))))
	if diff := cmp.Diff(resources("cpu=3m gpu=3 memory=3Ki"), p.Sum()); diff != "" {
		t.Errorf("sum (-want +got):\n%s", diff)
	}
}
