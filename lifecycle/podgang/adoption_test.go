package podgang_test

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// newAdopted returns a gang of two pods that Kueue has started.
func newAdopted(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, podgroup.Ref{Kind: podgroup.Kueue, Namespace: "ml", Name: "train"})
	w.settings[apis.PodGroupNameLabel], w.settings[apis.PodGroupTotalCountAnnotation] = "train", "2"
	w.add(1)
	w.add(1)
	w.settle()
	w.admitAll()
	w.expect("rr", 1, "has started")
	x := w.workloads[0]
	x.Labels, x.Annotations = nil, nil
	x.Spec.PodSets[0].Name, x.Status.Admission.PodSetAssignments[0].Name = "role", "role"
	for i, pod := range w.pods {
		delete(pod.Labels, apis.PodGroupMemberLabel)
		delete(pod.Annotations, apis.AdmissionAnnotation)
		pod.Labels[apis.PodSetLabel] = "role"
		w.pods[i] = podgang.AdoptedPod(pod, x)
	}
	ref, ok := podgang.AdoptedGang(w.pods[0])
	if !ok || ref != (podgroup.Ref{Kind: podgroup.Kueue, Namespace: "ml", Name: "train"}) {
		t.Fatalf("adopted as gang %v", ref)
	}
	w.workloads[0] = podgang.AdoptedWorkload(x, ref)
	w.settle()
	w.expect("rr", 1, "has started")
	return w
}

// TestAdopted: a gang that Kueue has started is one like any other, with the pod sets of Kueue until it is evicted.
func TestAdopted(t *testing.T) {
	w := newAdopted(t)
	if w.workloads[0].Annotations[apis.AdoptedAnnotation] == "" {
		t.Error("it is not exempt from preemption")
	}
	w.vanish(w.pods[1])
	w.add(1)
	w.settle()
	w.expect("rr", 1, "has started")
	if got := w.pods[1].Labels[apis.PodSetLabel]; got != "role" {
		t.Errorf("a pod that was recreated has pod set %q", got)
	}
	w.add(1)
	w.settle()
	w.expect("rrg", 2, "has started")
	w.vanish(w.pods[2])
	w.settle()
	w.expect("rr", 1, "has started")

	w.preempt(w.workloads[0])
	w.settle()
	w.expect("RR", 1, "evicted")
	w.vanish(w.pods[1])
	w.vanish(w.pods[0])
	w.add(1)
	w.settle()
	w.expect("g", 1, "fewer than the 2 pods")
	if x := w.workloads[0]; quotaworkload.HoldsQuota(x) || x.Annotations[apis.AdoptedAnnotation] != "" {
		t.Errorf("an evicted gang holds quota or is exempt from preemption: %v", x.Annotations)
	}
	w.add(1)
	w.settle()
	w.expect("gg", 1, "for another")
	w.admitAll()
	w.expect("rr", 1, "has started")
	if got := w.pods[0].Labels[apis.PodSetLabel]; got == "role" || got == "" {
		t.Errorf("the pods have pod set %q of Kueue", got)
	}
}

// TestAdoptedPod: a pod is adopted only if it is known what pays for it.
func TestAdoptedPod(t *testing.T) {
	w := newAdopted(t)
	single := w.pods[0].DeepCopy()
	single.Name = "single"
	for _, keys := range []map[string]string{single.Labels, single.Annotations} {
		delete(keys, apis.PodGroupNameLabel)
	}
	if ref, ok := podgang.AdoptedGang(single); !ok || ref.String() != "pod.single" {
		t.Errorf("a single pod is adopted as %v", ref)
	}
	single.Labels[apis.CoschedulingLabel] = "gang"
	if podgang.AdoptedPod(single, w.workloads[0]) != nil {
		t.Error("a pod with a PodGroup is adopted")
	}
	other := w.workloads[0].DeepCopy()
	other.Spec.PodSets[0].Name = "other"
	if podgang.AdoptedPod(w.pods[0], other) != nil {
		t.Error("a pod of an unknown pod set is adopted")
	}
	if podgang.AdoptedPod(w.pods[0], &kueue.Workload{}) != nil {
		t.Error("a pod is adopted by a Workload without pod sets")
	}
}
