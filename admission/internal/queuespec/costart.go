package queuespec

import (
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
	span, isEnabled, remark := spanOrNever(object, apis.CoStartAnnotation)
	if span == nil {
		return nil, remark
	}
	return &CoStart{IsEnabled: isEnabled, ReserveFor: *span}, ""
}
