package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/unblock"
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
		{
			Kind: visibilityapi.JobSet, Reference: visibilityapi.Reference{Namespace: "ns", Name: "b"}, ClusterQueue: "q", Amount: resource.MustParse("2"),
			RunsUntil: new(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)),
		},
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
				"    held by JobSet ns/b: 2 in ClusterQueue q, will be preempted, runs until 2026-01-01 12:00:00Z",
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
	backsOff := &kueue.RequeueState{RequeueAt: new(metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))}
	for name, tc := range map[string]struct {
		w    kueue.Workload
		want string
	}{
		"a later stage": {kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}}}, "is not in the queue: the stage waits for earlier stages of its JobSet"},
		"a gate":        {kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.AdmissionGatedByAnnotation: "x"}}}, "is not in the queue: gated by x; the controller that set a gate has to remove it from kueue.x-k8s.io/admission-gated-by"},
		"not active": {
			kueue.Workload{Spec: kueue.WorkloadSpec{Active: &no}, Status: kueue.WorkloadStatus{RequeueState: backsOff}},
			"is not in the queue: the quota Workload is not active: spec.active is false; set spec.active to true to requeue",
		},
		"kept out": {
			kueue.Workload{Status: kueue.WorkloadStatus{Conditions: []metav1.Condition{{Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Message: "by hand"}}}},
			"is not in the queue: by hand",
		},
		"backing off": {
			kueue.Workload{Status: kueue.WorkloadStatus{
				Conditions:   []metav1.Condition{{Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Message: "too slow"}},
				RequeueState: backsOff,
			}},
			"is not in the queue: too slow; requeues at 2026-01-01T00:00:00Z",
		},
		"pending": {kueue.Workload{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := whyIneligible(&tc.w); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A quota Workload that ends is shown with what it holds of what is missing, and nothing else.
func TestLetInShowsWhatIsMissing(t *testing.T) {
	gpu := quota.FlavorResource{Flavor: "a100", Resource: "gpu"}
	found := &unblock.Answer{Missing: map[quota.FlavorResource]struct{}{gpu: {}}, Sets: []unblock.Set{{Succeed: []simulator.Running{{
		Workload: types.NamespacedName{Namespace: "ns", Name: "w"}, ClusterQueue: "q",
		Usage: map[quota.FlavorResource]resource.Quantity{gpu: resource.MustParse("8"), {Flavor: "a100", Resource: "cpu"}: resource.MustParse("64")},
	}}}}}
	if diff := cmp.Diff([]string{"Workload ns/w ends (8 gpu of flavor a100 in ClusterQueue q)"}, letInOf(found).Texts()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestNotFound(t *testing.T) {
	name := subjectName{NamespacedName: types.NamespacedName{Namespace: "ml", Name: "x"}, Kind: jobSetKind}
	for want, others := range map[string][]string{
		`namespace "ml" has no JobSet "x": correct the name, or name another namespace with -n`:               nil,
		`namespace "ml" has no JobSet "x", but there is one in a, b: choose it with -n a`:                     {"b", "a", "b"},
		`namespace "ml" has no JobSet "x", but there is one in a, b, c, d, e and 1 more: choose it with -n a`: {"a", "b", "c", "d", "e", "f"},
	} {
		if got := errNotFound(name, others...).Error(); got != want {
			t.Errorf("%v: %s, want %s", others, got, want)
		}
	}
}
