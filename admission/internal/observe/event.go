package observe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// An Event is one observed fact about the world. Events carry API objects as they were read: the Engine converts what it needs once, and keeps
// no references to them except to the pod sets of quota Workloads and to plans, which must not be changed. An observation that is older than
// the latest one of the same object (by UID and resource version) is dropped, so that the answer to a write and the watch may arrive in either
// order.
//
//sumtype:decl
type Event interface {
	// apply records the fact.
	apply(o *Observer)
}

// FlavorObserved reports that a ResourceFlavor exists with this content.
type FlavorObserved struct{ Flavor *kueue.ResourceFlavor }

// FlavorGone reports that a ResourceFlavor no longer exists.
type FlavorGone struct{ Name string }

// ClusterQueueObserved reports that a ClusterQueue exists with this content.
type ClusterQueueObserved struct {
	ClusterQueue *kueue.ClusterQueue
	// IsUnprotected is true if no finalizer prevents the deletion of the ClusterQueue while it holds quota. Then it admits nothing.
	IsUnprotected bool
}

// ClusterQueueGone reports that a ClusterQueue no longer exists.
type ClusterQueueGone struct{ Name string }

// QueuesTaken reports that Kueue no longer admits anything in these ClusterQueues, which ask for Tranche, and that all it has admitted was observed. The
// Engine admits in cohort trees of which all ClusterQueues are taken. It counts until the ClusterQueue no longer asks for Tranche.
type QueuesTaken struct{ ClusterQueues []string }

// QueueReturned reports that the Engine must not admit in a ClusterQueue that was taken.
type QueueReturned struct{ ClusterQueue string }

// CohortObserved reports that a Cohort exists with this content. Cohorts without an object are known by their members.
type CohortObserved struct{ Cohort *kueue.Cohort }

// CohortGone reports that a Cohort no longer exists.
type CohortGone struct{ Name string }

// CheckObserved reports that an AdmissionCheck exists with this content.
type CheckObserved struct{ AdmissionCheck *kueue.AdmissionCheck }

// CheckGone reports that an AdmissionCheck no longer exists.
type CheckGone struct{ Name string }

// LocalQueueObserved reports that a LocalQueue exists with this content.
type LocalQueueObserved struct{ LocalQueue *kueue.LocalQueue }

// LocalQueueGone reports that a LocalQueue no longer exists.
type LocalQueueGone struct{ Key types.NamespacedName }

// NamespaceObserved reports that a Namespace exists with these labels.
type NamespaceObserved struct {
	Name   string
	Labels map[string]string
}

// NamespaceGone reports that a Namespace no longer exists.
type NamespaceGone struct{ Name string }

// LimitRangeObserved reports that a LimitRange exists with this content.
type LimitRangeObserved struct{ LimitRange *corev1.LimitRange }

// LimitRangeGone reports that a LimitRange no longer exists.
type LimitRangeGone struct{ Key types.NamespacedName }

// RuntimeClassObserved reports that a RuntimeClass exists with this overhead of each pod.
type RuntimeClassObserved struct {
	Name     string
	Overhead corev1.ResourceList
}

// RuntimeClassGone reports that a RuntimeClass no longer exists.
type RuntimeClassGone struct{ Name string }

// DeviceClassObserved reports that a DeviceClass exists with this content.
type DeviceClassObserved struct{ DeviceClass *resourcev1.DeviceClass }

// DeviceClassGone reports that a DeviceClass no longer exists.
type DeviceClassGone struct{ Name string }

// ClaimTemplateObserved reports that a ResourceClaimTemplate exists with this content.
type ClaimTemplateObserved struct {
	Template *resourcev1.ResourceClaimTemplate
}

// ClaimTemplateGone reports that a ResourceClaimTemplate no longer exists.
type ClaimTemplateGone struct{ Key types.NamespacedName }

// PlanObserved reports the plan of a JobSet or a gang of pods. A stage of a plan is not admitted before the plan is known.
type PlanObserved struct {
	Owner decision.Owner
	// UID is that of the JobSet, or of the plan of the gang.
	UID       types.UID
	Submitted time.Time
	// StageAdmission is the policy that the owner asks for, or empty.
	StageAdmission string
	// CheckpointedAt is when the work of the JobSet was last saved: package checkpoint.
	CheckpointedAt time.Time
	Plan           *stageplan.Plan
}

// PlanGone reports that a JobSet, or the plan of a gang, no longer exists.
type PlanGone struct{ UID types.UID }

// WorkloadObserved reports that a quota Workload exists with this content.
type WorkloadObserved struct{ Workload *kueue.Workload }

// WorkloadGone reports that a quota Workload no longer exists: the one with this UID, or if that is empty, any with this name. Later observations
// of it are ignored.
type WorkloadGone struct {
	Key decision.StageKey
	UID types.UID
}

// TombstoneCleared reports that a quota Workload with a tombstone may exist after all, and that the sender is about to read it from the API
// server. Later observations of it count, until it is deleted again.
type TombstoneCleared struct{ UID types.UID }
