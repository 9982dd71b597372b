package quotaworkload

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// wanted contains the writes of one reconcile.
type wanted struct {
	*workloadstatus.Step
	// events are emitted after the write.
	events []events.Event
	// onJobSet is also emitted on the JobSet. It may be nil.
	onJobSet *events.Event
}

// desired computes what to write from the snapshot and the time. It does no I/O.
func desired(s *workloadstatus.Snapshot, podsReady *configapi.WaitForPodsReady, now time.Time) *wanted {
	step := workloadstatus.Next(s, podsReady, now)
	return &wanted{step, eventsOf(step.Transition), stageEvicted(s.Workload, step.Transition)}
}

// stageEvicted returns the Event on the JobSet of a stage that must release its quota, or nil.
func stageEvicted(w *kueue.Workload, transition workloadstatus.Transition) *events.Event {
	n, isEvicted := transition.(workloadstatus.EvictedTransition)
	stage := w.Labels[apis.StageLabel]
	if !isEvicted || stage == "" || w.Status.Admission == nil {
		return nil
	}
	e := events.StageEvicted(engine.StageName(stage, w), engine.Usage(w.Status.Admission), n.Eviction.FullReason(), n.Eviction.Message)
	return &e
}

// eventsOf returns the Events on a quota Workload for a transition.
func eventsOf(transition workloadstatus.Transition) []events.Event {
	switch n := transition.(type) {
	case workloadstatus.EvictedTransition:
		return []events.Event{events.Evicted(n.Eviction.EventReason(), n.Eviction.Message)}
	case workloadstatus.AdmittedTransition:
		return []events.Event{events.Admitted(string(n.ClusterQueue), n.Waited)}
	case workloadstatus.RejectedTransition:
		return []events.Event{events.AdmissionCheckRejected(n.Verdict)}
	case workloadstatus.OutOfTimeTransition:
		return []events.Event{events.MaximumExecutionTimeExceeded(n.Seconds)}
	case workloadstatus.OutOfTriesTransition:
		return []events.Event{events.RequeuingLimitExceeded(n.Limit)}
	case workloadstatus.RequeuedTransition:
		return []events.Event{events.Requeued(n.Why)}
	case workloadstatus.GatedTransition:
		return []events.Event{events.AdmissionGated(n.By)}
	case workloadstatus.UngatedTransition:
		return []events.Event{events.AdmissionGateCleared()}
	}
	return nil
}
