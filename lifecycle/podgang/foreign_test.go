package podgang_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// TestForeign: nothing is reported on a PodGroup that has nothing to do with quota.
func TestForeign(t *testing.T) {
	reserves := corev1.ResourceList{"cpu": resource.MustParse("2")}
	queued := map[string]string{apis.QueueLabel: "main"}
	cases := map[string]struct {
		object        podgroup.Object
		pods          int
		wantTold      bool
		wantWorkloads int
	}{
		"no pods":                   {object: podgroup.Object{MinMember: 4}},
		"no pods, and wrong":        {object: podgroup.Object{MinMember: -1}},
		"no pods, but minResources": {object: podgroup.Object{MinMember: 4, MinResources: reserves}},
		"a queue":                   {object: podgroup.Object{MinMember: 4, Labels: queued}, wantTold: true},
		"a queue and minResources":  {object: podgroup.Object{MinMember: 4, Labels: queued, MinResources: reserves}, wantTold: true, wantWorkloads: 1},
		"a pod":                     {object: podgroup.Object{MinMember: 4}, pods: 1, wantTold: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, podgroup.Ref{Kind: podgroup.Coscheduling, Namespace: "ml", Name: "train"})
			w.object = &c.object
			for range c.pods {
				w.add(1)
			}
			w.settle()
			if text := w.last.Message.Text; (text != "") != c.wantTold || len(w.workloads) != c.wantWorkloads {
				t.Errorf("message is %q, %d quota Workloads; want told %t, %d", text, len(w.workloads), c.wantTold, c.wantWorkloads)
			}
		})
	}
}
