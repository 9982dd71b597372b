package dashboard

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// A LocalQueueAnswer describes a LocalQueue.
type LocalQueueAnswer struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// ClusterQueue is missing if the viewer does not see it.
	ClusterQueue string `json:"clusterQueue,omitempty"`
	Stop         string `json:"stop,omitempty"`
	// Pending and Holding count quota Workloads, and Held is what the latter hold: accelerators come first.
	Pending int      `json:"pending"`
	Holding int      `json:"holding"`
	Held    []Amount `json:"held,omitempty"`
	// Reason and Message report why it is not active.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

func (q *localQueue) answer(m *Model, v Viewer) LocalQueueAnswer {
	a := LocalQueueAnswer{
		Namespace: q.key.Namespace, Name: q.key.Name, ClusterQueue: v.clusterQueueFor(q.clusterQueue), Stop: q.stop,
		Pending: q.pending.Len(), Holding: q.holders.Len(), Held: acceleratorsFirst(q.held),
	}
	switch {
	case !q.exists:
		a.Reason, a.Message = "NotRead", "the LocalQueue does not exist, or may not be read"
	case q.inactive != nil:
		a.Reason, a.Message = q.inactive.Reason, shortened(m.redact(v, q.inactive.Message))
	}
	return a
}

// isKnown reports whether a LocalQueue was observed, or a quota Workload that names it.
func (q *localQueue) isKnown() bool { return q.exists || q.key.Name != "" }

// A LocalQueueFilter selects LocalQueues.
type LocalQueueFilter struct {
	// Namespace and ClusterQueue select exact values, and Text a part of the name.
	Namespace, ClusterQueue, Text string
}

// LocalQueues returns a page of the LocalQueues of namespaces that the viewer sees, in the order of their names.
func (m *Model) LocalQueues(v Viewer, f LocalQueueFilter, w Window) Page[LocalQueueAnswer] {
	f.Text = strings.ToLower(f.Text)
	var found []*localQueue
	for key, q := range m.localQueues {
		if q.isKnown() && v.seesNamespace(key.Namespace) && (f.Namespace == "" || key.Namespace == f.Namespace) && strings.Contains(key.Name, f.Text) &&
			(f.ClusterQueue == "" || v.clusterQueueFor(q.clusterQueue) == f.ClusterQueue) {
			found = append(found, q)
		}
	}
	slices.SortFunc(found, func(a, b *localQueue) int { return compareKeys(a.key, b.key) })
	isAny := func(*localQueue) bool { return true }
	return pageOf(w, slices.All(found), isAny, func(_ int, q *localQueue) LocalQueueAnswer { return q.answer(m, v) })
}

// LocalQueue returns the description of a LocalQueue, if the viewer sees its namespace.
func (m *Model) LocalQueue(v Viewer, key types.NamespacedName) (LocalQueueAnswer, bool) {
	q := m.localQueueFor(v, key)
	if q == nil {
		return LocalQueueAnswer{}, false
	}
	return q.answer(m, v), true
}

// LocalQueueWorkloads returns a page of the pending quota Workloads of a LocalQueue, or of those that hold quota, if the viewer sees its namespace. The filter
// selects by text and state.
func (m *Model) LocalQueueWorkloads(v Viewer, key types.NamespacedName, f WorkloadFilter, w Window) (Page[WorkloadRow], bool) {
	q := m.localQueueFor(v, key)
	if q == nil {
		return Page[WorkloadRow]{}, false
	}
	from := q.pending
	if f.List == ListHolding {
		from = q.holders
	}
	return m.workloadsIn(v, from, f, w, func(rank int, w *workload, row *WorkloadRow) {
		if from != q.pending {
			return
		}
		row.PositionInLocalQueue = &rank
		if !m.isPartial {
			row.Position = new(w.in.Rank(w))
		}
	}), true
}

// localQueueFor returns a LocalQueue, or nil if the viewer does not see its namespace.
func (m *Model) localQueueFor(v Viewer, key types.NamespacedName) *localQueue {
	if q := m.localQueues[key]; q != nil && q.isKnown() && v.seesNamespace(key.Namespace) {
		return q
	}
	return nil
}
