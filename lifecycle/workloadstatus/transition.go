package workloadstatus

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Transition is a transition of the quota Workload that is reported to its owner.
//
//sumtype:decl
type Transition interface{ isTransition() }

type (
	// EvictedTransition reports that it has to release its quota.
	EvictedTransition struct{ Eviction Eviction }

	// AdmittedTransition reports that all its AdmissionChecks are Ready, and how long it has waited for them.
	AdmittedTransition struct {
		ClusterQueue kueue.ClusterQueueReference
		Waited       time.Duration
	}

	// RejectedTransition reports that it is deactivated because of AdmissionChecks.
	RejectedTransition struct{ Verdict string }

	// OutOfTimeTransition reports that it is deactivated because it has been admitted for as many seconds as it may be.
	OutOfTimeTransition struct{ Seconds int32 }

	// OutOfTriesTransition reports that it is deactivated because it was requeued as often as it may be.
	OutOfTriesTransition struct{ Limit int32 }

	// RequeuedTransition reports that it is back in the queue.
	RequeuedTransition struct{ Why string }

	// GatedTransition reports that gates keep it out of the queue, as its annotation names them.
	GatedTransition struct{ By string }

	// UngatedTransition reports that no gate keeps it out of the queue.
	UngatedTransition struct{}
)

func (EvictedTransition) isTransition()    {}
func (AdmittedTransition) isTransition()   {}
func (RejectedTransition) isTransition()   {}
func (OutOfTimeTransition) isTransition()  {}
func (OutOfTriesTransition) isTransition() {}
func (RequeuedTransition) isTransition()   {}
func (GatedTransition) isTransition()      {}
func (UngatedTransition) isTransition()    {}
