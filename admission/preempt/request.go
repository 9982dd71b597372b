package preempt

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Request is a demand that does not fit.
type Request struct {
	Queue    *Queue
	UID      types.UID
	Priority int64
	// Queued is the time of its queue position. Continues is true if it comes before new requests of equal priority.
	Queued    time.Time
	Continues bool
	// Precedes, unless it is nil, reports whether the request comes before a Holder of equal priority of its Queue once that queues again, as far as
	// past usage decides.
	Precedes func(*Holder) bool
	Usage    quota.Usage
	// JobSet is the UID of the Holder that the request belongs to, if that holds quota already.
	JobSet types.UID
	// Peaks, if it is not nil, returns what the JobSet of the request may come to hold in addition, as alternatives, before it releases anything.
	// They include the usage, but not what the JobSet holds. Other Queues yield only if one of the peaks could be obtained by the same rules.
	Peaks func() []quota.Usage
	// Now is the current time, for minimum runtimes.
	Now time.Time

	// staysIn is true if only Holders of the own Queue are preempted.
	staysIn bool
	// reclaims is true if what the request needs of victims fits into the quota of its own ClusterQueue that others have borrowed.
	reclaims bool
}

// A Victim is a Holder that has to leave, with the reason for its condition Preempted.
type Victim struct {
	Holder *Holder
	Reason string

	// strategy is the one by which it was taken, if the reason is fair sharing.
	strategy Strategy
}

// A Result has either Victims or an Outcome that is the reason why there are none.
type Result struct {
	Outcome Outcome
	Victims []Victim
	// IsByShares is true if the Outcome follows from what all Queues use: a smaller share of another Queue may also allow a preemption, since a Holder that was
	// taken by the first strategy no longer keeps another one from being taken by the second.
	IsByShares bool
	// RetryAt is when the first Holder that the policies allow has run for its minimum runtime, if the request has to wait for that. Otherwise it is
	// zero.
	RetryAt time.Time
}

// An Outcome is how a search ended.
type Outcome int

const (
	// Found means that there are victims.
	Found Outcome = iota
	// Fits means that there is nothing to do.
	Fits
	// EvictionsPending means that the request will fit when all Holders that are already being evicted have left.
	EvictionsPending
	// TooLarge means that the request would not even fit if nothing were used.
	TooLarge
	// NeedsBorrowing means that the request exceeds the quota of the ClusterQueue, and that borrowWithinCohort does not allow preemption for
	// that.
	NeedsBorrowing
	// NoCandidates means that the policies of the ClusterQueue allow no victim that holds the missing quota.
	NoCandidates
	// NotEnough means that the request would not fit even without all Holders that may be preempted.
	NotEnough
	// PeakTooLarge means that other Queues would have to yield, and that none of the peaks could be obtained.
	PeakTooLarge
)

// String describes the outcome for users.
func (o Outcome) String() string {
	return [...]string{
		Found:            "fits after preemption",
		Fits:             "fits",
		EvictionsPending: "fits once all stages that are being evicted have released their quota",
		TooLarge:         "more than could ever be available",
		NeedsBorrowing:   "more than the ClusterQueue has, and borrowWithinCohort does not allow preemption while borrowing",
		NoCandidates:     "the preemption policy allows no victim that holds the missing quota",
		NotEnough:        "does not fit even if all allowed victims are preempted",
		PeakTooLarge:     "no quota is reclaimed for this stage, because the peak usage of its JobSet could not be reclaimed",
	}[o]
}
