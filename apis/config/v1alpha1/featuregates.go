package v1alpha1

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Feature gates of Kueue that change the conditions of a quota Workload.
const (
	// UnadmittedWorkloadsObservability gives QuotaReserved=False the finest reason, such as WaitingForQuota instead of Pending.
	UnadmittedWorkloadsObservability = "UnadmittedWorkloadsObservability"
	// UnadmittedWorkloadsExplicitStatus sets the conditions QuotaReserved and Admitted of a quota Workload to False as soon as it is created. It needs
	// UnadmittedWorkloadsObservability.
	UnadmittedWorkloadsExplicitStatus = "UnadmittedWorkloadsExplicitStatus"
)

// FeatureGates enable features that are disabled by default, with the names that they have in Kueue.
type FeatureGates map[string]bool

// Observability reports whether conditions have the finest of Kueue's reasons.
func (g FeatureGates) Observability() bool { return g[UnadmittedWorkloadsObservability] }

// ExplicitStatus reports whether a quota Workload has its conditions as soon as it is created.
func (g FeatureGates) ExplicitStatus() bool {
	return g[UnadmittedWorkloadsExplicitStatus] && g.Observability()
}

func (g FeatureGates) validate(path *field.Path) field.ErrorList {
	known := []string{UnadmittedWorkloadsExplicitStatus, UnadmittedWorkloadsObservability}
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(g)) {
		if !slices.Contains(known, name) {
			errs = append(errs, field.NotSupported(path, name, known))
		}
	}
	if g[UnadmittedWorkloadsExplicitStatus] && !g.Observability() {
		errs = append(errs, field.Invalid(path.Key(UnadmittedWorkloadsExplicitStatus), true, "requires "+UnadmittedWorkloadsObservability+": true"))
	}
	return errs
}
