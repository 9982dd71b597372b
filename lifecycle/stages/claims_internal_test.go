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
	for name, workloads := range map[string]map[string]string{
		"holds quota":     {"init": "admitted", "train": "closed"},
		"waits for quota": {"init": "waiting", "train": "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := world{started: true, workloads: workloads, jobs: map[string]string{"init": "running"}}.build(t)
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
