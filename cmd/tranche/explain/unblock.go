package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/unblock"
)

// setText renders one set.
func setText(set *unblock.Set) string {
	var parts []string
	for i := range set.Succeed {
		parts = append(parts, runningText(&set.Succeed[i]))
	}
	for i := range set.Raise {
		r := &set.Raise[i]
		amount := r.Amount()
		parts = append(parts, fmt.Sprintf("raise %s of %s of flavor %s in %s %s by %s, from %s to %s",
			r.Limit.Field, r.Limit.Resource, r.Limit.Flavor, r.Limit.Kind, r.Limit.Name, amount.String(), r.From.String(), r.To.String()))
	}
	text := strings.Join(parts, "; and ")
	if set.Evicts > 0 {
		text += fmt.Sprintf(" (the engine then evicts %d quota Workloads)", set.Evicts)
	}
	return text
}

func runningText(r *simulator.Running) string {
	name := "Workload " + r.Workload.String()
	if r.JobSet != "" {
		name = fmt.Sprintf("stage %s of JobSet %s/%s", r.Stage, r.Workload.Namespace, r.JobSet)
	}
	var held []string
	for _, fr := range slices.SortedFunc(maps.Keys(r.Usage), func(a, b simulator.FlavorResource) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Flavor, b.Flavor))
	}) {
		amount := r.Usage[fr]
		held = append(held, fmt.Sprintf("%s %s of flavor %s", amount.String(), fr.Resource, fr.Flavor))
	}
	text := fmt.Sprintf("%s ends (%s in ClusterQueue %s", name, strings.Join(held, ", "), r.ClusterQueue)
	if !r.End.IsZero() {
		text += ", expected by " + r.End.UTC().Format("2006-01-02 15:04:05Z")
	}
	return text + ")"
}
