package podgang

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// Snapshot is the snapshot: everything that the next step of a gang depends on, besides the time. It must not be changed.
type Snapshot struct {
	Gang     *podgroup.Gang
	Problems podgroup.Problems
	// Workloads are all quota Workloads of the gang, and of earlier gangs of its name.
	Workloads []*kueue.Workload
	// Jobs are those whose pod templates name the gang, also those of earlier runs. In a live snapshot they are not newer than the pods.
	Jobs []*batchv1.Job
	// Peers are the peers: the gangs that start together with it.
	Peers    []Peer
	Flavors  map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor
	Priority Priority
	// Charged has the quota Workloads that the engine charges right now, whatever the cache shows.
	Charged map[types.UID]bool
	// Retention is how long finished quota Workloads are kept, and pods whose quota Workload the manager has deactivated.
	Retention configapi.WorkloadRetentionPolicy
	// Backoff returns how long a gang backs off that has released gathered quota, for the first time, the second time and so on.
	Backoff func(count int32) time.Duration
}

// A Step has the next writes, in the order of the fields: writes that take away come before those that may be rejected. It may be interrupted
// after any write: the rest is computed again.
type Step struct {
	// TimeOut has pods that get the annotation that their gang did not start in time. TimeOutObject is true if the PodGroup gets it, too.
	TimeOut       []*corev1.Pod
	TimeOutObject bool
	// ClearObject is true if that annotation is removed from the PodGroup, since the gang has started.
	ClearObject bool
	// Evict has quota Workloads to evict.
	Evict []Evict
	// Delete has pods of evicted quota Workloads, and pods whose retention has expired.
	Delete []Delete
	// Progress has changed conditions of quota Workloads.
	Progress []Progress
	// Reclaim has changes of reclaimable pods.
	Reclaim []Reclaim
	// ReleaseQuota has evicted quota Workloads that release their quota, since their pods have terminated.
	ReleaseQuota []*kueue.Workload
	// RemoveFinalizer has quota Workloads whose finalizer is removed, so that they can be deleted.
	RemoveFinalizer []*kueue.Workload
	// DeleteWorkloads has quota Workloads to delete, since they are not needed.
	DeleteWorkloads []*kueue.Workload
	// Create has missing quota Workloads.
	Create []*kueue.Workload
	// Change has quota Workloads whose spec or metadata has to be updated.
	Change []Change
	// Ungate has pods to ungate.
	Ungate []Ungate
	// Message is the message for the user. It stays the same while nothing changes.
	Message Message
	// RequeueAfter is when to reconcile again without a change, or zero.
	RequeueAfter time.Duration
}

// A Writer writes the parts of a Step. The order of the functions is the order of the writes.
type Writer struct {
	NoteTimeout, Evict, DeletePods, Progress, Reclaim, ReleaseQuota, RemoveFinalizers, DeleteWorkloads,
	Create, Change, Ungate, Report, KeepStatus func(*Step) error
}

// Write writes a Step, and stops at the first error. Writes that release quota come first, so that a tenant whose pods cannot be ungated
// does not keep quota that must be released.
func (s *Step) Write(to *Writer) error {
	for _, write := range []func(*Step) error{
		to.NoteTimeout, to.Evict, to.DeletePods, to.Progress, to.Reclaim, to.ReleaseQuota, to.RemoveFinalizers, to.DeleteWorkloads,
		to.Create, to.Change, to.Ungate, to.Report, to.KeepStatus,
	} {
		if err := write(s); err != nil {
			return err
		}
	}
	return nil
}

// An Evict evicts a quota Workload.
type Evict struct {
	Workload *kueue.Workload
	Why      workloadstatus.Eviction
	// Requeue is set if the Workload backs off, or nil.
	Requeue *kueue.RequeueState
}

// A Change updates the metadata or the spec of a quota Workload.
type Change struct{ Before, After *kueue.Workload }

// A Ungate ungates a pod.
type Ungate struct {
	Workload      *kueue.Workload
	Before, After *corev1.Pod
}

// A Delete deletes a pod whose quota was evicted.
type Delete struct {
	Pod *corev1.Pod
	// Why is the message of the eviction, or of the expired retention.
	Why string
}

// A Progress is the state of the pods of a quota Workload.
type Progress struct {
	Workload *kueue.Workload
	// Ready has no type if the condition PodsReady is not written.
	Ready metav1.Condition
	// Finished is nil while the quota Workload is needed.
	Finished *metav1.Condition
}

// A Reclaim has the pods of a quota Workload whose quota is no longer needed.
type Reclaim struct {
	Workload *kueue.Workload
	Pods     []kueue.ReclaimablePod
}

// A Message reports the state of a gang to its user.
type Message struct {
	// Reason is a CamelCase word, and Topic another one that differs where the same reason has several causes.
	Reason, Topic string
	// Text is a sentence without clock times and counters, or empty if there is nothing to report.
	Text string
	// IsWarning is true if nothing will happen before a user has changed something.
	IsWarning bool
}

// Brief returns the message with a text that fits into an annotation together with its other content.
func (m Message) Brief() Message {
	const longest = 1000
	m.Text = podgroup.Shorten(m.Text, longest)
	return m
}

// NeedsLive reports whether the step ungates pods or releases quota, which must not be decided on cached objects: the cache may not show yet that
// a pod was ungated, or created.
func (s *Step) NeedsLive() bool {
	return len(s.Evict)+len(s.Change)+len(s.Ungate)+len(s.Delete)+len(s.ReleaseQuota)+len(s.RemoveFinalizer)+len(s.DeleteWorkloads)+len(s.Reclaim) > 0 ||
		// A gang must also not ask twice for its initial quota.
		slices.ContainsFunc(s.Create, func(w *kueue.Workload) bool { return !isExtra(w) }) ||
		slices.ContainsFunc(s.Progress, func(p Progress) bool { return p.Finished != nil })
}
