package dashboard

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// LastSeen returns when an Event was last seen. The two APIs of Events fill different fields.
func LastSeen(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	}
	return event.EventTime.Time
}
