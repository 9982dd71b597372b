package podgang

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
)

// TestPodLabels: reads past the cache return all pods of the gang, and no other pods if a label names the gang.
func TestPodLabels(t *testing.T) {
	cases := map[string]struct {
		kind podgang.Kind
		name string
		want []string
	}{
		"Coscheduling":    {kind: podgang.Coscheduling, name: "train", want: []string{apis.CoschedulingLabel + "=train"}},
		"Koordinator":     {kind: podgang.Koordinator, name: "train", want: []string{apis.KoordinatorLabel + "=train"}},
		"no label's name": {kind: podgang.Koordinator, name: strings.Repeat("x", 64)},
		"Kueue":           {kind: podgang.Kueue, name: "train"},
		"Lightweight":     {kind: podgang.Lightweight, name: "train"},
		"Core":            {kind: podgang.Core, name: "train"},
		"GroupName":       {kind: podgang.GroupName, name: "train"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			found := podLabels(podgang.Ref{Kind: c.kind, Namespace: "ml", Name: c.name})
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
