package life

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// News is what a step means to the owner of the quota Workload.
//
//sumtype:decl
type News interface{ isNews() }

type (
	// EvictedNews tells that it has to give its quota back.
	EvictedNews struct{ Eviction Eviction }

	// AdmittedNews tells that all its AdmissionChecks are Ready, and for how long it has waited for them.
	AdmittedNews struct {
		ClusterQueue kueue.ClusterQueueReference
		Waited       time.Duration
	}

	// RejectedNews tells that AdmissionChecks have had it deactivated.
	RejectedNews struct{ Verdict string }

	// OutOfTimeNews tells that it is deactivated because it has been admitted for as many seconds as it may be.
	OutOfTimeNews struct{ Seconds int32 }

	// OutOfTriesNews tells that it is deactivated because it was requeued as often as it may be.
	OutOfTriesNews struct{ Limit int32 }

	// RequeuedNews tells that it is back in the queue.
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
