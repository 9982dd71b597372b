package preempt

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Request is what does not fit.
type Request struct {
	Queue    *Queue
	UID      types.UID
	Priority int64
	// Queued is the time by which it stands in line.
	Queued time.Time
	Usage  quota.Usage
	// JobSet is the UID of the Holder that the request belongs to, if that holds quota already.
	JobSet types.UID
	// Peaks, if it is not nil, returns what the JobSet of the request may come to hold, as alternatives, before it gives anything back: the
	// usage included, and what it holds not. Other Queues yield only if one of them could be had by the same rules.
	Peaks func() []quota.Usage

	// staysIn is true if only Holders of the own Queue are taken.
	staysIn bool
}

// A Victim is a Holder that has to leave, with the reason for its condition Preempted.
type Victim struct {
	Holder *Holder
	Reason string

	// strategy is the one by which it was taken, if the reason is fair sharing.
	strategy Strategy
}

// A Result has either Victims or an Outcome that says why there are none.
type Result struct {
	Outcome Outcome
	Victims []Victim
}

// An Outcome is how a search ended.
type Outcome int

const (
	// Found means that there are victims.
	Found Outcome = iota
	// Fits means that there is nothing to do.
	Fits
	// Awaits means that it will fit when all are gone that already are being evicted.
	Awaits
	// TooLarge means that it would not even fit if nothing were used.
	TooLarge
	// NeedsBorrowing means that it is more than the ClusterQueue has, and that borrowWithinCohort does not allow to preempt for that.
	NeedsBorrowing
	// NoCandidates means that the policies of the ClusterQueue allow nobody to be preempted who holds what is short.
	NoCandidates
	// NotEnough means that it would not fit without all who may be preempted.
	NotEnough
	// PeakTooLarge means that other Queues would have to yield, and that none of the peaks could be had.
	PeakTooLarge
)

// String says it to people.
func (o Outcome) String() string {
	switch o {
	case Found:
		return "fits after preemption"
	case Fits:
		return "fits"
	case Awaits:
		return "fits when those are gone that are being evicted"
	case TooLarge:
		return "more than could ever be available"
	case NeedsBorrowing:
		return "more than the ClusterQueue has, and borrowWithinCohort does not allow preemption while borrowing"
	case NoCandidates:
		return "nobody may be preempted who holds what is short"
	case PeakTooLarge:
		return "no quota is reclaimed for this stage, because all that its JobSet may hold at the same time could not be reclaimed"
	case NotEnough:
		return "does not fit even without all who may be preempted"
	}
	return ""
}
