package stages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/apis"
)

// TestReplacedClaims: the pods claim another number of devices than the stage was charged for, whether it holds quota or not. Its quota
// Workload is deleted, which holds its Jobs, and is recreated.
func TestReplacedClaims(t *testing.T) {
	for name, stage := range map[string]struct{ workload, job string }{
		"holds quota":     {"admitted", "running"},
		"waits for quota": {"waiting", "held"},
	} {
		t.Run(name, func(t *testing.T) {
			s := world{started: true, workloads: map[string]string{"init": stage.workload, "train": "closed"}, jobs: map[string]string{"init": stage.job}}.build(t)
			s.Plan.Stages[0].PodSets[0].Template.Annotations = map[string]string{apis.ClaimTemplatesAnnotation: "eight=new"}
			if diff := cmp.Diff([]string{"remove init"}, render(Next(s))); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
	s := world{started: true, workloads: map[string]string{"init": "waiting", "train": "closed"}}.build(t)
	s.Plan.Stages[0].PodSets[0].Template.Spec.Overhead = corev1.ResourceList{"example.com/gpus": quantities("8")[corev1.ResourceCPU]}
	if diff := cmp.Diff([]string{"remove init"}, render(Next(s))); diff != "" {
		t.Errorf("a stage that waits with another overhead: writes differ (-want +got):\n%s", diff)
	}
}
