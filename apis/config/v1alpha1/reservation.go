package v1alpha1

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/apis"
)

// A Reservation configures when quota is reserved for a stage that has waited for it for long. The annotation tranche.dev/reserve-after of a
// ClusterQueue overrides it.
type Reservation struct {
	// After is how long a stage waits for quota before quota is reserved for it: a duration of at most 8760h, or Never, with which smaller stages
	// can overtake it without end. It counts from the submission of the JobSet or from its last eviction. It defaults to Never.
	After string `json:"after,omitempty"`
}

func (r *Reservation) validate(path *field.Path) field.ErrorList {
	if r.After == apis.Never {
		return nil
	}
	if after, err := time.ParseDuration(r.After); err != nil || after < 0 || after > apis.LongestSpan {
		return field.ErrorList{field.Invalid(path.Child("after"), r.After, fmt.Sprintf("must be a duration from 0s to %s, or %s", apis.LongestSpan, apis.Never))}
	}
	return nil
}
