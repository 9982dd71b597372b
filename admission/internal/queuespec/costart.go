package queuespec

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// A CoStart is how policy Safe treats a stage that holds accelerators and starts other stages when it is ready.
type CoStart struct {
	// IsEnabled is true if the stage is admitted only when there is quota for the stages that it starts, too.
	IsEnabled bool
	// ReserveFor is how long that quota stays reserved after the admission of the stage. It is not negative.
	ReserveFor time.Duration
}

// coStartOf reads the annotation of a ClusterQueue. Without one, and with one that is wrong, the setting is nil. remark says what is wrong.
func coStartOf(object *kueue.ClusterQueue) (setting *CoStart, remark string) {
	value, isSet := object.Annotations[apis.CoStartAnnotation]
	switch {
	case !isSet:
		return nil, ""
	case value == apis.Never:
		return &CoStart{}, ""
	}
	reserveFor, err := time.ParseDuration(value)
	if err != nil || reserveFor < 0 || reserveFor > apis.LongestSpan {
		return nil, fmt.Sprintf("metadata.annotations[%s]: must be a duration from 0s to %s, or %s, not %q: it has no effect",
			apis.CoStartAnnotation, apis.LongestSpan, apis.Never, value)
	}
	return &CoStart{IsEnabled: true, ReserveFor: reserveFor}, ""
}
