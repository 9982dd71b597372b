package podgang_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// TestEvictedPodOfController: the quota Workload of an evicted pod is kept for the next pod of its name, and deleted if there will be none. Of controllers
// that are not known, one may come within two minutes.
func TestEvictedPodOfController(t *testing.T) {
	for kind, kept := range map[string][2]int{"StatefulSet": {1, 1}, "ReplicaSet": {0, 0}, "Job": {0, 0}, "RayCluster": {1, 0}} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, podgroup.Ref{Kind: podgroup.Single, Namespace: "ml", Name: "pod-01"})
			w.add(1).OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion(kind), Kind: kind, Name: "web", UID: "web", Controller: new(true)}}
			w.settle()
			w.admitAll()
			w.preempt(w.workloads[0])
			w.settle()
			w.expect("R", 1, "evicted")
			w.pods = nil
			for i, at := range []string{"at once", "later"} {
				w.settle()
				if len(w.workloads) != kept[i] {
					t.Errorf("%d quota Workloads are left %s, want %d", len(w.workloads), at, kept[i])
				}
				w.now = w.now.Add(2 * time.Minute)
			}
		})
	}
}
