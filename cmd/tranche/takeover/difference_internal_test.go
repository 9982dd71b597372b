package takeover

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestDifferences lists what differs, and only what can: some lines are about fields that a ClusterQueue may not have.
func TestDifferences(t *testing.T) {
	const (
		due         = "quota is reserved for a Workload that has waited"
		reservation = "the quota of a preemptor is reserved"
		parallel    = "several Workloads of a ClusterQueue can preempt"
		reclaim     = "a stage of a JobSet reclaims quota only if"
		equal       = "is not preempted at equal priority"
		head        = "the head of a StrictFIFO queue blocks no other"
		nominal     = "nominal quota that the head of a StrictFIFO queue cannot surely reclaim"
		flavors     = "pod sets whose flavors do not fit together"
		lending     = "quota that a lendingLimit excludes"
		checks      = "AdmissionChecks for stage safety are Ready"
	)
	always := []string{
		"as many Workloads are admitted at once as fit", "a Workload that was evicted keeps its place", "a stage of a JobSet has the place", "a Workload tries all flavors",
		"fairSharing and admissionFairSharing do not apply", "why a Workload waits is in its condition tranche.dev/Waiting", "more: docs/migrate-from-kueue.md#different",
	}
	some := []string{due, reservation, parallel, reclaim, equal, head, nominal, flavors, lending, checks}
	preemption := func(within, reclaim kueue.PreemptionPolicy) func(*kueue.ClusterQueue) {
		return func(q *kueue.ClusterQueue) {
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: within, ReclaimWithinCohort: reclaim}
		}
	}
	flavorsOf := func(list ...kueue.FlavorQuotas) func(*kueue.ClusterQueue) {
		return func(q *kueue.ClusterQueue) { q.Spec.ResourceGroups = []kueue.ResourceGroup{{Flavors: list}} }
	}
	limit := resource.MustParse("1")
	for name, c := range map[string]struct {
		change func(*kueue.ClusterQueue)
		want   []string
	}{
		"plain":             {func(*kueue.ClusterQueue) {}, []string{due}},
		"never preempts":    {preemption(kueue.PreemptionPolicyNever, kueue.PreemptionPolicyNever), []string{due}},
		"defaults":          {preemption("", ""), []string{due}},
		"preempts":          {preemption(kueue.PreemptionPolicyLowerPriority, ""), []string{due, reservation, parallel}},
		"preempts equals":   {preemption(kueue.PreemptionPolicyLowerOrNewerEqualPriority, ""), []string{due, reservation, parallel, equal}},
		"reclaims":          {preemption("", kueue.PreemptionPolicyAny), []string{due, reservation, parallel, reclaim}},
		"strict":            {func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO }, []string{head, nominal}},
		"one flavor":        {flavorsOf(kueue.FlavorQuotas{Name: "a"}), []string{due}},
		"two flavors":       {flavorsOf(kueue.FlavorQuotas{Name: "a"}, kueue.FlavorQuotas{Name: "b"}), []string{due, flavors}},
		"limits lending":    {flavorsOf(kueue.FlavorQuotas{Name: "a", Resources: []kueue.ResourceQuota{{LendingLimit: &limit}}}), []string{due, lending}},
		"has stage safety":  {func(q *kueue.ClusterQueue) { q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{} }, []string{due, checks}},
		"in a second queue": {nil, []string{due, head, nominal}},
	} {
		s := stateOf(func(s *state) {
			if c.change != nil {
				c.change(s.queues["research"])
				return
			}
			s.names, s.queues["serving"] = append(s.names, "serving"), &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{QueueingStrategy: kueue.StrictFIFO}}
		})
		list := s.differences()
		for _, line := range always {
			if countOf(list, line) != 1 {
				t.Errorf("%s: %q is not listed once: %q", name, line, list)
			}
		}
		var got []string
		for _, line := range some {
			for range countOf(list, line) {
				got = append(got, line)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" || len(list) != len(always)+len(c.want) {
			t.Errorf("%s: %d differences (-want +got)\n%s", name, len(list), diff)
		}
	}
	if n := len(allDifferences()); n != len(always)+len(some) {
		t.Errorf("there are %d differences, and the test knows %d", n, len(always)+len(some))
	}
}

// countOf returns how many lines contain a text.
func countOf(lines []string, text string) int {
	n := 0
	for _, line := range lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
