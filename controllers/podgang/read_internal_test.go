package podgang

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// TestPodLabels: reads past the cache return all pods of the gang, and no other pods if a label names the gang.
func TestPodLabels(t *testing.T) {
	cases := map[string]struct {
		kind podgroup.Kind
		name string
		want []string
	}{
		"Coscheduling":    {kind: podgroup.Coscheduling, name: "train", want: []string{apis.CoschedulingLabel + "=train"}},
		"Koordinator":     {kind: podgroup.Koordinator, name: "train", want: []string{apis.KoordinatorLabel + "=train"}},
		"no label's name": {kind: podgroup.Koordinator, name: strings.Repeat("x", 64)},
		"Kueue":           {kind: podgroup.Kueue, name: "train"},
		"Lightweight":     {kind: podgroup.Lightweight, name: "train"},
		"Core":            {kind: podgroup.Core, name: "train"},
		"GroupName":       {kind: podgroup.GroupName, name: "train"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			found := podLabels(podgroup.Ref{Kind: c.kind, Namespace: "ml", Name: c.name})
			var got []string
			for _, key := range slices.Sorted(maps.Keys(found)) {
				if key != apis.PodGroupMemberLabel {
					got = append(got, key+"="+found[key])
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" || found[apis.PodGroupMemberLabel] != apis.PodGroupMemberValue {
				t.Errorf("labels %v (-want +got):\n%s", found, diff)
			}
		})
	}
}

// A workloadReader lists the UIDs of quota Workloads.
type workloadReader struct {
	client.Reader
	uids  []types.UID
	lists int
}

func (r *workloadReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("resource name may not be empty, or contain slashes")
}

func (r *workloadReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	r.lists++
	for _, uid := range r.uids {
		list.(*metav1.PartialObjectMetadataList).Items = append(list.(*metav1.PartialObjectMetadataList).Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid}})
	}
	return nil
}

// TestReadGone: whether the quota Workload of a pod is gone depends on its UID alone. Its name is on the pod, too, but a tenant may change that.
func TestReadGone(t *testing.T) {
	pod := func(uid, name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ml", Name: uid, UID: types.UID(uid), Annotations: map[string]string{apis.AdmissionAnnotation: uid + ".0/main", kueue.WorkloadAnnotation: name},
		}}
	}
	pods := []*corev1.Pod{pod("known", "train"), pod("there", "x/y"), pod("gone", ""), pod("left", "x/y"), pod("late", "train")}
	gang, _ := podgroup.New(podgroup.Ref{Kind: podgroup.Kueue, Namespace: "ml", Name: "train"}, nil, pods, podgroup.Settings{})
	live := &workloadReader{uids: []types.UID{"known", "there", "other"}}
	s := &snapshot{Snapshot: podgang.Snapshot{Gang: gang, Workloads: []*kueue.Workload{{ObjectMeta: metav1.ObjectMeta{UID: "known"}}}}}
	if err := (&Reconciler{live: live}).readGone(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want := map[types.UID]bool{"there": false, "gone": true, "left": true, "late": true}
	if diff := cmp.Diff(want, s.Gone); diff != "" || live.lists != 1 {
		t.Errorf("%d lists, want 1; gone (-want +got):\n%s", live.lists, diff)
	}
}
