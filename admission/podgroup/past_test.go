package podgroup_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/podgroup"
	"github.com/tranche-dev/tranche/apis"
)

// TestPastTogether: who has started together with others stands for itself, also when it has to ask for quota anew.
func TestPastTogether(t *testing.T) {
	w := newGang(t, 1, "min-available", "1", "groups", `["ml/train","x/b"]`)
	owned(w.pods, "job")
	b := podgroup.Other{
		Ref: podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "x", Name: "b"}, Exists: true, IsWhole: true, Together: []string{"ml/train", "x/b"}, IsAdmitted: true,
	}
	w.others = []podgroup.Other{b}
	w.settle()
	w.admitAll()
	w.expect("r", 1, "has started")
	w.pods[0].Status.Phase = corev1.PodFailed
	w.settle()
	w.now = w.now.Add(w.last.Again)
	w.settle()
	w.expectNothingHeld()

	// The other has come to its end meanwhile.
	w.others = nil
	w.add(1)
	owned(w.pods, "job")
	w.settle()
	w.expect("fg", 1, "waits for quota")
	if x := w.workloads[0]; x.Labels[apis.AdmitTogetherLabel] != "" {
		t.Errorf("the quota Workload is still admitted together with others: %v", x.Labels)
	}
	w.admitAll()
	w.expect("fr", 1, "has started")

	// Another run of both is not past anything.
	w.pods[1].Status.Phase = corev1.PodSucceeded
	w.settle()
	owned([]*corev1.Pod{w.add(1)}, "another")
	w.settle()
	w.expect("fsg", 0, "does not exist")
}
