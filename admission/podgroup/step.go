package podgroup

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/life"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// Seen is everything that the next step of a gang depends on, besides the time. Nothing in it is changed.
type Seen struct {
	Gang     *Gang
	Problems Problems
	// Workloads are all quota Workloads of the gang, and of gangs of its name before it.
	Workloads []*kueue.Workload
	// Others are the gangs that start together with it.
	Others   []Other
	Flavors  map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor
	Priority Priority
	// Charged has the quota Workloads that the engine counts as holding quota right now, whatever the cache says.
	Charged map[types.UID]bool
	// Retention says how long finished quota Workloads are kept, and pods whose quota Workload the manager has deactivated.
	Retention configapi.WorkloadRetentionPolicy
	// Backoff says how long a gang is put off that has given back what it had gathered, for the first, the second time and so on.
	Backoff func(count int32) time.Duration
}

// A Step is what has to be written next, in the order of the fields: what takes away comes before what needs the consent of others. It may
// be cut off after any write: what is left is found out again.
type Step struct {
	// TimeOut has pods, and TimeOutObject is true if the PodGroup is one, that get the annotation that their gang did not start in time.
	TimeOut       []*corev1.Pod
	TimeOutObject bool
	// ClearObject is true if the PodGroup of a gang that has started since loses that annotation.
	ClearObject bool
	// Evict has quota Workloads that have to give back what they hold.
	Evict []Evict
	// Delete has pods of evicted quota Workloads, and pods that are not kept any longer.
	Delete []Delete
	// Progress has conditions of quota Workloads that differ.
	Progress []Progress
	// Reclaim has what differs about reclaimable pods.
	Reclaim []Reclaim
	// GiveBack has evicted quota Workloads whose pods are over.
	GiveBack []*kueue.Workload
	// Unpin has quota Workloads that need not be kept if somebody deletes them.
	Unpin []*kueue.Workload
	// Drop has quota Workloads that nobody needs.
	Drop []*kueue.Workload
	// Create has quota Workloads that are missing.
	Create []*kueue.Workload
	// Change has quota Workloads whose spec or metadata are not what they should be.
	Change []Change
	// Release has pods that may be scheduled.
	Release []Release
	// Tell is what the user should know. It stays the same while nothing changes.
	Tell Message
	// Again is when to look again although nothing has changed, or zero.
	Again time.Duration
}

// An Evict makes a quota Workload give back what it holds.
type Evict struct {
	Workload *kueue.Workload
	Why      life.Eviction
	// Requeue is for when the Workload is put off, or nil.
	Requeue *kueue.RequeueState
}

// A Change is of the metadata or the spec of a quota Workload.
type Change struct{ Before, After *kueue.Workload }

// A Release lets a pod go.
type Release struct {
	Workload      *kueue.Workload
	Before, After *corev1.Pod
}

// A Delete takes a pod away whose quota was evicted.
type Delete struct {
	Pod *corev1.Pod
	// Why is the message of the eviction, or what the pod was kept for.
	Why string
}

// A Progress is how the pods of a quota Workload fare.
type Progress struct {
	Workload *kueue.Workload
	// Ready has no type if nothing is to be said about the pods.
	Ready metav1.Condition
	// Finished is nil as long as the quota Workload is needed.
	Finished *metav1.Condition
}

// A Reclaim is what a quota Workload should say about pods whose quota is not needed any more.
type Reclaim struct {
	Workload *kueue.Workload
	Pods     []kueue.ReclaimablePod
}

// A Message tells the user of a gang how it stands.
type Message struct {
	// Reason is a CamelCase word, and Topic another one that differs where the same reason has several causes.
	Reason, Topic string
	// Text is a sentence without clock times and counters, or empty if there is nothing to tell.
	Text string
	// IsWarning tells that nothing will happen before somebody has changed something.
	IsWarning bool
}

// Brief returns the message with a text that fits into an annotation beside what else is there.
func (m Message) Brief() Message {
	const longest = 1000
	m.Text = shorten(m.Text, longest)
	return m
}

// NeedsLive tells whether the step lets pods go or quota go, which must not be decided on what a cache says: it may not show yet that a
// pod was let go, or has come.
func (s *Step) NeedsLive() bool {
	if len(s.Evict)+len(s.Change)+len(s.Release)+len(s.Delete)+len(s.GiveBack)+len(s.Unpin)+len(s.Drop)+len(s.Reclaim) > 0 {
		return true
	}
	// Nor does a gang ask twice for what it needs to start.
	if slices.ContainsFunc(s.Create, func(w *kueue.Workload) bool { return !isExtra(w) }) {
		return true
	}
	for i := range s.Progress {
		if s.Progress[i].Finished != nil {
			return true
		}
	}
	return false
}
