package queuespec

import (
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
	span, isEnabled, remark := spanOrNever(object, apis.ReserveAfterAnnotation)
	if span == nil {
		return nil, remark
	}
	return &Reservation{IsEnabled: isEnabled, After: *span}, ""
}
