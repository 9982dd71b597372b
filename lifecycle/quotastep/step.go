// Package quotastep is what the Steps of all owners of quota Workloads have in common, whether these are JobSets, Jobs or gangs of pods: what happens to
// their quota Workloads, and when to reconcile again. Each owner decides which writes its Step has, and what it writes to its own objects in between.
//
// A Write is the only description of a write to a quota Workload: what it changes (Status, Result), and which version it needs (IsLocked). The writer of the
// manager (controllers/internal/apply) carries out Writes through the API, and the simulator on its objects.
//
// A Step may be cut after any write, because the next one is computed from the objects alone. The owner asks for its Writes by their Kinds, in this order:
//
//   - Evict, before any pod is stopped because of it.
//   - Progress, Reclaim, Release, Reopen, RemoveFinalizer, Delete: what releases quota. A deletion comes last, because the objects must show what has happened
//     until all else is written.
//   - Create and Change come before these in a Step of a JobSet or Job: a stage is opened before the stage that it waits for finishes, so that the quota passes
//     on. In a Step of a gang of pods they come after these, because the API server may reject them, and quota must be released nevertheless.
//   - Grow, at the end: new demand waits for all that releases quota.
package quotastep

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A Kind is the kind of a Write.
type Kind int

// The kinds of writes to a quota Workload.
const (
	// Create creates a quota Workload that is missing.
	Create Kind = iota
	// Admit admits it to what its pods use, whatever the quota: they ran when Tranche was installed.
	Admit
	// Evict marks it as evicted.
	Evict
	// Change changes its metadata, spec or bar.
	Change
	// Progress reports the state of its pods in the conditions PodsReady and Finished.
	Progress
	// Reclaim reports its reclaimable pods.
	Reclaim
	// Release releases its quota, because its pods have terminated.
	Release
	// Reopen deletes it while its owner still needs quota, so that another one is created.
	Reopen
	// RemoveFinalizer removes its finalizer, because none of its pods runs.
	RemoveFinalizer
	// Delete deletes it and removes its finalizer, because it is no longer needed.
	Delete
	// Grow creates one for the pods by which its owner has grown.
	Grow
)

// String returns a word for the kind.
func (k Kind) String() string {
	return []string{"create", "admit", "evict", "change", "progress", "reclaim", "release-quota", "reopen", "remove-finalizer", "delete", "grow"}[k]
}

// A Write is what happens to one quota Workload.
type Write struct {
	Kind Kind
	// Workload is the quota Workload as it was read or, for Create and Grow, as it will be.
	Workload *kueue.Workload
	// After is what it changes to, for Change.
	After *kueue.Workload
	// Admission is what it is admitted to, for Admit.
	Admission *kueue.Admission
	// Eviction is why it is evicted, for Evict. Requeue is set if it backs off, and Cause if it is evicted because that quota Workload of its owner was.
	Eviction workloadstatus.Eviction
	Requeue  *kueue.RequeueState
	Cause    *kueue.Workload
	// Ready and Finished are what it reports, for Progress. Ready has no type if the condition PodsReady is removed, and Finished is nil while the quota
	// Workload is needed. HasSucceeded is true if all of its pods have succeeded.
	Ready        metav1.Condition
	Finished     *metav1.Condition
	HasSucceeded bool
	// Reclaimable are the pods whose quota is no longer needed, for Reclaim.
	Reclaimable []kueue.ReclaimablePod
	// ToOtherEngine is true if another engine admits it again, for Release.
	ToOtherEngine bool
}

// A Step is the common part of the Steps of owners of quota Workloads.
type Step struct {
	// Writes are in no order: see Of.
	Writes []Write
	// AwaitsEngine is true if the engine may not have observed yet an admission that the cache shows.
	AwaitsEngine bool
	// RequeueAfter is when to reconcile again without a change, or zero.
	RequeueAfter time.Duration
}

// Of returns the writes of some kinds, in the order of these kinds. Those of one kind keep their order.
func (s *Step) Of(kinds ...Kind) []Write {
	var all []Write
	for _, kind := range kinds {
		for i := range s.Writes {
			if s.Writes[i].Kind == kind {
				all = append(all, s.Writes[i])
			}
		}
	}
	return all
}

// WriteOf calls a function with the writes of some kinds, as Of returns them, unless there are none.
func (s *Step) WriteOf(write func([]Write) error, kinds ...Kind) error {
	if all := s.Of(kinds...); len(all) > 0 {
		return write(all)
	}
	return nil
}

// Workloads returns the quota Workloads of the writes of a kind.
func (s *Step) Workloads(kind Kind) []*kueue.Workload {
	var all []*kueue.Workload
	for _, write := range s.Of(kind) {
		all = append(all, write.Workload)
	}
	return all
}

// Has reports whether there is a write of one of these kinds.
func (s *Step) Has(kinds ...Kind) bool {
	return slices.ContainsFunc(s.Writes, func(w Write) bool { return slices.Contains(kinds, w.Kind) })
}

// Does reports whether there is a write of one of these kinds to a quota Workload.
func (s *Step) Does(workload *kueue.Workload, kinds ...Kind) bool {
	return slices.ContainsFunc(s.Writes, func(w Write) bool { return w.Workload == workload && slices.Contains(kinds, w.Kind) })
}

// Do adds a write that needs no more than its quota Workload, for each of these.
func (s *Step) Do(kind Kind, workloads ...*kueue.Workload) {
	for _, workload := range workloads {
		s.Writes = append(s.Writes, Write{Kind: kind, Workload: workload})
	}
}

// Change adds a change from one state of a quota Workload to another. It does nothing if there is no other.
func (s *Step) Change(before, after *kueue.Workload) {
	if after != nil {
		s.Writes = append(s.Writes, Write{Kind: Change, Workload: before, After: after})
	}
}

// Progress adds a report about the pods of a quota Workload, instead of one that the Step has for it already. It returns the report until the next write is added.
func (s *Step) Progress(workload *kueue.Workload, ready metav1.Condition, finished *metav1.Condition) *Write {
	s.Writes = slices.DeleteFunc(s.Writes, func(w Write) bool { return w.Kind == Progress && w.Workload == workload })
	hasSucceeded := finished != nil && finished.Reason == kueue.WorkloadFinishedReasonSucceeded
	s.Writes = append(s.Writes, Write{Kind: Progress, Workload: workload, Ready: ready, Finished: finished, HasSucceeded: hasSucceeded})
	return &s.Writes[len(s.Writes)-1]
}

// ReportReadiness reports whether the pods of a quota Workload are ready. If they have never been ready, the condition is not needed.
func (s *Step) ReportReadiness(workload *kueue.Workload, isReady bool) {
	ready := Readiness(workload, isReady)
	if ReportsReadiness(workload) || ready.Status == metav1.ConditionTrue {
		s.reportDiffering(workload, ready)
	}
}

// ForgetReadiness reports, for a quota Workload whose pods are held again, that they have not started.
func (s *Step) ForgetReadiness(workload *kueue.Workload) {
	if ReportsReadiness(workload) {
		s.reportDiffering(workload, workloadstatus.PodsNotStarted())
	}
}

func (s *Step) reportDiffering(workload *kueue.Workload, ready metav1.Condition) {
	old := apimeta.FindStatusCondition(workload.Status.Conditions, ready.Type)
	if old == nil || old.Status != ready.Status || old.Reason != ready.Reason || old.Message != ready.Message {
		s.Progress(workload, ready, nil)
	}
}

// ReportsReadiness reports whether a quota Workload has the condition PodsReady.
func ReportsReadiness(workload *kueue.Workload) bool {
	return apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadPodsReady) != nil
}

// Readiness returns the new condition PodsReady of a quota Workload.
func Readiness(workload *kueue.Workload, isReady bool) metav1.Condition {
	return workloadstatus.PodsReady(apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadPodsReady), isReady)
}

// AdmitAsItIs takes the next step to admit a quota Workload to what its pods use, also beyond quota: it is marked first.
func (s *Step) AdmitAsItIs(target *adoption.Target, workload *kueue.Workload) {
	if !adoption.IsMarked(workload) {
		s.Change(workload, adoption.Marked(workload))
		return
	}
	s.Writes = append(s.Writes, Write{Kind: Admit, Workload: workload, Admission: target.Admission(workload)})
}

// Reclaim adds a report of reclaimable pods.
func (s *Step) Reclaim(workload *kueue.Workload, pods []kueue.ReclaimablePod) {
	s.Writes = append(s.Writes, Write{Kind: Reclaim, Workload: workload, Reclaimable: pods})
}

// RequeueWithin requests another reconcile after left, or earlier. It does nothing if left is zero.
func (s *Step) RequeueWithin(left time.Duration) {
	s.RequeueAfter = workloadstatus.Sooner(s.RequeueAfter, left)
}

// IsExpired reports whether an object was kept for long enough. Otherwise it requests another reconcile at the time of expiry.
func (s *Step) IsExpired(since, now time.Time, kept time.Duration) bool {
	left := since.Add(kept).Sub(now)
	if left > 0 {
		s.RequeueWithin(left)
	}
	return left <= 0
}

// IsDeactivationExpired reports whether the manager has deactivated a quota Workload so long ago that its owner is deleted, unless kept is nil. Until then a user
// may activate it again.
func (s *Step) IsDeactivationExpired(workload *kueue.Workload, now time.Time, kept *metav1.Duration) bool {
	if kept == nil || workload == nil {
		return false
	}
	at := workloadstatus.DeactivatedAt(workload)
	return at != nil && s.IsExpired(*at, now, kept.Duration)
}

// Status returns the part of the status that a write applies: that of the admission for Admit, Evict and Release, and of nothing if it writes no status.
func (w *Write) Status(now time.Time) kueue.WorkloadStatus {
	switch w.Kind {
	case Admit:
		return workloadstatus.Admitted(w.Workload, w.Admission, now)
	case Evict:
		status := workloadstatus.Evicted(w.Workload, w.Eviction, now)
		if w.Requeue != nil {
			status.RequeueState = w.Requeue
		}
		return status
	case Progress:
		return workloadstatus.Progress(w.Workload, w.Ready, w.Finished, now)
	case Reclaim:
		return kueue.WorkloadStatus{ReclaimablePods: w.Reclaimable}
	case Release:
		switch {
		case w.ToOtherEngine:
			return workloadstatus.Cleared(w.Workload, now)
		case quotaworkload.IsTrue(w.Workload, kueue.WorkloadEvicted):
			return workloadstatus.QuotaReleased(w.Workload, now)
		}
		return workloadstatus.Suspended(w.Workload, now)
	case Create, Change, Reopen, RemoveFinalizer, Delete, Grow:
	}
	return kueue.WorkloadStatus{}
}
