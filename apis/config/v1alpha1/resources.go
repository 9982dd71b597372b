package v1alpha1

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxMappings and maxDeviceClasses are Kueue's.
	maxMappings      = 16
	maxDeviceClasses = 8
)

// Resources configures how quota is charged. Its fields are those of Kueue.
type Resources struct {
	// ExcludeResourcePrefixes list prefixes of resource names: no quota is charged for these resources. Transformations come first: an excluded
	// resource can still be the input of one, or multiply its outputs.
	ExcludeResourcePrefixes []string `json:"excludeResourcePrefixes,omitempty"`

	// Transformations convert amounts of one resource to amounts of other resources before quota is charged. No two have the same input.
	Transformations []ResourceTransformation `json:"transformations,omitempty"`

	// DeviceClassMappings name the resource that is charged for devices that pods claim (Dynamic Resource Allocation).
	DeviceClassMappings []DeviceClassMapping `json:"deviceClassMappings,omitempty"`
}

// A ResourceTransformation converts an amount of one resource to amounts of other resources.
type ResourceTransformation struct {
	// Input is the resource that pods request.
	Input corev1.ResourceName `json:"input"`

	// Strategy is Replace if quota is charged only for the outputs, Retain if it is charged for the input, too. It defaults to Retain.
	Strategy ResourceTransformationStrategy `json:"strategy,omitempty"`

	// MultiplyBy is a resource whose amount multiplies the outputs of pods that request it.
	MultiplyBy corev1.ResourceName `json:"multiplyBy,omitempty"`

	// Outputs are the amounts that are charged for one unit of the input.
	Outputs corev1.ResourceList `json:"outputs,omitempty"`
}

// A ResourceTransformationStrategy decides whether quota is charged for the input.
type ResourceTransformationStrategy string

const (
	// Retain charges the input, too.
	Retain ResourceTransformationStrategy = "Retain"

	// Replace charges the outputs only.
	Replace ResourceTransformationStrategy = "Replace"
)

// A DeviceClassMapping names the resource that is charged for devices of the listed DeviceClasses.
type DeviceClassMapping struct {
	// Name is the resource in ClusterQueues; each device is charged as one unit of it.
	Name corev1.ResourceName `json:"name"`

	// DeviceClassNames list the DeviceClasses, at most 8. No DeviceClass may be in two mappings.
	DeviceClassNames []corev1.ResourceName `json:"deviceClassNames"`
}

func (r *Resources) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, prefix := range r.ExcludeResourcePrefixes {
		if prefix == "" {
			errs = append(errs, field.Invalid(path.Child("excludeResourcePrefixes").Index(i), prefix, "must not be empty: an empty prefix excludes all resources from quota"))
		}
	}
	return append(append(errs, r.validateTransformations(path.Child("transformations"))...), r.validateMappings(path.Child("deviceClassMappings"))...)
}

func (r *Resources) validateTransformations(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	inputs := map[corev1.ResourceName]bool{}
	for i := range r.Transformations {
		t, path := &r.Transformations[i], path.Index(i)
		errs = append(errs, resourceName(path.Child("input"), t.Input)...)
		if inputs[t.Input] {
			errs = append(errs, field.Duplicate(path.Child("input"), t.Input))
		}
		inputs[t.Input] = true
		errs = append(errs, oneOf(path.Child("strategy"), t.Strategy, Retain, Replace)...)
		if t.MultiplyBy != "" {
			errs = append(errs, resourceName(path.Child("multiplyBy"), t.MultiplyBy)...)
		}
		for _, name := range slices.Sorted(maps.Keys(t.Outputs)) {
			errs = append(errs, resourceName(path.Child("outputs").Key(string(name)), name)...)
		}
	}
	return errs
}

func (r *Resources) validateMappings(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.DeviceClassMappings) > maxMappings {
		errs = append(errs, field.TooMany(path, len(r.DeviceClassMappings), maxMappings))
	}
	names, classes := map[corev1.ResourceName]bool{}, map[corev1.ResourceName]corev1.ResourceName{}
	for i := range r.DeviceClassMappings {
		m, path := &r.DeviceClassMappings[i], path.Index(i)
		errs = append(errs, resourceName(path.Child("name"), m.Name)...)
		if names[m.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), m.Name))
		}
		names[m.Name] = true
		if path := path.Child("deviceClassNames"); len(m.DeviceClassNames) == 0 {
			errs = append(errs, field.Required(path, "must name at least one DeviceClass"))
		} else if len(m.DeviceClassNames) > maxDeviceClasses {
			errs = append(errs, field.TooMany(path, len(m.DeviceClassNames), maxDeviceClasses))
		}
		for j, class := range m.DeviceClassNames {
			path := path.Child("deviceClassNames").Index(j)
			errs = append(errs, resourceName(path, class)...)
			if other, isMapped := classes[class]; isMapped {
				errs = append(errs, field.Invalid(path, class, fmt.Sprintf("is already mapped to %s", other)))
			}
			classes[class] = m.Name
		}
	}
	return errs
}

func resourceName(path *field.Path, name corev1.ResourceName) field.ErrorList {
	return invalid(path, string(name), validation.IsQualifiedName(string(name)))
}
