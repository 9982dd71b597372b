package scenario_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// summary writes what a queue line can set, one line per fact.
func summary(q *kueue.ClusterQueue) []string {
	p := q.Spec.Preemption
	lines := []string{fmt.Sprintf("%s %s %s %s %s:%d", q.Spec.CohortName, q.Spec.QueueingStrategy,
		p.WithinClusterQueue, p.ReclaimWithinCohort, p.BorrowWithinCohort.Policy, *p.BorrowWithinCohort.MaxPriorityThreshold)}
	for _, g := range q.Spec.ResourceGroups {
		lines = append(lines, fmt.Sprint(g.CoveredResources))
		for i := range g.Flavors {
			for _, r := range g.Flavors[i].Resources {
				lines = append(lines, fmt.Sprintf("%s %s %s %s %s", g.Flavors[i].Name, r.Name, r.NominalQuota.String(), limit(r.BorrowingLimit), limit(r.LendingLimit)))
			}
		}
	}
	for _, rule := range q.Spec.AdmissionChecksStrategy.AdmissionChecks {
		lines = append(lines, fmt.Sprintf("%s %v", rule.Name, rule.OnFlavors))
	}
	return lines
}

func limit(q *resource.Quantity) string {
	if q == nil {
		return "-"
	}
	return q.String()
}
