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
func desired(s *workloadstatus.Seen, podsReady *configapi.WaitForPodsReady, now time.Time) *wanted {
	step := workloadstatus.Next(s, podsReady, now)
	return &wanted{step, eventsOf(step.News), stageEvicted(s.Workload, step.News)}
}

// stageEvicted returns the Event on the JobSet of a stage that must release its quota, or nil.
func stageEvicted(w *kueue.Workload, news workloadstatus.News) *events.Event {
	n, isEvicted := news.(workloadstatus.EvictedNews)
	stage := w.Labels[apis.StageLabel]
	if !isEvicted || stage == "" || w.Status.Admission == nil {
		return nil
	}
	e := events.StageEvicted(engine.StageName(stage, w), engine.Usage(w.Status.Admission), n.Eviction.FullReason(), n.Eviction.Message)
	return &e
}

// eventsOf returns the Events on a quota Workload for a transition.
func eventsOf(news workloadstatus.News) []events.Event {
	switch n := news.(type) {
	case workloadstatus.EvictedNews:
		return []events.Event{events.Evicted(n.Eviction.EventReason(), n.Eviction.Message)}
	case workloadstatus.AdmittedNews:
		return []events.Event{events.Admitted(string(n.ClusterQueue), n.Waited)}
	case workloadstatus.RejectedNews:
		return []events.Event{events.AdmissionCheckRejected(n.Verdict)}
	case workloadstatus.OutOfTimeNews:
		return []events.Event{events.MaximumExecutionTimeExceeded(n.Seconds)}
	case workloadstatus.OutOfTriesNews:
		return []events.Event{events.RequeuingLimitExceeded(n.Limit)}
	case workloadstatus.RequeuedNews:
		return []events.Event{events.Requeued(n.Why)}
	case workloadstatus.GatedNews:
		return []events.Event{events.AdmissionGated(n.By)}
	case workloadstatus.UngatedNews:
		return []events.Event{events.AdmissionGateCleared()}
	}
	return nil
}
