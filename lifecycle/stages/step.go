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

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// A Step contains the writes of one reconcile. The order of the fields is the order of the writes to other objects than quota Workloads.
type Step struct {
	quotastep.Step
	// Stop suspends a JobSet that ran when Tranche was installed, or is nil. NoteStarted is true if it must record that a suspension is requested by its user from now on.
	Stop        *StopJobSet
	NoteStarted bool
	// MarkJobs has the Jobs that the admission policies do not guard yet.
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
	// HoldJobs has Jobs that may no longer run, because their stage is evicted or unpaid, or a user has deleted their quota Workload.
	HoldJobs []*batchv1.Job
	// Unpaid has the stages whose Jobs run although their quota Workloads hold no quota. The cache may not show yet that these were admitted.
	Unpaid []string
	// Stopped counts those of HoldJobs that are held because the JobSet is being deleted.
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
	// JobSetSucceeds is true if the JobSet has succeeded, or satisfies its success policy, so that the JobSet controller reports the end of all its stages.
	JobSetSucceeds bool
	// DeleteExpired is a quota Workload that has been deactivated for so long that its JobSet is deleted, or nil.
	DeleteExpired *kueue.Workload
	// AwaitsJobs is true if the JobSet controller still has to create Jobs of a stage that may run.
	AwaitsJobs bool
	// Conditions of the JobSet, complete.
	Conditions []metav1.Condition
	// Wait is reported to the user of the JobSet, or nil.
	Wait *jobsetstatus.Wait
	// GangBlocked says why a gang is not placed, and PriorityKept that the JobSet names a priority class which does not exist. Both are
	// reported to the user of the JobSet once, and are empty otherwise.
	GangBlocked, PriorityKept string
	// Pruned says which fields of the JobSet were lost and are recorded. It is reported to the user once.
	Pruned string
	// Complaints are reported to the user of the JobSet.
	Complaints []string

	// givesUpPods is true if quota is reclaimed for which the JobSet asks no longer.
	givesUpPods bool
}

// A ReleaseJobs has the Jobs of an admitted stage that may run, as they must be to run.
type ReleaseJobs struct {
	Stage        string
	ClusterQueue string
	Workload     *kueue.Workload
	Jobs         []*batchv1.Job
}

// EndsQuota reports whether quota Workloads are about to lose their quota for good, although their stages may not have succeeded: the
// JobSet has finished, was deleted or has shrunk, or a user has deleted the quota Workloads.
func (w *Step) EndsQuota() bool {
	// A Job that the cache shows as held may have been released with more pods than the quota that would be left.
	return w.givesUpPods || slices.ContainsFunc(w.Writes, func(write quotastep.Write) bool {
		stops := write.Kind == quotastep.Progress && write.Finished != nil && !write.HasSucceeded
		deletes := write.Kind == quotastep.RemoveFinalizer || write.Kind == quotastep.Delete
		return write.Workload.Status.Admission != nil && (stops || deletes && !quotaworkload.IsTrue(write.Workload, kueue.WorkloadFinished))
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
	Stop, NoteStarted, MarkJobs, MarkTemplates,
	SetScheduler, Pause, Start,
	DeleteGangs, EnsureGangs, RecordFinished,
	ReleaseJobs, ResizeJobs, HoldJobs, SkipJobs,
	EndPods, ConcludeJobs, RecreateJobs, RestoreJobs,
	RecordTimes, Report, DeleteExpired func(*Step) error
	// Quota carries out writes to quota Workloads in their order. It is called several times.
	Quota func([]quotastep.Write) error
	// ReleaseQuota releases the quota of the quota Workloads that the Step names, if that is still decided on live reads.
	ReleaseQuota func(*Step) error
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
	quota := func(kinds ...quotastep.Kind) part {
		return part{!w.Has(kinds...), func(w *Step) error { return w.WriteOf(to.Quota, kinds...) }}
	}
	// The last stage comes first: if the API server rejects one, no stage that is open from the start holds quota without use.
	created := w.Of(quotastep.Create)
	slices.Reverse(created)
	return []part{
		{len(created) == 0, func(*Step) error { return to.Quota(created) }},
		quota(quotastep.Admit),
		{w.Stop == nil, to.Stop},
		{!w.NoteStarted, to.NoteStarted},
		quota(quotastep.Evict, quotastep.Change),
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
		quota(quotastep.Progress, quotastep.Reclaim),
		{!w.Has(quotastep.Release), to.ReleaseQuota},
		quota(quotastep.Reopen, quotastep.RemoveFinalizer, quotastep.Delete),
		{false, to.Report},
		quota(quotastep.Grow),
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
