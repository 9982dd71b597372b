package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
)

func TestExplanationLines(t *testing.T) {
	two := resource.MustParse("2")
	shortage := visibilityapi.Shortage{
		Flavor: "a100", Resource: "gpu", Needed: resource.MustParse("8"), Free: resource.MustParse("1"), Missing: resource.MustParse("7"),
		Constraint: visibilityapi.Constraint{Kind: visibilityapi.Cohort, Name: "all", Limit: visibilityapi.SharedQuota, Amount: resource.MustParse("16")},
	}
	full := shortage
	full.Holders = []visibilityapi.Holder{
		{Kind: visibilityapi.JobSet, Reference: visibilityapi.Reference{Namespace: "ns", Name: "a"}, ClusterQueue: "q", Amount: resource.MustParse("4"), Leaving: true},
		{Kind: visibilityapi.Workload, ClusterQueue: "p", Amount: resource.MustParse("1"), Kept: true},
	}
	full.MoreHolders, full.Unreleasable = 3, &two
	lines := []string{
		"  gpu of flavor a100: needs 8, 1 free, 7 missing",
		"    limit: sharedQuota of Cohort all is 16",
	}
	for name, tc := range map[string]struct {
		x    visibilityapi.Explanation
		want []string
	}{
		"nothing": {visibilityapi.Explanation{}, []string{"  all checks pass; waiting for the next scheduling cycle"}},
		"behind another": {
			visibilityapi.Explanation{Check: "StrictFIFO", Reason: "WaitingForQuota", Message: "waits", Behind: &visibilityapi.Reference{Namespace: "ns", Name: "b"}},
			[]string{"  WaitingForQuota: waits", "  blocked by Workload ns/b, which is ahead in the queue"},
		},
		"would delay another": {
			visibilityapi.Explanation{Check: "DelaysNone", Reason: "WaitingForQuota", Message: "fits", Behind: &visibilityapi.Reference{Namespace: "ns", Name: "b"}},
			[]string{"  WaitingForQuota: fits", "  blocked by Workload ns/b, for which quota is reserved"},
		},
		"one choice": {
			visibilityapi.Explanation{Check: "c", Reason: "r", Message: "m", Alternatives: []visibilityapi.Alternative{{Shortages: []visibilityapi.Shortage{full}}}},
			append(append([]string{"  r: m"}, lines...),
				"    held by JobSet ns/a: 4 in ClusterQueue q, evicted, pods terminating",
				"    held by Workload of another namespace: 1 in ClusterQueue p, partly reserved and not used yet",
				"    and by 3 more", "    2 would be missing even if all of them released their quota"),
		},
		"two choices": {
			visibilityapi.Explanation{Check: "c", Reason: "r", Message: "m", Alternatives: []visibilityapi.Alternative{
				{Shortages: []visibilityapi.Shortage{shortage}}, {Shortages: []visibilityapi.Shortage{shortage}},
			}},
			append(append(append([]string{"  r: m", "  flavor alternative 1:"}, lines...), "  flavor alternative 2:"), lines...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, explanationLines(&tc.x)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWhyIneligible(t *testing.T) {
	no := false
	for name, tc := range map[string]struct {
		w    kueue.Workload
		want string
	}{
		"a later stage": {kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}}}, "earlier stages"},
		"a gate":        {kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.AdmissionGatedByAnnotation: "x"}}}, "gated by x"},
		"not active":    {kueue.Workload{Spec: kueue.WorkloadSpec{Active: &no}}, "spec.active is false"},
		"kept out": {
			kueue.Workload{Status: kueue.WorkloadStatus{Conditions: []metav1.Condition{{Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Message: "by hand"}}}},
			"by hand",
		},
		"backing off": {
			kueue.Workload{Status: kueue.WorkloadStatus{
				Conditions:   []metav1.Condition{{Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Message: "too slow"}},
				RequeueState: &kueue.RequeueState{RequeueAt: new(metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))},
			}},
			"too slow; requeues at 2026-01-01T00:00:00Z",
		},
		"pending": {kueue.Workload{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := whyIneligible(&tc.w); !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want something with %q", got, tc.want)
			}
		})
	}
}
