package decision

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// A StageKey names a stage by the quota Workload that stands for it.
type StageKey = types.NamespacedName

// A ID names a decision that has not been settled yet. Zero names none.
type ID uint64

// A Decision is a change that the Engine has made to its own state and that must now be written to the API. The caller writes the decisions of
// one stage in their order, and calls Settle for each that has an ID.
//
//sumtype:decl
type Decision interface {
	fmt.Stringer
	decision()
}

// Admit reserves quota for a stage and admits it. It must be settled.
type Admit struct {
	ID    ID
	Stage StageKey
	// UID of the quota Workload that was decided on; the decision must not be written to a newer one with the same name.
	UID       types.UID
	Admission kueue.Admission
	// Checks are the AdmissionChecks that have to be Ready before the stage counts as admitted. Without any it is admitted at once.
	Checks []kueue.AdmissionCheckReference
	// Passed are AdmissionChecks that are Ready by this decision.
	Passed []kueue.AdmissionCheckReference
	// JobSet and StageName are set for the stages of JobSets, not for the parts of gangs. They are for messages.
	JobSet, StageName string
}

// Evict takes quota back from a stage. The quota stays charged until the quota Workload no longer shows a reservation: only then have the pods
// terminated. It must be settled.
type Evict struct {
	ID    ID
	Stage StageKey
	UID   types.UID
	// Reason is the reason of the condition Evicted, such as Preempted, ClusterQueueStopped or LocalQueueStopped.
	Reason string
	// Message is a sentence for the owner of the stage.
	Message string
	// Preemption is set if the stage is evicted for another stage.
	Preemption *Preemption
	// ResolvesDeadlock is true if the JobSet of the stage, and others that wait for its quota, could not finish otherwise.
	ResolvesDeadlock bool
}

// Notice reports to a stage that it will be evicted for a preemptor, and when: until then its pods run. The quota of the stage is promised to the
// preemptor meanwhile. It must be settled.
type Notice struct {
	ID    ID
	Stage StageKey
	UID   types.UID
	// Ends is when it is evicted, in whole seconds.
	Ends time.Time
	// Preemption is nil if the notice is withdrawn: the preemptor no longer waits.
	Preemption *Preemption
}

// A Preemption describes for which stage a victim is evicted, and why.
type Preemption struct {
	Preemptor    StageKey
	PreemptorUID types.UID
	// ClusterQueue is that of the preemptor.
	ClusterQueue string
	// Reason is the reason of the condition Preempted, such as InClusterQueue or InCohortReclamation.
	Reason string
	// PreemptorPath and VictimPath name the Cohorts and the ClusterQueue of either, such as /research/ml.
	PreemptorPath, VictimPath string
}

// Refuse reports why a stage waits. It is emitted when the reason changes, needs no settling, and only its last value matters.
type Refuse struct {
	Stage   StageKey
	UID     types.UID
	Refusal Refusal
	// PodSets are the demand of the stage. They are shared and not changed.
	PodSets []flavor.PodSet
}

// Equal reports whether both have the same reason for the same stage, and the same demand.
func (d Refuse) Equal(other Refuse) bool {
	return d.Stage == other.Stage && d.UID == other.UID && d.Refusal == other.Refusal &&
		slices.EqualFunc(d.PodSets, other.PodSets, func(a, b flavor.PodSet) bool { return a.Name == b.Name && slices.Equal(a.Requests, b.Requests) })
}

// Wait returns the refusal as the status of the quota Workload reports it.
func (d Refuse) Wait() quotaworkload.Wait {
	w := d.Refusal.Wait()
	for i := range d.PodSets {
		p := &d.PodSets[i]
		request := kueue.PodSetRequest{Name: kueue.NewPodSetReference(p.Name)}
		for _, r := range p.Requests {
			if request.Resources == nil {
				request.Resources = corev1.ResourceList{}
			}
			request.Resources[r.Resource] = r.Amount.Quantity(r.Resource)
		}
		w.Requests = append(w.Requests, request)
	}
	return w
}

func (Admit) decision() {}

func (Evict) decision() {}

func (Notice) decision() {}

func (Refuse) decision() {}

func (d Admit) String() string { return "admit " + d.Stage.String() }

func (d Evict) String() string {
	if d.Preemption != nil {
		return "evict " + d.Stage.String() + " " + d.Preemption.Reason + " for " + d.Preemption.Preemptor.String()
	}
	return "evict " + d.Stage.String() + " " + d.Reason
}

func (d Notice) String() string {
	if d.Preemption == nil {
		return "withdraw the notice of " + d.Stage.String()
	}
	return "give notice to " + d.Stage.String() + " until " + d.Ends.UTC().Format(time.RFC3339) + " " + d.Preemption.Reason + " for " + d.Preemption.Preemptor.String()
}

func (d Refuse) String() string {
	return "refuse " + d.Stage.String() + " " + d.Refusal.String()
}

// A Refusal is one reason why a stage is not admitted.
type Refusal struct {
	// Check is the short CamelCase name of the check that refused the stage, such as QuotaFits or StageUnsafe. It is specific to Tranche.
	Check string
	// Reason is the most specific of Kueue's reasons for QuotaReserved=False.
	Reason string
	// Message is a sentence for the owner: what is missing, how much, and what to do where that is known.
	Message string
	// Kueue is the message that Kueue has for the refusal, or empty if it equals Message.
	Kueue string
}

// Wait returns the refusal as the status of a quota Workload reports it.
func (r Refusal) Wait() quotaworkload.Wait {
	return quotaworkload.Wait{Reason: r.Reason, Message: r.Message, KueueReason: r.kueueReason(), KueueMessage: r.Kueue}
}

// kueueReason returns the reason that Kueue writes with default feature gates, or nothing if that is Pending. Kueue's scheduler, which reads the
// labels and the LimitRanges of namespaces, writes Pending for all that it refuses; Kueue's controllers write Inadmissible.
func (r Refusal) kueueReason() string {
	switch {
	case r.Check == NamespaceSelected, r.Check == PodsAreValid:
		return ""
	case r.Reason == kueue.WorkloadQuotaReservedReasonMisconfigured, r.Reason == kueue.WorkloadQuotaReservedReasonSuspended:
		return kueue.WorkloadInadmissible
	case r.Reason == kueue.WorkloadQuotaReservedReasonWaitingForPodsReady:
		return kueue.WorkloadWaiting //nolint:staticcheck // the reason that Kueue writes by default
	}
	return ""
}

// HasEvent reports whether Kueue's scheduler would refuse a stage for this reason. It then emits an Event on the quota Workload. Stages that
// Kueue's controllers refuse, and those behind the head of a StrictFIFO queue, never reach the scheduler.
func (r Refusal) HasEvent() bool { return r.kueueReason() == "" && r.Check != StrictFIFO }

// SaysTheSameAs reports whether both refusals are the same to the owner of a stage.
func (r Refusal) SaysTheSameAs(other *Refusal) bool {
	return r.Check == other.Check && r.Reason == other.Reason && r.Message == other.Message
}

func (r Refusal) String() string { return r.Check + ": " + r.Message }
