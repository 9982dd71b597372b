package v1alpha1

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/apis"
)

// A CoStart configures when a stage is admitted that holds accelerators and starts other stages as soon as it is ready, under the stage-admission
// policy Safe. Without co-start it may hold its accelerators only in order to wait for the quota of these stages. The annotation
// tranche.dev/co-start-reserve-for of a ClusterQueue overrides it.
type CoStart struct {
	// Enable is true if such a stage is admitted only when there is quota for the stages that it starts, too. It defaults to true. In the mode
	// Beside it has an effect only where Tranche has taken over.
	Enable *bool `json:"enable,omitempty"`

	// ReserveFor is how long the quota of these stages stays reserved for them after the admission of the stage. A stage that takes longer to
	// become ready keeps its own quota, and the stages that it starts wait like others. With 0s nothing is reserved. It is at most 8760h, and
	// defaults to 5m.
	ReserveFor *metav1.Duration `json:"reserveFor,omitempty"`

	// Accelerators lists the resources that count as accelerators. By default all do that not every node has: all but cpu, memory, storage,
	// ephemeral-storage, pods and huge pages.
	Accelerators []corev1.ResourceName `json:"accelerators,omitempty"`
}

func (c *CoStart) validate(path *field.Path) field.ErrorList {
	errs := span(path.Child("reserveFor"), c.ReserveFor)
	for i, name := range c.Accelerators {
		errs = append(errs, invalid(path.Child("accelerators").Index(i), string(name), validation.IsQualifiedName(string(name)))...)
	}
	return errs
}

// span allows no duration that is negative, or longer than those of annotations.
func span(path *field.Path, value *metav1.Duration) field.ErrorList {
	if value == nil || value.Duration >= 0 && value.Duration <= apis.LongestSpan {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value.Duration.String(), fmt.Sprintf("must be between 0s and %s", apis.LongestSpan))}
}
