package queuedjob

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A Step contains the writes of one reconcile. The order of the fields is the order of the writes.
type Step struct {
	// Create is the quota Workload or the growth that is missing, or nil.
	Create *kueue.Workload
	// Admit is the quota Workload of a Job that ran before the admission policies, and what it is admitted to, or nil.
	Admit *Admit
	// Adopt is such a Job, or one that was suspended, with what makes it a queued Job, or nil.
	Adopt *batchv1.Job
	// Change updates a quota Workload with wrong gates, queue, priority or pods, or is nil.
	Change *Change
	// Hold is a running Job that may no longer run, or nil. Why is the reason for its user.
	Hold *batchv1.Job
	Why  string
	// Conclude is a held Job whose outcome is decided, but cannot be written while it is held, or nil.
	Conclude *batchv1.Job
	// ClearSuspended is a held Job whose condition Suspended must be removed, or nil: the Job controller reports it again when it has read that
	// the Job is suspended.
	ClearSuspended *batchv1.Job
	// ClearStart is a held Job without pods whose start time must be removed before its pod template can be changed, or nil.
	ClearStart *batchv1.Job
	// Restore is a held Job without pods that still contains fields which an admission added, or nil.
	Restore *batchv1.Job
	// Release is the Job as it must be to run, or nil.
	Release *Release
	// Resize is an elastic Job that runs with another size, or nil.
	Resize *Resize
	// Ungate has pods of a Job that runs and still has Kueue's gate for elastic Jobs in its pod template.
	Ungate []*corev1.Pod
	// EndPods has pods of a Job that is being deleted, which the Job controller does not end.
	EndPods []*corev1.Pod
	// Progress has the conditions PodsReady and Finished that differ, or is nil.
	Progress *Progress
	// Reclaim has the reclaimable pods, if they have changed, or is nil.
	Reclaim *Reclaim
	// ReleaseQuota is the quota Workload of a suspended or evicted Job whose pods have terminated, or nil.
	ReleaseQuota *kueue.Workload
	// Reopen is a quota Workload that is not for what the Job needs, or nil. It is deleted and created again.
	Reopen *kueue.Workload
	// RemoveFinalizers has quota Workloads whose finalizer is no longer needed.
	RemoveFinalizers []*kueue.Workload
	// DeleteWorkloads has quota Workloads that are no longer needed.
	DeleteWorkloads []*kueue.Workload
	// DeleteExpired is a quota Workload that has been deactivated for so long that its Job is deleted, or nil.
	DeleteExpired *kueue.Workload
	// Refusal, Complaint and PriorityKept are for the user of the Job: why it cannot be queued, why it cannot be released, and that it names a
	// priority class which does not exist.
	Refusal, Complaint, PriorityKept string
	// AwaitsEngine is true if the engine may not have observed yet an admission that the cache shows.
	AwaitsEngine bool
	// RequeueAfter is when to reconcile again without a change, or zero.
	RequeueAfter time.Duration

	// readsPods is true if the Step depends on the pods of the Job.
	readsPods bool
}

// An Admit admits a quota Workload, whatever the quota.
type Admit struct {
	Workload  *kueue.Workload
	Admission *kueue.Admission
}

// A Change updates the metadata or the spec of a quota Workload.
type Change struct{ Before, After *kueue.Workload }

// A Release lets a Job run.
type Release struct {
	Workload      *kueue.Workload
	Before, After *batchv1.Job
}

// A Resize changes the size of a Job that runs.
type Resize struct{ Before, After *batchv1.Job }

// A Progress is what a quota Workload reports about the pods of its Job.
type Progress struct {
	Workload *kueue.Workload
	// Ready has no type if the condition PodsReady is not written.
	Ready metav1.Condition
	// Finished is nil while the quota Workload is needed.
	Finished *metav1.Condition
}

// Reclaim has the pods of a quota Workload whose quota is no longer needed.
type Reclaim struct {
	Workload *kueue.Workload
	Pods     []kueue.ReclaimablePod
}

// NeedsLive reports whether the Step lets a Job run or releases quota, which must not be decided on cached objects: the cache may not show yet
// that the Job was released, and does not have its pods.
func (w *Step) NeedsLive() bool {
	endsQuota := w.Progress != nil && w.Progress.Finished != nil && w.Progress.Workload.Status.Admission != nil
	return endsQuota || w.readsPods || w.Resize != nil || w.Hold != nil || w.ClearStart != nil || w.ReleaseQuota != nil || w.Reopen != nil ||
		slices.ContainsFunc(w.RemoveFinalizers, func(workload *kueue.Workload) bool { return !quotaworkload.IsTrue(workload, kueue.WorkloadFinished) }) ||
		len(w.DeleteWorkloads) > 0
}

// requeueWithin requests another reconcile after left, or earlier. It does nothing if left is zero.
func (w *Step) requeueWithin(left time.Duration) {
	w.RequeueAfter = workloadstatus.Sooner(w.RequeueAfter, left)
}

// A Writer writes the parts of a Step. The order of the functions is the order of the writes.
type Writer struct {
	Create, Admit, Adopt, Change, Hold, Conclude, ClearSuspended, ClearStart, Restore, Release, Resize, Ungate, EndPods, Progress, Reclaim, ReleaseQuota, Reopen,
	RemoveFinalizers, DeleteWorkloads, DeleteExpired, Report func(*Step) error
}

// Write writes a Step, and stops at the first error: later writes may rely on earlier ones.
func (w *Step) Write(to *Writer) error {
	for _, part := range []struct {
		isNeeded bool
		write    func(*Step) error
	}{
		{w.Create != nil, to.Create},
		{w.Admit != nil, to.Admit},
		{w.Adopt != nil, to.Adopt},
		{w.Change != nil, to.Change},
		{w.Hold != nil, to.Hold},
		{w.Conclude != nil, to.Conclude},
		{w.ClearSuspended != nil, to.ClearSuspended},
		{w.ClearStart != nil, to.ClearStart},
		{w.Restore != nil, to.Restore},
		{w.Release != nil, to.Release},
		{w.Resize != nil, to.Resize},
		{len(w.Ungate) > 0, to.Ungate},
		{len(w.EndPods) > 0, to.EndPods},
		{w.Progress != nil, to.Progress},
		{w.Reclaim != nil, to.Reclaim},
		{w.ReleaseQuota != nil, to.ReleaseQuota},
		{w.Reopen != nil, to.Reopen},
		{len(w.RemoveFinalizers) > 0, to.RemoveFinalizers},
		{len(w.DeleteWorkloads) > 0, to.DeleteWorkloads},
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
	if w.Refusal+w.Complaint+w.PriorityKept != "" {
		return to.Report(w)
	}
	return nil
}
