package queuespec

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// A Reservation is when quota is reserved for a stage that waits for quota.
type Reservation struct {
	// IsEnabled is false if no stage gets a reservation because it has waited for long.
	IsEnabled bool
	// After is how long a stage waits before that. It is not negative.
	After time.Duration
}

// reservationOf reads the annotation of a ClusterQueue. Without one, and with one that is wrong, the setting is nil. remark says what is wrong.
func reservationOf(object *kueue.ClusterQueue) (setting *Reservation, remark string) {
	span, isEnabled, remark := spanOf(object, apis.ReserveAfterAnnotation)
	if span == nil {
		return nil, remark
	}
	return &Reservation{IsEnabled: isEnabled, After: *span}, ""
}

// spanOf reads an annotation that is a duration, or Never: then isEnabled is false. Without one, and with one that is wrong, span is nil.
func spanOf(object *kueue.ClusterQueue, annotation string) (span *time.Duration, isEnabled bool, remark string) {
	value, isSet := object.Annotations[annotation]
	switch {
	case !isSet:
		return nil, false, ""
	case value == apis.Never:
		return new(time.Duration), false, ""
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > apis.LongestSpan {
		return nil, false, fmt.Sprintf("metadata.annotations[%s]: must be a duration from 0s to %s, or %s, not %q: it has no effect",
			annotation, apis.LongestSpan, apis.Never, value)
	}
	return &d, true, ""
}
