package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// The kinds of objects whose Events are those of a JobSet.
const (
	jobSetKind   = "JobSet"
	workloadKind = "Workload"
	jobKind      = "Job"
)

// EventKinds returns the kinds of objects whose Events are those of a JobSet.
func EventKinds() []string { return []string{jobSetKind, workloadKind, jobKind} }

// An EventRow is an Event about a JobSet, one of its quota Workloads or one of its Jobs.
type EventRow struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Source  string `json:"source,omitempty"`
	// Count is how often it was seen, the first time at First and the last time at Last.
	Count int32     `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// An EventsAnswer is a page of Events. The latest come first.
type EventsAnswer struct {
	Page[EventRow]
	// Types counts the Events of each type.
	Types map[string]int `json:"types"`
	// Gaps are why something is not shown.
	Gaps []string `json:"gaps,omitempty"`
}

// Events collects the Events about a JobSet.
type Events struct {
	jobSet    *jobsetapi.JobSet
	workloads []types.NamespacedName
	rows      []EventRow
}

// NewEvents returns an empty collection for a JobSet and its quota Workloads.
func NewEvents(js *jobsetapi.JobSet, workloads []types.NamespacedName) *Events {
	return &Events{jobSet: js, workloads: workloads}
}

// Add adds an Event if it belongs to the JobSet.
func (e *Events) Add(event *corev1.Event) {
	if !e.has(event) {
		return
	}
	row := EventRow{
		Type: event.Type, Reason: event.Reason, Message: shortened(event.Message), Kind: event.InvolvedObject.Kind, Name: event.InvolvedObject.Name,
		Source: cmp.Or(event.ReportingController, event.Source.Component), Count: max(1, event.Count), First: event.FirstTimestamp.Time, Last: LastSeen(event),
	}
	if event.Series != nil {
		row.Count = event.Series.Count
	}
	if row.First.IsZero() {
		row.First = cmp.Or(event.EventTime.Time, row.Last)
	}
	e.rows = append(e.rows, row)
}

// has reports whether an Event is about the JobSet or an object of it. An object may be gone, so objects are known by their names: those of an earlier JobSet of the
// same name were seen before this one was created.
func (e *Events) has(event *corev1.Event) bool {
	object := &event.InvolvedObject
	if object.Kind == jobSetKind {
		return object.UID == e.jobSet.UID
	}
	if LastSeen(event).Before(e.jobSet.CreationTimestamp.Time) {
		return false
	}
	switch object.Kind {
	case workloadKind:
		return slices.Contains(e.workloads, types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	case jobKind:
		return e.hasJob(object.Name)
	}
	return false
}

// hasJob reports whether the JobSet controller gives a Job of the JobSet this name.
func (e *Events) hasJob(name string) bool {
	rest, isPrefix := strings.CutPrefix(name, e.jobSet.Name+"-")
	if !isPrefix {
		return false
	}
	for i := range e.jobSet.Spec.ReplicatedJobs {
		index, isPrefix := strings.CutPrefix(rest, e.jobSet.Spec.ReplicatedJobs[i].Name+"-")
		if isPrefix && index != "" && strings.Trim(index, "0123456789") == "" {
			return true
		}
	}
	return false
}

// Answer returns a page of the Events of a type, or of all types if it is empty.
func (e *Events) Answer(eventType string, w Window) EventsAnswer {
	slices.SortFunc(e.rows, func(a, b EventRow) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	answer := EventsAnswer{Types: map[string]int{}}
	for i := range e.rows {
		answer.Types[e.rows[i].Type]++
	}
	isOfType := func(row EventRow) bool { return eventType == "" || row.Type == eventType }
	answer.Page = pageOf(w, slices.All(e.rows), isOfType, func(_ int, row EventRow) EventRow { return row })
	return answer
}

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
