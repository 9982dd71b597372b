package v1alpha1

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Mode is how Tranche shares a cluster with Kueue's manager.
type Mode string

const (
	// ModeInstead admits quota Workloads in the place of Kueue, whose manager does not run.
	ModeInstead Mode = "Instead"

	// ModeBeside leaves admission to Kueue's manager: Tranche plans stages, creates their quota Workloads, and releases Jobs.
	ModeBeside Mode = "Beside"
)

// validateMode refuses fields that would do nothing because Kueue's manager admits, with what to do instead.
func (c *Configuration) validateMode() field.ErrorList {
	if c.Mode != ModeBeside {
		return oneOf(field.NewPath("mode"), c.Mode, ModeInstead, ModeBeside)
	}
	defaults := &Configuration{}
	defaults.SetDefaults()
	var errs field.ErrorList
	refuse := func(cure string, path ...string) {
		errs = append(errs, field.Forbidden(field.NewPath(path[0], path[1:]...), "has no effect in mode Beside; "+cure))
	}
	if isTrue(c.Visibility.Enable) {
		refuse("remove it: Kueue's manager serves the visibility API", "visibility", "enable")
	}
	if isTrue(c.ExpectedStart.Enable) {
		refuse("remove it: the order in which Kueue's manager admits is not simulated", "expectedStart", "enable")
	}
	if isTrue(c.WaitForPodsReady.Enable) {
		refuse("set waitForPodsReady in the configuration of Kueue's manager", "waitForPodsReady", "enable")
	}
	if c.FairSharing != nil {
		refuse("set fairSharing in the configuration of Kueue's manager", "fairSharing")
	}
	if c.AdmissionFairSharing != nil {
		refuse("set admissionFairSharing in the configuration of Kueue's manager", "admissionFairSharing")
	}
	if !reflect.DeepEqual(c.PodGroups, defaults.PodGroups) {
		refuse("remove it: the pod integration of Kueue's manager queues pods", "podGroups")
	}
	if slices.Contains(slices.Collect(maps.Values(c.FeatureGates)), true) {
		refuse("set the gates in the configuration of Kueue's manager", "featureGates")
	}
	return errs
}

func isTrue(value *bool) bool { return value != nil && *value }
