package podgang

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/apis"
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
