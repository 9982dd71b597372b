package dashboard

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// A ChangeKind is what changes.
type ChangeKind string

// The kinds of changes that are known before they happen.
const (
	// ChangeStart is the expected start of a stage.
	ChangeStart ChangeKind = "Start"
	// ChangeEnd is the end of the maximum execution time of a quota Workload, which ends it at the latest.
	ChangeEnd ChangeKind = "End"
	// ChangePreemption is the time until which pods run that have notice of their preemption.
	ChangePreemption ChangeKind = "Preemption"
)

// A change is known before it happens. The zero change is none.
type change struct {
	// at is in seconds since 1970.
	at   int64
	kind ChangeKind
	// key is that of the JobSet that starts, or else of the quota Workload.
	key types.NamespacedName
}

func (c change) compare(other change) int {
	return cmp.Or(cmp.Compare(c.at, other.at), cmp.Compare(c.kind, other.kind), compareKeys(c.key, other.key))
}

// nextOf returns what is known to change next about a quota Workload whose state is known.
func nextOf(w *workload, object *kueue.Workload) change {
	if w.state != Starting && w.state != Running {
		return change{}
	}
	if notice := quotaworkload.NoticeOf(object); notice != nil {
		return change{notice.Ends.Unix(), ChangePreemption, w.key}
	}
	limit, admitted := object.Spec.MaximumExecutionTimeSeconds, quotaworkload.FindTrue(object, kueue.WorkloadAdmitted)
	if limit == nil || admitted == nil {
		return change{}
	}
	left := time.Duration(*limit-ptr.Deref(object.Status.AccumulatedPastExecutionTimeSeconds, 0)) * time.Second
	return change{admitted.LastTransitionTime.Add(left).Unix(), ChangeEnd, w.key}
}

// startChangeOf returns the expected start of a JobSet that waits.
func startChangeOf(js *jobSet) change {
	e := js.owner.expected
	if js.state != JobSetWaiting || e == nil || e.about == 0 && e.by == 0 {
		return change{}
	}
	return change{cmp.Or(e.about, e.by), ChangeStart, js.key}
}

// compareWaiting orders pending quota Workloads: those come first that wait longest.
func compareWaiting(a, b *workload) int {
	return cmp.Or(a.since.Compare(b.since), compareWorkloads(a, b))
}

// enlistForOverview adds a quota Workload to the lists and sums of all ClusterQueues.
func (m *Model) enlistForOverview(w *workload) {
	if w.state == Pending {
		m.waiting.Insert(w)
	}
	if w.next.at != 0 {
		m.changes.Insert(w.next)
	}
	m.chargeNamespace(w, 1)
}

// unlistForOverview is the opposite of enlistForOverview.
func (m *Model) unlistForOverview(w *workload) {
	if w.state == Pending {
		m.waiting.Remove(w)
	}
	m.changes.Remove(w.next)
	m.chargeNamespace(w, -1)
}
