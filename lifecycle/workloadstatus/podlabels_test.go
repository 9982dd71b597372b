package workloadstatus_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// TestPodLabels checks that a name that is no value of a label is left out.
func TestPodLabels(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"ml": {
			"kueue.x-k8s.io/podset": "train", "kueue.x-k8s.io/local-queue-name": "team", "kueue.x-k8s.io/cluster-queue-name": "ml",
		},
		strings.Repeat("m", 64): {"kueue.x-k8s.io/podset": "train", "kueue.x-k8s.io/local-queue-name": "team"},
		"ml.example.com":        {"kueue.x-k8s.io/podset": "train", "kueue.x-k8s.io/local-queue-name": "team"},
	} {
		w := &kueue.Workload{Spec: kueue.WorkloadSpec{QueueName: "team"}}
		w.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(name)}
		if diff := cmp.Diff(want, workloadstatus.PodLabels(w, "train")); diff != "" {
			t.Errorf("ClusterQueue %q (-want +got):\n%s", name, diff)
		}
	}
}
