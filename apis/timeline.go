package apis

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TimelineAnnotation records, on a JobSet, when each of its stages was queued, admitted, ready and finished, and for how long its quota was
// held and idle. Its value is a Timeline in JSON. Only the manager writes it.
const TimelineAnnotation = "tranche.dev/timeline"

// A Timeline is the content of TimelineAnnotation.
type Timeline struct {
	// Stages are those that have held quota and released it, or that of a growth, or finished, at least once, in the order of the plan.
	Stages []StageTimes `json:"stages"`
	// Omitted is how many stages are left out for lack of space. They are the first of the plan.
	Omitted int `json:"omitted,omitempty"`
}

// StageTimes are the times of one stage. Queued, Admitted, Ready and Finished are those of the last time that it held quota; Held and Idle
// are sums over all times.
type StageTimes struct {
	Name string `json:"name"`
	// Queued is when the stage could be admitted: the JobSet was submitted, the start conditions of the stage were met, or it was requeued.
	Queued metav1.Time `json:"queued"`
	// Admitted is when its quota was admitted.
	Admitted metav1.Time `json:"admitted"`
	// Ready is when all its pods were first ready or had succeeded. It is missing if they never were.
	Ready *metav1.Time `json:"ready,omitempty"`
	// Finished is when it finished. It is missing if it released its quota before that.
	Finished *metav1.Time `json:"finished,omitempty"`
	// NotReadySince is since when its pods have not been ready again, if a restart has gated the stage while it kept its quota. It is
	// missing if they have been ready since, or if there was no such restart.
	NotReadySince *metav1.Time `json:"notReadySince,omitempty"`
	// Counted is the time until which Held and Idle are counted.
	Counted metav1.Time `json:"counted"`
	// Held is the amount of each accelerator times the seconds for which it was reserved.
	Held map[corev1.ResourceName]int64 `json:"held,omitempty"`
	// Idle is the part of Held during which not all pods of the stage were ready, or they were ready but a stage that this readiness has
	// opened was not.
	Idle map[corev1.ResourceName]int64 `json:"idle,omitempty"`
	// Earlier has the times of the holds before the last one, the latest first: MaxEarlierHolds at most, and fewer for lack of space.
	Earlier []HoldTimes `json:"earlier,omitempty"`
}

// MaxEarlierHolds is how many earlier holds of a stage a Timeline has at most.
const MaxEarlierHolds = 5

// HoldTimes are the times of one hold of quota that has ended: the stage was evicted, or restarted after it had finished.
type HoldTimes struct {
	Queued   metav1.Time  `json:"queued"`
	Admitted metav1.Time  `json:"admitted"`
	Ready    *metav1.Time `json:"ready,omitempty"`
	// End is when the stage finished or released its quota.
	End metav1.Time `json:"end"`
}
