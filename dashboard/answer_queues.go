package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Filters of queues by what is remarkable about them.
const (
	QueuesPending   = "pending"
	QueuesBorrowing = "borrowing"
	QueuesLending   = "lending"
	QueuesIdle      = "idle"
	QueuesInactive  = "inactive"
)

// A QueueFilter selects rows of the tree.
type QueueFilter struct {
	// Under is a Cohort: only the rows below it, and its own.
	Under string
	// Text is a part of the name.
	Text string
	// Namespace selects the ClusterQueues of its LocalQueues.
	Namespace string
	// State is one of the filters of queues.
	State string
}

// Queues returns a page of the tree of Cohorts and ClusterQueues.
func (m *Model) Queues(v Viewer, f QueueFilter, w Window) Page[*QueueRow] {
	var of map[string]bool
	if f.Namespace != "" {
		of = m.clusterQueuesOf(v, f.Namespace)
	}
	f.Text = strings.ToLower(f.Text)
	visible := m.visibleRows(v)
	matches := func(row *QueueRow) bool {
		return visible[row] && (f.Under == "" || row.Kind == KindCohort && row.Name == f.Under || slices.Contains(row.Path, f.Under)) &&
			strings.Contains(row.Name, f.Text) && (of == nil || row.Kind == KindClusterQueue && of[row.Name]) && row.is(f.State)
	}
	all := func(yield func(int, *QueueRow) bool) {
		for i, row := range m.settled().rows {
			if !yield(i, row) {
				return
			}
		}
	}
	return pageOf(w, all, matches, func(_ int, row *QueueRow) *QueueRow {
		redacted := m.redactRow(v, row)
		redacted.Message = shortened(redacted.Message)
		return redacted
	})
}

// visibleRows returns the ClusterQueues that the viewer sees, and the Cohorts above one of them.
func (m *Model) visibleRows(v Viewer) map[*QueueRow]bool {
	visible := map[*QueueRow]bool{}
	cohorts := map[string]bool{}
	for _, row := range m.settled().rows {
		if row.Kind == KindClusterQueue && v.seesClusterQueue(row.Name) {
			visible[row] = true
			for _, cohort := range row.Path {
				cohorts[cohort] = true
			}
		}
	}
	for _, row := range m.settled().rows {
		if row.Kind == KindCohort && (v.ClusterQueue == nil || cohorts[row.Name]) {
			visible[row] = true
		}
	}
	return visible
}

// clusterQueuesOf returns the ClusterQueues to which the LocalQueues of a namespace lead.
func (m *Model) clusterQueuesOf(v Viewer, namespace string) map[string]bool {
	names := map[string]bool{}
	for key, q := range m.localQueues {
		if key.Namespace == namespace && q.exists && v.seesNamespace(namespace) {
			names[q.clusterQueue] = true
		}
	}
	return names
}

// is reports whether a row passes a filter of queues. Other texts select no row.
func (r *QueueRow) is(state string) bool {
	has := func(f func(b *Bar) bool) bool {
		for i := range r.Bars {
			if f(&r.Bars[i]) {
				return true
			}
		}
		return false
	}
	switch state {
	case "":
		return true
	case QueuesPending:
		return r.Pending > 0
	case QueuesInactive:
		return r.Reason != ""
	case QueuesBorrowing:
		return has(func(b *Bar) bool { return b.Borrowed > 0 })
	case QueuesLending:
		return has(func(b *Bar) bool { return b.Lent > 0 })
	case QueuesIdle:
		return has(func(b *Bar) bool { return ptr.Deref(b.Idle, 0) > 0 })
	}
	return false
}

// A QueueAnswer describes a ClusterQueue.
type QueueAnswer struct {
	*QueueRow
	// Strategy is the queueing strategy, and Stop the stop policy if it is not None.
	Strategy string `json:"strategy"`
	Stop     string `json:"stop,omitempty"`
	// Order describes what else than priority and time orders the line.
	Order string `json:"order,omitempty"`
	// States counts the quota Workloads that were read and have not finished.
	States map[State]int `json:"states"`
	// LocalQueues are those of namespaces that the viewer sees; HiddenLocalQueues counts the others.
	LocalQueues       []LocalQueueAnswer `json:"localQueues"`
	HiddenLocalQueues int                `json:"hiddenLocalQueues,omitempty"`
	History           HistoryAnswer      `json:"history"`
}

// maxLocalQueues is the number of LocalQueues that a QueueAnswer names.
const maxLocalQueues = 100

// isKnown reports whether a ClusterQueue was observed, or a LocalQueue that leads to it.
func (q *clusterQueue) isKnown() bool { return q.exists || q.name != "" && len(q.localQueues) > 0 }

// Queue returns the description of a ClusterQueue, if the viewer sees it. If only LocalQueues name it, the description has no quota.
func (m *Model) Queue(v Viewer, name string, now time.Time) (QueueAnswer, bool) {
	q := m.clusterQueues[name]
	if q == nil || !q.isKnown() || !v.seesClusterQueue(name) {
		return QueueAnswer{}, false
	}
	row := m.settled().byName[name]
	if row == nil {
		row = &QueueRow{Kind: KindClusterQueue, Name: name, Path: []string{}, Bars: []Bar{}, Reason: "NotRead", Message: "the ClusterQueue does not exist, or may not be read"}
	}
	answer := QueueAnswer{
		QueueRow: m.redactRow(v, row), Strategy: cmp.Or(q.strategy, string(kueue.BestEffortFIFO)), Stop: q.stop,
		States: map[State]int{}, LocalQueues: []LocalQueueAnswer{}, History: m.historyOf(q, now),
	}
	if q.isUsageBased {
		answer.Order = "Admission fair sharing also orders LocalQueues by their past usage, which this line does not show"
	}
	for state, n := range q.counts {
		if n > 0 {
			answer.States[state] = n
		}
	}
	for lq := range q.localQueues {
		switch {
		case !lq.exists:
		case !v.seesNamespace(lq.key.Namespace):
			answer.HiddenLocalQueues++
		default:
			answer.LocalQueues = append(answer.LocalQueues, lq.answer(m, v))
		}
	}
	slices.SortFunc(answer.LocalQueues, func(a, b LocalQueueAnswer) int {
		return cmp.Or(cmp.Compare(b.Pending+b.Holding, a.Pending+a.Holding), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	answer.LocalQueues = answer.LocalQueues[:min(len(answer.LocalQueues), maxLocalQueues)]
	return answer, true
}
