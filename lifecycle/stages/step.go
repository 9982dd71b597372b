// Package stages decides what comes next for a JobSet and its stages: which quota Workloads to create, open and finish, which Jobs to
// release, hold and recreate, and when to release quota. It does no I/O: Next computes a Step from a Snapshot. The manager writes the Step
// to the API server, and the simulator to its objects.
//
// A Step is written in this order. A crash may cut it after any write, because the next Step is computed from the objects alone:
//
//	create Workloads -> evict whole JobSets -> open and gate stages -> name the scheduler -> resume the JobSet ->
//	create and fix gang objects -> release Jobs -> resize Jobs -> hold Jobs -> end abandoned pods -> record times -> finish stages ->
//	release quota -> clean up -> create growths
//
// A stage is opened before the stage that it waits for is finished, so that the freed quota can be passed on. From "record times" on, a Step records what has
// happened, which can wait if Jobs are about to be released: see Writer.Yield.
package stages

import (
	"errors"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A Step contains the writes of one reconcile. The order of the fields is the order of the writes.
type Step struct {
	// CreateWorkloads has the quota Workloads that are missing.
	CreateWorkloads []*kueue.Workload
	// AdmitWorkload admits the quota Workload of a JobSet that ran when Tranche was installed, or is nil.
	AdmitWorkload *AdmitWorkload
	// Stop suspends such a JobSet, or is nil. NoteStarted is true if it must record that a suspension is requested by its user from now on.
	Stop        *StopJobSet
	NoteStarted bool
	// EvictWorkloads has quota Workloads that must release their quota because another stage of their JobSet must.
	EvictWorkloads []EvictWorkload
	// ChangeWorkloads has quota Workloads with wrong gates, attempt, queue or priority.
	ChangeWorkloads []ChangeWorkload
	// MarkJobs has the Jobs of a JobSet that ran when Tranche was installed which the admission policies do not guard yet.
	MarkJobs []*batchv1.Job
	// MarkTemplates is true if the pod templates of a suspended JobSet must be marked that was there when Tranche was installed.
	MarkTemplates bool
	// SetScheduler is true if the manager must write into the pod templates of the JobSet which scheduler places their gangs, before it starts the
	// JobSet.
	SetScheduler bool
	// Pause names the stage for which the JobSet is suspended, until the JobSet controller has created the Jobs that start together.
	Pause string
	// Start resumes the JobSet for the first time, or after a pause.
	Start bool
	// DeleteGangs has gang objects that are finished, or that the JobSet no longer asks for.
	DeleteGangs []*unstructured.Unstructured
	// EnsureGangs has gang objects that must exist, with the right content, before their Jobs run.
	EnsureGangs []EnsureGangs
	// RecordFinished has the succeeded stages of a JobSet without a queue, if the JobSet does not record them yet.
	RecordFinished []string
	// ReleaseJobs has the Jobs that may run.
	ReleaseJobs []ReleaseJobs
	// ResizeJobs has the running Jobs whose number of pods changes.
	ResizeJobs []ResizeJobs
	// HoldJobs has Jobs that may no longer run, because their stage is evicted or a user has deleted their quota Workload.
	HoldJobs []*batchv1.Job
	// Stopped is how many of them belong to a JobSet that is being deleted.
	Stopped int
	// EndPods has pods that no Job ends.
	EndPods []jobsetstate.AbandonedPod
	// SkipJobs has held Jobs that replace deleted Jobs which had succeeded. They complete without running.
	SkipJobs []*batchv1.Job
	// ConcludeJobs has held Jobs whose outcome is decided, but cannot be written while they are held.
	ConcludeJobs []*batchv1.Job
	// RecreateJobs has Jobs of evicted stages, and of restarting gangs, that would not start from their beginning. The JobSet controller
	// recreates them.
	RecreateJobs []*batchv1.Job
	// RestoreJobs has held Jobs of evicted stages that still contain fields which an admission added.
	RestoreJobs []*batchv1.Job
	// EndedHolds has the quota holds that have ended and go into the timeline of the JobSet.
	EndedHolds []jobsetstatus.Hold
	// Progress has the conditions PodsReady and Finished that differ.
	Progress []ReportProgress
	// JobSetSucceeds is true if the JobSet has succeeded, or satisfies its success policy, so that the JobSet controller reports the end of all its stages.
	JobSetSucceeds bool
	// Reclaim has changes of reclaimable pods.
	Reclaim []ReclaimPods
	// ReleaseQuota has the quota Workloads of a suspended or evicted JobSet whose pods have terminated.
	ReleaseQuota []*kueue.Workload
	// Reopen has quota Workloads whose stage has to run again, and that do not hold the quota for it: they have finished, or some of their
	// pods were reclaimed.
	Reopen []*kueue.Workload
	// RemoveFinalizers has quota Workloads whose finalizer is no longer needed: none of their Jobs or pods runs.
	RemoveFinalizers []*kueue.Workload
	// DeleteWorkloads has quota Workloads that are no longer needed.
	DeleteWorkloads []*kueue.Workload
	// DeleteExpired is a quota Workload that has been deactivated for so long that its JobSet is deleted, or nil.
	DeleteExpired *kueue.Workload
	// CreateGrowths has the quota Workloads for the growths of stages that hold quota.
	CreateGrowths []*kueue.Workload
	// AwaitsEngine is true if the engine may not have observed yet an admission that the cache shows.
	AwaitsEngine bool
	// AwaitsJobs is true if the JobSet controller still has to create Jobs of a stage that may run.
	AwaitsJobs bool
	// RequeueAfter is when to reconcile again because of gangs that wait for nodes, or of what expires, or zero. No watch may report these.
	RequeueAfter time.Duration
	// Conditions of the JobSet, complete.
	Conditions []metav1.Condition
	// Wait is reported to the user of the JobSet, or nil.
	Wait *jobsetstatus.Wait
	// GangBlocked says why a gang is not placed, and PriorityKept that the JobSet names a priority class which does not exist. Both are
	// reported to the user of the JobSet once, and are empty otherwise.
	GangBlocked, PriorityKept string
	// Complaints are reported to the user of the JobSet.
	Complaints []string
}

// A ChangeWorkload is a quota Workload with wrong gates, attempt, queue, priority or size.
type ChangeWorkload struct{ Before, After *kueue.Workload }

// A ReleaseJobs has the Jobs of an admitted stage that may run, as they must be to run.
type ReleaseJobs struct {
	Stage        string
	ClusterQueue string
	Workload     *kueue.Workload
	Jobs         []*batchv1.Job
}

// A ReportProgress is what a quota Workload reports about the pods of its stage.
type ReportProgress struct {
	Stage    string
	Workload *kueue.Workload
	// Ready has no type if the condition PodsReady is removed.
	Ready    metav1.Condition
	Finished *metav1.Condition
	// HasSucceeded is true if the stage finishes because all of its Jobs have succeeded.
	HasSucceeded bool
}

// RequeueWithin requests another reconcile after left, or earlier. It does nothing if left is zero.
func (w *Step) RequeueWithin(left time.Duration) {
	w.RequeueAfter = workloadstatus.Sooner(w.RequeueAfter, left)
}

// EndsQuota reports whether quota Workloads are about to lose their quota for good, although their stages may not have succeeded: the
// JobSet has finished, was deleted or has shrunk, or a user has deleted the quota Workloads.
func (w *Step) EndsQuota() bool {
	// A Job that the cache shows as held may have been released with more pods than the quota that would be left.
	givesUpPods := slices.ContainsFunc(w.Reclaim, func(r ReclaimPods) bool { return r.HasShrunk })
	return givesUpPods || slices.ContainsFunc(w.Progress, func(p ReportProgress) bool {
		return p.Finished != nil && !p.HasSucceeded && p.Workload.Status.Admission != nil
	}) || slices.ContainsFunc(slices.Concat(w.RemoveFinalizers, w.DeleteWorkloads), func(workload *kueue.Workload) bool {
		return workload.Status.Admission != nil && !quotaworkload.IsTrue(workload, kueue.WorkloadFinished)
	})
}

// RequeueForUnwatchedPods requests another reconcile if no watch reports the end of pods that use quota.
func (w *Step) RequeueForUnwatchedPods(s *jobsetstate.Snapshot) {
	unwatched := s.Owned.HasUnwatchedPods
	for _, b := range s.Orphans {
		unwatched = unwatched || b.HasUnwatchedPods
	}
	if unwatched {
		w.RequeueWithin(unwatchedEvery)
	}
}

// A Writer writes the parts of a Step. A function may be nil if that part is always empty.
type Writer struct {
	CreateWorkloads, AdmitWorkload, Stop, NoteStarted, EvictWorkloads, ChangeWorkloads, MarkJobs, MarkTemplates,
	SetScheduler, Pause, Start,
	DeleteGangs, EnsureGangs, RecordFinished,
	ReleaseJobs, ResizeJobs, HoldJobs, SkipJobs,
	EndPods, ConcludeJobs, RecreateJobs, RestoreJobs,
	RecordTimes, Progress, Reclaim, ReleaseQuota,
	Reopen, RemoveFinalizers, DeleteWorkloads,
	Report, CreateGrowths, DeleteExpired func(*Step) error
	// Yield is called before RecordTimes, unless it is nil. It returns ErrYield to leave that part and those after it to the next Step.
	Yield func(*Step) error
}

// ErrYield ends a Step before all is written.
var ErrYield = errors.New("the rest is left to the next step")

// A part of a Step and how it is written.
type part struct {
	isEmpty bool
	write   func(*Step) error
}

// Write writes a Step in the order that the package comment gives. It stops at the first error, unless the error is Independent: such
// errors are returned when everything else is written. It also stops, without an error, if the Writer yields.
func (w *Step) Write(to *Writer) error {
	var independent error
	for _, part := range w.parts(to) {
		if part.isEmpty {
			continue
		}
		err := part.write(w)
		if errors.Is(err, ErrYield) {
			break
		}
		if tolerated, ok := errors.AsType[*independentError](err); ok {
			independent, err = errors.Join(independent, tolerated.error), nil
		}
		if err != nil {
			return errors.Join(err, independent)
		}
	}
	return independent
}

func (w *Step) parts(to *Writer) []part {
	return []part{
		{len(w.CreateWorkloads) == 0, to.CreateWorkloads},
		{w.AdmitWorkload == nil, to.AdmitWorkload},
		{w.Stop == nil, to.Stop},
		{!w.NoteStarted, to.NoteStarted},
		{len(w.EvictWorkloads) == 0, to.EvictWorkloads},
		{len(w.ChangeWorkloads) == 0, to.ChangeWorkloads},
		{len(w.MarkJobs) == 0, to.MarkJobs},
		{!w.MarkTemplates, to.MarkTemplates},
		{!w.SetScheduler, to.SetScheduler},
		{w.Pause == "", to.Pause},
		{!w.Start, to.Start},
		{len(w.DeleteGangs) == 0, to.DeleteGangs},
		{len(w.EnsureGangs) == 0, to.EnsureGangs},
		{w.RecordFinished == nil, to.RecordFinished},
		{len(w.ReleaseJobs) == 0, to.ReleaseJobs},
		{len(w.ResizeJobs) == 0, to.ResizeJobs},
		{len(w.HoldJobs) == 0, to.HoldJobs},
		{len(w.SkipJobs) == 0, to.SkipJobs},
		{len(w.EndPods) == 0, to.EndPods},
		{len(w.ConcludeJobs) == 0, to.ConcludeJobs},
		{len(w.RecreateJobs) == 0, to.RecreateJobs},
		{len(w.RestoreJobs) == 0, to.RestoreJobs},
		{to.Yield == nil, to.Yield},
		{len(w.EndedHolds) == 0, to.RecordTimes},
		{len(w.Progress) == 0, to.Progress},
		{len(w.Reclaim) == 0, to.Reclaim},
		{len(w.ReleaseQuota) == 0, to.ReleaseQuota},
		{len(w.Reopen) == 0, to.Reopen},
		{len(w.RemoveFinalizers) == 0, to.RemoveFinalizers},
		{len(w.DeleteWorkloads) == 0, to.DeleteWorkloads},
		{false, to.Report},
		{len(w.CreateGrowths) == 0, to.CreateGrowths},
		{w.DeleteExpired == nil, to.DeleteExpired},
	}
}

// An independentError is the error of a write on which no other write relies.
type independentError struct{ error }

func (e *independentError) Unwrap() error { return e.error }

// Independent marks the error of a write on which no other write relies. It returns nil for nil.
func Independent(err error) error {
	if err == nil {
		return nil
	}
	return &independentError{err}
}
