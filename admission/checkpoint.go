package admission

import (
	"time"

	"github.com/tranche-dev/tranche/apis"
)

// CheckpointOf returns when the work of a JobSet with these annotations was last saved, or zero.
func CheckpointOf(annotations map[string]string) time.Time {
	at, err := time.Parse(time.RFC3339, annotations[apis.CheckpointedAtAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}
