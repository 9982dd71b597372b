package podgroup_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

func named(labels, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "pod", UID: "1", Labels: labels, Annotations: annotations}}
}

func TestRefOf(t *testing.T) {
	scheduled := named(nil, nil)
	scheduled.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
	cases := map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"none":                     {pod: named(map[string]string{"app": "g"}, nil)},
		"Kueue's label":            {pod: named(map[string]string{apis.PodGroupNameLabel: "g"}, nil), want: "kueue.g"},
		"Kueue's annotation first": {pod: named(map[string]string{apis.PodGroupNameLabel: "h"}, map[string]string{apis.PodGroupNameLabel: "g"}), want: "kueue.g"},
		"Kubernetes":               {pod: scheduled, want: "core.g"},
		"Coscheduling":             {pod: named(map[string]string{"scheduling.x-k8s.io/pod-group": "g"}, nil), want: "coscheduling.g"},
		"Koordinator":              {pod: named(map[string]string{"pod-group.scheduling.sigs.k8s.io": "g"}, nil), want: "koordinator.g"},
		"Koordinator's old label":  {pod: named(map[string]string{"pod-group.scheduling.sigs.k8s.io/name": "g"}, nil), want: "lightweight.g"},
		"Koordinator's annotation": {pod: named(nil, map[string]string{"gang.scheduling.koordinator.sh/name": "g"}), want: "lightweight.g"},
		"kube-batch and Volcano":   {pod: named(nil, map[string]string{"scheduling.k8s.io/group-name": "g"}), want: "group-name.g"},
		"none, and it waits":       {pod: named(map[string]string{apis.PodGroupMemberLabel: apis.PodGroupMemberValue}, nil), want: "pod.pod"},
		"a group, and it waits": {
			pod: named(map[string]string{apis.PodGroupMemberLabel: apis.PodGroupMemberValue, apis.PodGroupNameLabel: "pod"}, nil), want: "kueue.pod",
		},
		"several": {
			pod:  named(map[string]string{apis.CoschedulingLabel: "a", apis.PodGroupNameLabel: "b"}, map[string]string{apis.GroupNameAnnotation: "c"}),
			want: "kueue.b",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ref, ok := podgroup.RefOf(c.pod)
			if ok != (c.want != "") || ok && ref.String() != c.want {
				t.Fatalf("RefOf is %q, %t, want %q", ref, ok, c.want)
			}
			if again, parsed := podgroup.ParseRef("ml", ref.String()); ok && (!parsed || again != ref) {
				t.Errorf("ParseRef is %+v, want %+v", again, ref)
			}
		})
	}
}

// TestLabel: labels are valid and differ, whatever the names.
func TestLabel(t *testing.T) {
	long := strings.Repeat("x", 80)
	seen := map[string]string{}
	for _, name := range []string{"g", "g.h", "G_h", long, long + "y", "-", "é", "a/b", "g-"} {
		label := podgroup.Ref{Kind: podgroup.GroupName, Namespace: "ml", Name: name}.Label()
		if len(label) > 63 || seen[label] != "" || strings.Trim(label, "-_.") != label || strings.ContainsAny(label, "/é") {
			t.Errorf("label of %q is %q, as of %q", name, label, seen[label])
		}
		seen[label] = name
	}
}

func TestNew(t *testing.T) {
	const key = apis.KoordinatorPrefix
	pods := func(annotations ...map[string]string) []*corev1.Pod {
		var all []*corev1.Pod
		for i, a := range annotations {
			pod := named(map[string]string{apis.QueueLabel: "main"}, a)
			pod.Name = "pod-" + string(rune('a'+i))
			pod.UID = types.UID(pod.Name)
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
			all = append(all, pod)
		}
		return all
	}
	ended := func(pods []*corev1.Pod) []*corev1.Pod {
		for _, pod := range pods {
			pod.Spec.SchedulingGates, pod.Status.Phase = nil, corev1.PodFailed
		}
		return pods
	}
	type settings struct {
		Min, Total int32
		NonStrict  bool
		Together   []string
		Wait       time.Duration
		Queue      string
	}
	normal := settings{Min: 1, Total: 1, Wait: 10 * time.Minute, Queue: "main"}
	with := func(f func(*settings)) settings { s := normal; f(&s); return s }
	cases := map[string]struct {
		kind        podgroup.Kind
		object      *podgroup.Object
		pods        []*corev1.Pod
		want        settings
		wantProblem string
	}{
		"Kueue":            {kind: podgroup.Kueue, pods: pods(map[string]string{apis.PodGroupTotalCountAnnotation: "3"}), want: with(func(s *settings) { s.Min, s.Total = 3, 3 })},
		"Kueue, no number": {kind: podgroup.Kueue, pods: pods(nil), want: normal, wantProblem: `pod-group-total-count of the pods is "": set a number of pods`},
		"Kueue, all ended": {kind: podgroup.Kueue, pods: ended(pods(map[string]string{apis.PodGroupTotalCountAnnotation: "3"})), want: with(func(s *settings) { s.Queue = "" })},
		"no PodGroup":      {kind: podgroup.Coscheduling, pods: pods(nil), want: normal, wantProblem: `PodGroup "train" of scheduling.x-k8s.io does not exist in namespace "ml"`},
		"minimum":          {kind: podgroup.Coscheduling, object: &podgroup.Object{MinMember: 4, TimeoutSeconds: 7}, pods: pods(nil), want: with(func(s *settings) { s.Min, s.Total, s.Wait = 4, 4, 7*time.Second })},
		"no minimum":       {kind: podgroup.GroupName, object: &podgroup.Object{}, pods: pods(nil), want: normal},
		"negative minimum": {kind: podgroup.Koordinator, object: &podgroup.Object{MinMember: -1}, pods: pods(nil), want: normal, wantProblem: "requires at least -1 pods"},
		"enormous minimum": {kind: podgroup.Koordinator, object: &podgroup.Object{MinMember: 1 << 40}, pods: pods(nil), want: normal, wantProblem: "set its minimum to a number"},
		"queue of the object": {
			kind: podgroup.Coscheduling, object: &podgroup.Object{MinMember: 2, Labels: map[string]string{apis.QueueLabel: "early"}},
			want: with(func(s *settings) { s.Min, s.Total, s.Queue = 2, 2, "early" }),
		},
		"pods go before the PodGroup": {
			kind: podgroup.Koordinator, object: &podgroup.Object{MinMember: 2, Annotations: map[string]string{key + "mode": "Strict", key + "total-number": "5"}},
			pods: pods(map[string]string{key + "mode": "NonStrict", key + "min-available": "3"}),
			want: with(func(s *settings) { s.Min, s.Total, s.NonStrict = 3, 5, true }),
		},
		"settings on a PodGroup of Coscheduling": {
			kind: podgroup.Coscheduling, object: &podgroup.Object{MinMember: 2, TimeoutSeconds: 7, Annotations: map[string]string{
				key + "mode": "NonStrict", key + "total-number": "5", key + "waiting-time": "90s", key + "groups": `["ml/train", "x/b"]`,
			}},
			pods: pods(nil),
			want: with(func(s *settings) {
				s.Min, s.Total, s.NonStrict, s.Wait, s.Together = 2, 5, true, 90*time.Second, []string{"ml/train", "x/b"}
			}),
		},
		"total below the minimum": {
			kind: podgroup.Lightweight, pods: pods(map[string]string{key + "min-available": "3", key + "total-number": "2", key + "waiting-time": "90s"}),
			want: with(func(s *settings) { s.Min, s.Total, s.Wait = 3, 3, 90*time.Second }),
		},
		"no duration": {
			kind: podgroup.Lightweight, pods: pods(map[string]string{key + "min-available": "1", key + "waiting-time": "soon"}), want: normal,
			wantProblem: `is "soon": set a duration such as 300s`,
		},
		"pods do not agree": {
			kind: podgroup.Lightweight, pods: pods(map[string]string{key + "min-available": "1"}, map[string]string{key + "min-available": "2"}), want: normal,
			wantProblem: `pods "pod-a" and "pod-b" of the gang have different values`,
		},
		"groups": {
			kind: podgroup.Lightweight, pods: pods(map[string]string{key + "min-available": "1", key + "groups": `["x/b", "ml/train", "x/b"]`}),
			want: with(func(s *settings) { s.Together = []string{"ml/train", "x/b"} }),
		},
		"only itself":    {kind: podgroup.Lightweight, pods: pods(map[string]string{key + "min-available": "1", key + "groups": `["ml/train"]`}), want: normal},
		"without itself": {kind: podgroup.Lightweight, pods: pods(map[string]string{key + "min-available": "1", key + "groups": `["ml/other"]`}), want: normal, wantProblem: "does not list the gang itself"},
		"no list":        {kind: podgroup.Lightweight, pods: pods(map[string]string{key + "min-available": "1", key + "groups": `a`}), want: normal, wantProblem: "set a JSON list"},
		"no namespace":   {kind: podgroup.Lightweight, pods: pods(map[string]string{key + "min-available": "1", key + "groups": `["train"]`}), want: normal, wantProblem: "NAMESPACE/NAME"},
		"topology":       {kind: podgroup.Coscheduling, object: &podgroup.Object{}, pods: pods(map[string]string{"kueue.x-k8s.io/podset-required-topology": "rack"}), want: normal, wantProblem: "requests a topology"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g, problems := podgroup.New(podgroup.Ref{Kind: c.kind, Namespace: "ml", Name: "train"}, c.object, c.pods, podgroup.Settings{Wait: 10 * time.Minute})
			got := settings{g.Min, g.Total, g.NonStrict, g.GangGroup, g.Wait, g.Queue}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if text := problems.String(); (text == "") != (c.wantProblem == "") || !strings.Contains(text, c.wantProblem) {
				t.Errorf("problem is %q, want %q", text, c.wantProblem)
			}
		})
	}
}
