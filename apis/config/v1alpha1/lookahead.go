package v1alpha1

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/apis"
)

// A LookAhead configures how many JobSets run their stages without accelerators, such as the download of a model, before there are accelerators for their
// next stages.
type LookAhead struct {
	// Stages is 1 if MaxAhead counts, and 0 if all JobSets may prepare their work as soon as their stages without accelerators fit. It defaults to 1.
	Stages *int32 `json:"stages,omitempty"`

	// MaxAhead is how many JobSets of a ClusterQueue are prepared ahead: a stage without accelerators runs or has finished, and none with accelerators
	// has been admitted. It does not hold back a JobSet whose accelerators are free, nor one with a higher priority than those that are prepared. It is
	// at most 1000000, and defaults to 32.
	MaxAhead *int32 `json:"maxAhead,omitempty"`

	// StalledAfter is how long after the last admission of one of its stages a JobSet keeps others waiting. After that, it does not count for MaxAhead while it
	// still prepares its work, and free accelerators are not kept for it. It defaults to 15m.
	StalledAfter *metav1.Duration `json:"stalledAfter,omitempty"`
}

func (l *LookAhead) setDefaults() {
	set(&l.Stages, 1)
	set(&l.MaxAhead, 32)
	set(&l.StalledAfter, metav1.Duration{Duration: 15 * time.Minute})
}

func (l *LookAhead) validate(path *field.Path) field.ErrorList {
	const most = 1_000_000
	var errs field.ErrorList
	if l.Stages != nil && *l.Stages != 0 && *l.Stages != 1 {
		errs = append(errs, field.NotSupported(path.Child("stages"), *l.Stages, []string{"0", "1"}))
	}
	if l.MaxAhead != nil && (*l.MaxAhead < 0 || *l.MaxAhead > most) {
		errs = append(errs, field.Invalid(path.Child("maxAhead"), *l.MaxAhead, "must be between 0 and 1000000"))
	}
	if l.StalledAfter != nil && (l.StalledAfter.Duration < 0 || l.StalledAfter.Duration > apis.LongestSpan) {
		errs = append(errs, field.Invalid(path.Child("stalledAfter"), l.StalledAfter.Duration.String(), fmt.Sprintf("must be between 0s and %s", apis.LongestSpan)))
	}
	return errs
}
