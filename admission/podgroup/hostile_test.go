package podgroup_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/admission/podgroup"
	"github.com/tranche-dev/tranche/apis"
)

// TestShapesDiffer: two pods whose shapes have the same first 8 digits, which is found within seconds, do not stand for each other.
func TestShapesDiffer(t *testing.T) {
	w := newGang(t, 0, "min-available", "2")
	for nonce, cpus := range map[string]string{"x140848": "1m", "x58854": "1000"} {
		pod := w.add(1)
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpus)}
		pod.Spec.Tolerations = []corev1.Toleration{{Key: nonce, Operator: corev1.TolerationOpExists}}
	}
	w.settle()
	if podSets := w.workloads[0].Spec.PodSets; len(podSets) != 2 {
		t.Errorf("pods of 1m and of 1000 cpus share a pod set: %+v", podSets)
	}
}

// TestNoLabels: a quota Workload whose labels and annotations somebody has taken away is mended.
func TestNoLabels(t *testing.T) {
	w := newWorld(t, podgroup.Ref{Kind: podgroup.Koordinator, Namespace: "ml", Name: "train"})
	w.object = &podgroup.Object{Name: "train", MinMember: 1, Annotations: map[string]string{apis.KoordinatorPrefix + "groups": `["ml/other","ml/train"]`}}
	w.others = []podgroup.Other{{
		Ref: podgroup.Ref{Kind: podgroup.Koordinator, Namespace: "ml", Name: "other"}, Exists: true, IsWhole: true, Together: []string{"ml/other", "ml/train"},
	}}
	w.add(1)
	w.settle()
	w.workloads[0].Labels, w.workloads[0].Annotations = nil, nil
	w.settle()
	if x := w.workloads[0]; x.Labels[apis.AdmitTogetherLabel] == "" || x.Annotations[apis.AdmitTogetherCountAnnotation] != "2" {
		t.Errorf("the quota Workload has labels %v and annotations %v", x.Labels, x.Annotations)
	}
	w.others = nil
	w.workloads[0].Labels, w.workloads[0].Annotations = nil, nil
	w.settle()
	if x := w.workloads[0]; x.Annotations[apis.AdmissionGatedByAnnotation] != apis.GangGate {
		t.Errorf("the quota Workload is open: %v", x.Annotations)
	}
}
