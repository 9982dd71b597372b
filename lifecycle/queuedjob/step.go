package queuedjob

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A Step contains the writes of one reconcile: see Write for their order.
type Step struct {
	quotastep.Step
	// Job is what happens to the Job, or nil.
	Job *JobWrite
	// Ungate has pods of a Job that runs and still has Kueue's gate for elastic Jobs in its pod template.
	Ungate []*corev1.Pod
	// EndPods has pods of a Job that is being deleted, which the Job controller does not end.
	EndPods []*corev1.Pod
	// DeleteExpired is a quota Workload that has been deactivated for so long that its Job is deleted, or nil.
	DeleteExpired *kueue.Workload
	// Refusal, Complaint and PriorityKept are for the user of the Job: why it cannot be queued, why it cannot be released, and that it names a
	// priority class which does not exist.
	Refusal, Complaint, PriorityKept string
	// AwaitsPods is true if the Job is admitted, and held until the pods of its previous run have terminated.
	AwaitsPods bool

	// readsPods is true if the Step depends on the pods of the Job.
	readsPods bool
}

// A JobWriteKind is the kind of a JobWrite: a verb.
type JobWriteKind string

// What happens to a Job.
const (
	// Adopt makes a Job that was there before the admission policies a queued Job, or one that runs a Job that does not replace pods early.
	Adopt JobWriteKind = "adopt"
	// Hold suspends a running Job that may no longer run.
	Hold JobWriteKind = "hold"
	// Conclude lets a held Job end whose outcome is decided, but cannot be written while it is held.
	Conclude JobWriteKind = "conclude"
	// ClearSuspended removes the condition Suspended of a held Job, and the annotation that demands this, in one write: the Job controller reports the
	// condition again when it has read that the Job is suspended.
	ClearSuspended JobWriteKind = "clear-suspended"
	// ClearStart removes the start time of a held Job without pods. Until then the API server accepts no change of its pod template.
	ClearStart JobWriteKind = "clear-start"
	// Restore removes the fields that an admission has added to a held Job without pods.
	Restore JobWriteKind = "restore"
	// Release lets a Job run.
	Release JobWriteKind = "release"
	// Resize changes the size of an elastic Job that runs.
	Resize JobWriteKind = "resize"
)

// A JobWrite is a write to the Job.
type JobWrite struct {
	Kind          JobWriteKind
	Before, After *batchv1.Job
	// Why is the reason for the user, for Hold, and Workload the quota Workload that is admitted, for Release.
	Why      string
	Workload *kueue.Workload
}

// IsLocked reports whether the Job must have the version that was read: its user may have resumed or resized it, and it may have been released with fewer
// pods. The others only set spec.suspend.
func (w *JobWrite) IsLocked() bool { return w.Kind != Hold && w.Kind != Conclude }

// IsOfStatus reports whether the status of the Job is written.
func (w *JobWrite) IsOfStatus() bool { return w.Kind == ClearSuspended || w.Kind == ClearStart }

// Complain reports to the user of the Job why it is not written.
func (w *Step) Complain(format string, err error) {
	w.Complaint, w.RequeueAfter = fmt.Sprintf(format, err), workloadstatus.RecheckAfter
}

func (w *Step) hold(job *batchv1.Job, why string) {
	w.Job = &JobWrite{Kind: Hold, Before: job, After: withSuspend(job, true), Why: why}
}

func (w *Step) clearStart(job *batchv1.Job) {
	after := job.DeepCopy()
	after.Status.StartTime = nil
	w.Job = &JobWrite{Kind: ClearStart, Before: job, After: after}
}

func (w *Step) clearSuspended(job *batchv1.Job) {
	after := job.DeepCopy()
	delete(after.Annotations, apis.UnnoticedAnnotation)
	after.Status.Conditions = slices.DeleteFunc(after.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended })
	w.Job = &JobWrite{Kind: ClearSuspended, Before: job, After: after}
}

func withSuspend(job *batchv1.Job, suspend bool) *batchv1.Job {
	after := job.DeepCopy()
	after.Spec.Suspend = &suspend
	return after
}

// NeedsLive reports whether the Step lets a Job run or releases quota, which must not be decided on cached objects: the cache may not show yet
// that the Job was released, and does not have its pods.
func (w *Step) NeedsLive() bool {
	needsLive := w.Job != nil && (w.Job.Kind == Resize || w.Job.Kind == Hold || w.Job.Kind == ClearStart)
	return w.readsPods || needsLive || w.Has(quotastep.Release, quotastep.Reopen, quotastep.Delete) || slices.ContainsFunc(w.Writes, func(write quotastep.Write) bool {
		endsQuota := write.Kind == quotastep.Progress && write.Finished != nil && write.Workload.Status.Admission != nil
		return endsQuota || write.Kind == quotastep.RemoveFinalizer && !quotaworkload.IsTrue(write.Workload, kueue.WorkloadFinished)
	})
}

// A Writer writes the parts of a Step.
type Writer struct {
	Job, Ungate, EndPods, DeleteExpired, Report func(*Step) error
	// Quota carries out writes to quota Workloads in their order. It is called several times.
	Quota func([]quotastep.Write) error
}

// Write writes a Step, and stops at the first error: later writes may rely on earlier ones.
func (w *Step) Write(to *Writer) error {
	quota := func(kinds ...quotastep.Kind) func(*Step) error {
		return func(w *Step) error { return w.WriteOf(to.Quota, kinds...) }
	}
	for _, part := range []struct {
		isNeeded bool
		write    func(*Step) error
	}{
		{true, quota(quotastep.Create, quotastep.Admit, quotastep.Change)},
		{w.Job != nil, to.Job},
		{len(w.Ungate) > 0, to.Ungate},
		{len(w.EndPods) > 0, to.EndPods},
		{true, quota(quotastep.Progress, quotastep.Reclaim, quotastep.Release, quotastep.Reopen, quotastep.RemoveFinalizer, quotastep.Delete)},
		{w.DeleteExpired != nil, to.DeleteExpired},
	} {
		if !part.isNeeded {
			continue
		}
		if err := part.write(w); err != nil {
			return err
		}
	}
	// A write above can have found what to report.
	if w.AwaitsPods || w.Refusal+w.Complaint+w.PriorityKept != "" {
		return to.Report(w)
	}
	return nil
}
