package queuespec

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// spanOf reads an annotation of a ClusterQueue that is a duration. Without one, and with one that is wrong, the span is nil. remark says what is wrong,
// and which other values there are.
func spanOf(object *kueue.ClusterQueue, key, otherValues string) (span *time.Duration, remark string) {
	value, isSet := object.Annotations[key]
	if !isSet {
		return nil, ""
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > apis.LongestSpan {
		return nil, fmt.Sprintf("metadata.annotations[%s]: must be a duration from 0s to %s%s, not %q: it has no effect", key, apis.LongestSpan, otherValues, value)
	}
	return &d, ""
}

// spanOrNever reads an annotation that is a duration, or Never: then isEnabled is false.
func spanOrNever(object *kueue.ClusterQueue, key string) (span *time.Duration, isEnabled bool, remark string) {
	if object.Annotations[key] == apis.Never {
		return new(time.Duration), false, ""
	}
	span, remark = spanOf(object, key, ", or "+apis.Never)
	return span, span != nil, remark
}
