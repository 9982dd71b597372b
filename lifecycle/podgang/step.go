package podgang

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// Snapshot is the snapshot: everything that the next step of a gang depends on, besides the time. It must not be changed.
type Snapshot struct {
	Gang     *podgroup.Gang
	Problems podgroup.Problems
	// Workloads are all quota Workloads of the gang, and of earlier gangs of its name.
	Workloads []*kueue.Workload
	// Gone has the quota Workloads that pods name as their Payer, and that do not exist.
	Gone map[types.UID]bool
	// Predecessors are quota Workloads that a pod may take over: see ControllersOfReplaced.
	Predecessors []Predecessor
	// OlderSiblings counts the older pods of its controller that may take over one of these, too.
	OlderSiblings int
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

// A Step has the next writes: writes that take away come before those that may be rejected (see Write). It may be interrupted after any write: the rest is
// computed again.
type Step struct {
	quotastep.Step
	// TimeOut has pods that get the annotation that their gang did not start in time. TimeOutObject is true if the PodGroup gets it, too.
	TimeOut       []*corev1.Pod
	TimeOutObject bool
	// ClearObject is true if that annotation is removed from the PodGroup, since the gang has started.
	ClearObject bool
	// Delete has pods of evicted quota Workloads, and pods whose retention has expired.
	Delete []Delete
	// Ungate has pods to ungate.
	Ungate []Ungate
	// Message is the message for the user. It stays the same while nothing changes.
	Message Message
}

// A Writer writes the parts of a Step.
type Writer struct {
	NoteTimeout, DeletePods, Ungate, Report, KeepStatus func(*Step) error
	// Quota carries out writes to quota Workloads in their order. It is called several times.
	Quota func([]quotastep.Write) error
}

// Write writes a Step, and stops at the first error. Writes that release quota come first, so that a tenant whose pods cannot be ungated
// does not keep quota that must be released.
func (s *Step) Write(to *Writer) error {
	quota := func(kinds ...quotastep.Kind) func(*Step) error {
		return func(s *Step) error { return s.WriteOf(to.Quota, kinds...) }
	}
	for _, write := range []func(*Step) error{
		to.NoteTimeout, quota(quotastep.Evict), to.DeletePods,
		quota(quotastep.Progress, quotastep.Reclaim, quotastep.Release, quotastep.RemoveFinalizer, quotastep.Delete),
		quota(quotastep.Create), quota(quotastep.Change), to.Ungate, to.Report, to.KeepStatus,
	} {
		if err := write(s); err != nil {
			return err
		}
	}
	return nil
}

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
	return len(s.Ungate)+len(s.Delete) > 0 || slices.ContainsFunc(s.Writes, func(w quotastep.Write) bool {
		isHarmless := w.Kind == quotastep.Progress && w.Finished == nil ||
			w.Kind == quotastep.Create && isExtra(w.Workload) // but a gang must not ask twice for its initial quota
		return !isHarmless
	})
}
