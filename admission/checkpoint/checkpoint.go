// Package checkpoint reads when the work of a JobSet was last saved.
package checkpoint

import (
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/apis"
)

// mostSkew is how far the clock of a pod may be ahead.
const mostSkew = time.Minute

// Of returns when the work of a JobSet with these annotations was last saved, or zero.
func Of(annotations map[string]string) time.Time {
	at, err := time.Parse(time.RFC3339, annotations[apis.CheckpointedAtAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

// Remark says that a checkpoint does not count yet, because its time has not come. Otherwise it is empty.
func Remark(annotations map[string]string, now time.Time) string {
	at := Of(annotations)
	if !at.After(now.Add(mostSkew)) {
		return ""
	}
	return fmt.Sprintf("metadata.annotations[%s]: %s is in the future, and has no effect until then; write the time at which the work was saved",
		apis.CheckpointedAtAnnotation, at.UTC().Format(time.RFC3339))
}
