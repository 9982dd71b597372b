package podgang_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// TestShapesDiffer: two pods whose shapes have the same first 8 digits, which can be found within seconds, do not count as equal.
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

// TestLongText: quoted user input is short, whatever it is.
func TestLongText(t *testing.T) {
	const key = apis.KoordinatorPrefix
	long := strings.Repeat("é", 100_000)
	for name, settings := range map[string]map[string]string{
		"groups, no list":   {"groups": long},
		"groups, no name":   {"groups": `["` + long + `"]`},
		"groups, no DNS":    {"groups": `["ml/train","ml/` + long + `"]`},
		"groups, no path":   {"groups": `["ml/train","ml/.."]`},
		"groups, too long":  {"groups": `["ml/train","ml/` + strings.Repeat("x", 254) + `"]`},
		"min-available":     {"min-available": long},
		"waiting-time":      {"waiting-time": long},
		"pods do not agree": {"mode": long},
		"everything":        {"groups": long, "min-available": long, "waiting-time": long, "total-number": long, "mode": long},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGang(t, 1, "min-available", "1")
			w.add(1)
			for setting, value := range settings {
				w.pods[0].Annotations[key+setting] = value
				if setting != "mode" {
					w.pods[1].Annotations[key+setting] = value
				}
			}
			w.settle()
			if text := w.last.Message.Text; text == "" || len(text) > 3000 || !utf8.ValidString(text) || !w.last.Message.IsWarning {
				t.Errorf("message is %d bytes: %.100s", len(text), text)
			}
			if text := w.last.Message.Brief().Text; len(text) > 1024 || !utf8.ValidString(text) {
				t.Errorf("message is %d bytes in brief: %.100s", len(text), text)
			}
		})
	}
}

// TestNoLabels: a quota Workload whose labels and annotations a user has removed is repaired.
func TestNoLabels(t *testing.T) {
	w := newWorld(t, podgroup.Ref{Kind: podgroup.Koordinator, Namespace: "ml", Name: "train"})
	w.object = &podgroup.Object{Name: "train", MinMember: 1, Annotations: map[string]string{apis.KoordinatorPrefix + "groups": `["ml/other","ml/train"]`}}
	w.peers = []podgang.Peer{{
		Ref: podgroup.Ref{Kind: podgroup.Koordinator, Namespace: "ml", Name: "other"}, Exists: true, IsWhole: true, GangGroup: []string{"ml/other", "ml/train"},
	}}
	w.add(1)
	w.settle()
	w.workloads[0].Labels, w.workloads[0].Annotations = nil, nil
	w.settle()
	if x := w.workloads[0]; x.Labels[apis.AdmitTogetherLabel] == "" || x.Annotations[apis.AdmitTogetherCountAnnotation] != "2" {
		t.Errorf("the quota Workload has labels %v and annotations %v", x.Labels, x.Annotations)
	}
	w.peers = nil
	w.workloads[0].Labels, w.workloads[0].Annotations = nil, nil
	w.settle()
	if x := w.workloads[0]; x.Annotations[apis.AdmissionGatedByAnnotation] != apis.GangGate {
		t.Errorf("the quota Workload is open: %v", x.Annotations)
	}
}
