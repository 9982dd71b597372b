package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// kueueStartup is how long after its start Kueue's manager may not know all ClusterQueues of a Cohort yet: it admits as soon as it knows one with a
// quota Workload that waits, and adds the others, with what they hold, one after the other.
const kueueStartup = 10 * time.Second

// A suspect is a reservation that exceeded the limits of the world at that time.
type suspect struct {
	newcomer, queue string
	key             quota.FlavorResource
	usage           map[string]int64 // of each ClusterQueue
	at              moment
	seen            time.Time
	// isOfKueue is true if Kueue's manager has reserved the quota.
	isOfKueue bool
	// held describes all quota Workloads that hold the resource.
	held []string
}

// KueueStarts records that Kueue's manager starts now. What it reserves soon after that is within limits if the ClusterQueues that use more than their
// own quota are left out: it may not have known them yet.
func (a *Auditor) KueueStarts() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kueueStarts = append(a.kueueStarts, time.Now())
}

// knowsAllQueues reports whether Kueue's manager knew all ClusterQueues when it made a reservation.
func (a *Auditor) knowsAllQueues(s *suspect) bool {
	return !s.isOfKueue || !slices.ContainsFunc(a.kueueStarts, func(start time.Time) bool {
		since := s.seen.Sub(start)
		return since >= 0 && since < kueueStartup
	})
}

// withoutBorrowers returns a world with those ClusterQueues only that use no more than their own quota, and the one that gets more.
func (w *world) withoutBorrowers(s *suspect) *world {
	rest := &world{Quotas: ledger.Quotas{ClusterQueues: maps.Clone(w.ClusterQueues), Cohorts: w.Cohorts}}
	maps.DeleteFunc(rest.ClusterQueues, func(name string, q *kueue.ClusterQueue) bool {
		own := ledger.QuotaOf(q.Spec.ResourceGroups, s.key)
		return name != s.queue && s.usage[name] > 0 && (own == nil || s.usage[name] > ledger.Milli(own.NominalQuota))
	})
	return rest
}

// describe returns who holds a resource, for a report.
func (a *Auditor) describe(key quota.FlavorResource) []string {
	var held []string
	for _, h := range a.holders {
		if amount := h.usage[key]; amount != 0 {
			held = append(held, fmt.Sprintf("%s holds %d in %s since %d, last seen at %s with %s", h.name, amount, h.queue,
				h.held[len(h.held)-1].from, h.last.ResourceVersion, describeConditions(h.last)))
		}
	}
	slices.Sort(held)
	return held
}

// describeConditions returns what a quota Workload has gone through, and when.
func describeConditions(w *kueue.Workload) string {
	var all []string
	for _, name := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted, kueue.WorkloadFinished} {
		if c := apimeta.FindStatusCondition(w.Status.Conditions, name); c != nil {
			all = append(all, fmt.Sprintf("%s=%s %s", name, c.Status, c.LastTransitionTime.Format(time.TimeOnly)))
		}
	}
	for _, r := range w.Status.ReclaimablePods {
		all = append(all, fmt.Sprintf("reclaimable %s=%d", r.Name, r.Count))
	}
	return strings.Join(all, ", ")
}

// isAdmittedByKueue reports whether Kueue's manager has written the admission: it applies it, and Tranche's patches it.
func isAdmittedByKueue(w *kueue.Workload) bool {
	return slices.ContainsFunc(w.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == apis.AdmissionFieldManager && f.Operation == metav1.ManagedFieldsOperationApply && f.FieldsV1 != nil &&
			strings.Contains(f.FieldsV1.GetRawString(), `"f:admission":`)
	})
}
