package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/unblock"
)

// changeTexts renders the changes of one set, at least one. missing is what the quota Workload lacks now.
func changeTexts(set *unblock.Set, missing map[quota.FlavorResource]struct{}) (parts []string) {
	for i := range set.Succeed {
		parts = append(parts, runningText(&set.Succeed[i], missing))
	}
	for i := range set.Raise {
		r := &set.Raise[i]
		amount := r.Amount()
		parts = append(parts, fmt.Sprintf("raise %s of %s of flavor %s in %s %s by %s, from %s to %s",
			r.Limit.Field, r.Limit.Resource, r.Limit.Flavor, r.Limit.Kind, r.Limit.Name, amount.String(), r.From.String(), r.To.String()))
	}
	if set.Evicts > 0 {
		parts[len(parts)-1] += fmt.Sprintf(" (the engine then evicts %d quota Workloads)", set.Evicts)
	}
	return parts
}

// runningText renders a quota Workload that ends, with what it holds of what is missing.
func runningText(r *simulator.Running, missing map[quota.FlavorResource]struct{}) string {
	name := "Workload " + r.Workload.String()
	if r.JobSet != "" {
		name = fmt.Sprintf("stage %s of JobSet %s/%s", r.Stage, r.Workload.Namespace, r.JobSet)
	}
	var held []string
	for _, fr := range slices.SortedFunc(maps.Keys(r.Usage), func(a, b quota.FlavorResource) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Flavor, b.Flavor))
	}) {
		if _, isMissing := missing[fr]; !isMissing {
			continue
		}
		amount := r.Usage[fr]
		held = append(held, fmt.Sprintf("%s %s of flavor %s", amount.String(), fr.Resource, fr.Flavor))
	}
	text := fmt.Sprintf("%s ends (%s", name, strings.TrimSpace(strings.Join(held, ", ")+" in ClusterQueue "+r.ClusterQueue))
	if !r.End.IsZero() {
		text += ", expected by " + r.End.UTC().Format("2006-01-02 15:04:05Z")
	}
	return text + ")"
}
