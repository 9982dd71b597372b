package podgroup_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// TestUnsupported has what Kueue or Kubernetes would do for a gang and Tranche does not: it is a problem instead of being ignored.
func TestUnsupported(t *testing.T) {
	annotated := func(key, value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Annotations = map[string]string{key: value} }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"nothing":            {func(*corev1.Pod) {}, ""},
		"slices":             {annotated(kueue.PodSetSliceRequiredTopologyAnnotation, "rack"), "requests a topology"},
		"group of pod sets":  {annotated(kueue.PodSetGroupName, "g"), "requests a topology"},
		"prebuilt":           {func(pod *corev1.Pod) { pod.Labels[apis.PrebuiltWorkloadKey] = "mine" }, "has kueue.x-k8s.io/prebuilt-workload-name, which is not supported"},
		"fast admission":     {annotated(apis.PodGroupFastAdmissionAnnotation, "true"), "has kueue.x-k8s.io/pod-group-fast-admission: true"},
		"no fast admission":  {annotated(apis.PodGroupFastAdmissionAnnotation, "false"), ""},
		"serving":            {annotated(apis.PodGroupServingAnnotation, "true"), "has kueue.x-k8s.io/pod-group-serving: true"},
		"not retriable":      {annotated(apis.RetriableInGroupAnnotation, "false"), "has kueue.x-k8s.io/retriable-in-group: false"},
		"retriable as usual": {annotated(apis.RetriableInGroupAnnotation, "true"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := named(map[string]string{apis.QueueLabel: "queue", apis.CoschedulingLabel: "g"}, nil)
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
			tc.change(pod)
			ref := podgroup.Ref{Kind: podgroup.Coscheduling, Namespace: "ml", Name: "g"}
			_, problems := podgroup.New(ref, &podgroup.Object{UID: "object", MinMember: 1}, []*corev1.Pod{pod}, podgroup.Settings{Wait: time.Minute})
			if got := problems.String(); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("problems %q, want %q", got, tc.want)
			}
		})
	}
}
