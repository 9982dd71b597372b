package workloadstatus

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// News is a transition of the quota Workload that is reported to its owner.
//
//sumtype:decl
type News interface{ isNews() }

type (
	// EvictedNews reports that it has to release its quota.
	EvictedNews struct{ Eviction Eviction }

	// AdmittedNews reports that all its AdmissionChecks are Ready, and how long it has waited for them.
	AdmittedNews struct {
		ClusterQueue kueue.ClusterQueueReference
		Waited       time.Duration
	}

	// RejectedNews reports that it is deactivated because of AdmissionChecks.
	RejectedNews struct{ Verdict string }

	// OutOfTimeNews reports that it is deactivated because it has been admitted for as many seconds as it may be.
	OutOfTimeNews struct{ Seconds int32 }

	// OutOfTriesNews reports that it is deactivated because it was requeued as often as it may be.
	OutOfTriesNews struct{ Limit int32 }

	// RequeuedNews reports that it is back in the queue.
	RequeuedNews struct{ Why string }

	// GatedNews reports that gates keep it out of the queue, as its annotation names them.
	GatedNews struct{ By string }

	// UngatedNews reports that no gate keeps it out of the queue.
	UngatedNews struct{}
)

func (EvictedNews) isNews()    {}
func (AdmittedNews) isNews()   {}
func (RejectedNews) isNews()   {}
func (OutOfTimeNews) isNews()  {}
func (OutOfTriesNews) isNews() {}
func (RequeuedNews) isNews()   {}
func (GatedNews) isNews()      {}
func (UngatedNews) isNews()    {}
