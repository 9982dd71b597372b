package dashboard

import (
	"strings"
	"time"

	"github.com/tranche-dev/tranche/dashboard/internal/ordered"
)

// A WorkloadFilter selects quota Workloads of a ClusterQueue.
type WorkloadFilter struct {
	// List is pending, holding or other. The first is in the order in which the quota Workloads would be admitted if all fitted.
	List string
	// Namespace, Queue and State select exact values, and Text a part of the name of the quota Workload or of its owner. All names are
	// in lower case.
	Namespace, Queue, Text string
	State                  State
}

// The lists of a ClusterQueue.
const (
	ListPending = "pending"
	ListHolding = "holding"
	ListOther   = "other"
)

// A WorkloadRow is a quota Workload.
type WorkloadRow struct {
	// Position counts the quota Workloads before it in a line of pending ones. It is missing in other lists, and if not all quota Workloads
	// could be read.
	Position *int `json:"position,omitempty"`
	// PositionInLocalQueue counts those before it in its LocalQueue. Only the list of a LocalQueue has it.
	PositionInLocalQueue *int `json:"positionInLocalQueue,omitempty"`
	// IsHidden is true if the viewer may not see its namespace. Then all other fields but State are missing.
	IsHidden  bool      `json:"hidden,omitempty"`
	State     State     `json:"state"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Queue     string    `json:"queue,omitempty"`
	OwnerKind string    `json:"ownerKind,omitempty"`
	Owner     string    `json:"owner,omitempty"`
	Stage     string    `json:"stage,omitempty"`
	Priority  int32     `json:"priority,omitempty"`
	Created   time.Time `json:"created,omitzero"`
	// Since is when its state began, or when its reason last changed.
	Since time.Time `json:"since,omitzero"`
	// Reason and Message are those of its conditions.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ExpectedStart is missing if it is not pending, or if the manager has not written one to its JobSet.
	ExpectedStart *StartAnswer `json:"expectedStart,omitempty"`
	// Requests is what it asks for, and Held what it holds.
	Requests []Amount `json:"requests,omitempty"`
	Held     []Amount `json:"held,omitempty"`
}

// Workloads returns a page of quota Workloads of a ClusterQueue, if the viewer sees the ClusterQueue.
func (m *Model) Workloads(v Viewer, clusterQueue string, f WorkloadFilter, w Window) (Page[WorkloadRow], bool) {
	q := m.clusterQueues[clusterQueue]
	if q == nil || !q.isKnown() || !v.seesClusterQueue(clusterQueue) {
		return Page[WorkloadRow]{}, false
	}
	from := q.list(f.List)
	return m.workloadsIn(v, from, f, w, func(rank int, _ *workload, row *WorkloadRow) {
		if from == q.pending && !m.isPartial {
			row.Position = &rank
		}
	}), true
}

// workloadsIn returns a page of a list of quota Workloads. Place adds their positions.
func (m *Model) workloadsIn(v Viewer, from *ordered.List[*workload], f WorkloadFilter, w Window, place func(rank int, w *workload, row *WorkloadRow)) Page[WorkloadRow] {
	convert := func(rank int, w *workload) WorkloadRow {
		row := w.row(m, v)
		row.Message = shortened(row.Message)
		place(rank, w, &row)
		return row
	}
	isFiltered := f.Namespace != "" || f.Queue != "" || f.Text != ""
	if !isFiltered && f.State == "" {
		return pageOfList(w, from, convert)
	}
	f.Text = strings.ToLower(f.Text)
	matches := func(w *workload) bool {
		if !v.seesNamespace(w.key.Namespace) {
			// A filter must not reveal the names of objects that the viewer does not see.
			return !isFiltered && (f.State == "" || w.state == f.State)
		}
		return (f.Namespace == "" || w.key.Namespace == f.Namespace) && (f.Queue == "" || w.localQueue.key.Name == f.Queue) &&
			(f.State == "" || w.state == f.State) && (strings.Contains(w.key.Name, f.Text) || strings.Contains(w.ownerName, f.Text))
	}
	return pageOf(w, from.From(0), matches, convert)
}

// list returns the list of a name: that of pending quota Workloads for an unknown name.
func (q *clusterQueue) list(name string) *ordered.List[*workload] {
	switch name {
	case ListHolding:
		return q.holders
	case ListOther:
		return q.others
	}
	return q.pending
}

func (w *workload) row(m *Model, v Viewer) WorkloadRow {
	if !v.seesNamespace(w.key.Namespace) {
		return WorkloadRow{IsHidden: true, State: w.state}
	}
	return WorkloadRow{
		State: w.state, Namespace: w.key.Namespace, Name: w.key.Name, Queue: w.localQueue.key.Name, OwnerKind: w.ownerKind, Owner: w.ownerName,
		Stage: w.stage, Priority: w.priority, Created: w.created, Since: w.since, Reason: w.reason, Message: m.redact(v, w.message),
		Requests: w.requests, Held: amountsHeld(w.held), ExpectedStart: startOf(w),
	}
}
