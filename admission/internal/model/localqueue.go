package model

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/internal/unordered"
	"github.com/tranche-dev/tranche/admission/internal/version"
)

// A LocalQueue exists as soon as an object names it, whether or not there is a LocalQueue object. Without one its stages are pending in the
// ClusterQueue with the empty name.
type LocalQueue struct {
	Key     types.NamespacedName
	Version version.Version
	Exists  bool
	// IsTerminating is true if the object is being deleted.
	IsTerminating bool
	Stop          kueue.StopPolicy
	ClusterQueue  string
	Weight        float64
	QueueTotals   QueueTotals
	// isChanged is true if Changed has to return it.
	isChanged bool
	// Consumed is the usage in the status when the queue was first observed; Account is opened at the first Decide after that; Sampled is the
	// usage for the new status.
	Consumed *kueue.LocalQueueAdmissionFairSharingStatus
	Account  *fairshare.Account
	Sampled  *kueue.LocalQueueAdmissionFairSharingStatus
	// Members are all stages that name this queue.
	Members unordered.Set[*Stage]
}

// LocalQueue returns the LocalQueue with a key, and creates it if no object has named it before.
func (m *Model) LocalQueue(key types.NamespacedName) *LocalQueue {
	q := m.LocalQueues[key]
	if q == nil {
		q = &LocalQueue{Key: key, Stop: kueue.None, Weight: 1, Members: unordered.New(placeInLocalQueue)}
		m.LocalQueues[key] = q
		m.ClusterQueue("")
	}
	return q
}

// isGone reports whether the object does not exist, or is being deleted.
func (q *LocalQueue) isGone() bool { return !q.Exists || q.IsTerminating }

// Has reports whether the stages of an equivalence class belong to the queue.
func (q *LocalQueue) Has(c EquivalenceKey) bool { return c.LocalQueue == q }
