package admission

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
)

// An Event is one observed fact about the world. Events carry API objects as they were read: the Engine converts what it needs once, and keeps
// no references to them except to the pod sets of quota Workloads and to plans, which must not be changed. An observation that is older than
// the latest one of the same object (by UID and resource version) is dropped, so that the answer to a write and the watch may arrive in either
// order.
//
//sumtype:decl
type Event interface {
	fmt.Stringer
	event()
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

// PlanObserved reports the plan of a JobSet. A stage of a JobSet is not admitted before its plan is known.
type PlanObserved struct {
	JobSet    types.NamespacedName
	UID       types.UID
	Submitted time.Time
	// StageAdmission is the policy that the JobSet asks for, or empty.
	StageAdmission string
	Plan           *stageplan.Plan
}

// PlanGone reports that a JobSet no longer exists.
type PlanGone struct{ UID types.UID }

// WorkloadObserved reports that a quota Workload exists with this content.
type WorkloadObserved struct{ Workload *kueue.Workload }

// WorkloadGone reports that a quota Workload no longer exists: the one with this UID, or if that is empty, any with this name. Later observations
// of it are ignored.
type WorkloadGone struct {
	Key StageKey
	UID types.UID
}

// TombstoneCleared reports that a quota Workload with a tombstone may exist after all, and that the sender is about to read it from the API
// server. Later observations of it count, until it is deleted again.
type TombstoneCleared struct{ UID types.UID }

func (FlavorObserved) event()        {}
func (FlavorGone) event()            {}
func (ClusterQueueObserved) event()  {}
func (ClusterQueueGone) event()      {}
func (CohortObserved) event()        {}
func (CohortGone) event()            {}
func (CheckObserved) event()         {}
func (CheckGone) event()             {}
func (LocalQueueObserved) event()    {}
func (LocalQueueGone) event()        {}
func (NamespaceObserved) event()     {}
func (NamespaceGone) event()         {}
func (LimitRangeObserved) event()    {}
func (LimitRangeGone) event()        {}
func (RuntimeClassObserved) event()  {}
func (RuntimeClassGone) event()      {}
func (DeviceClassObserved) event()   {}
func (DeviceClassGone) event()       {}
func (ClaimTemplateObserved) event() {}
func (ClaimTemplateGone) event()     {}
func (PlanObserved) event()          {}
func (PlanGone) event()              {}
func (WorkloadObserved) event()      {}
func (WorkloadGone) event()          {}
func (TombstoneCleared) event()      {}

func (e FlavorObserved) String() string       { return "flavor " + e.Flavor.Name }
func (e FlavorGone) String() string           { return "flavor " + e.Name + " gone" }
func (e ClusterQueueObserved) String() string { return "clusterqueue " + e.ClusterQueue.Name }
func (e ClusterQueueGone) String() string     { return "clusterqueue " + e.Name + " gone" }
func (e CohortObserved) String() string       { return "cohort " + e.Cohort.Name }
func (e CohortGone) String() string           { return "cohort " + e.Name + " gone" }
func (e CheckObserved) String() string        { return "admissioncheck " + e.AdmissionCheck.Name }
func (e CheckGone) String() string            { return "admissioncheck " + e.Name + " gone" }
func (e LocalQueueObserved) String() string {
	return "localqueue " + e.LocalQueue.Namespace + "/" + e.LocalQueue.Name
}
func (e LocalQueueGone) String() string    { return "localqueue " + e.Key.String() + " gone" }
func (e NamespaceObserved) String() string { return "namespace " + e.Name }
func (e NamespaceGone) String() string     { return "namespace " + e.Name + " gone" }
func (e LimitRangeObserved) String() string {
	return "limitrange " + e.LimitRange.Namespace + "/" + e.LimitRange.Name
}
func (e LimitRangeGone) String() string       { return "limitrange " + e.Key.String() + " gone" }
func (e RuntimeClassObserved) String() string { return "runtimeclass " + e.Name }
func (e RuntimeClassGone) String() string     { return "runtimeclass " + e.Name + " gone" }
func (e DeviceClassObserved) String() string  { return "deviceclass " + e.DeviceClass.Name }
func (e DeviceClassGone) String() string      { return "deviceclass " + e.Name + " gone" }
func (e ClaimTemplateObserved) String() string {
	return "claimtemplate " + e.Template.Namespace + "/" + e.Template.Name
}
func (e ClaimTemplateGone) String() string { return "claimtemplate " + e.Key.String() + " gone" }
func (e PlanObserved) String() string      { return "plan of jobset " + e.JobSet.String() }
func (e PlanGone) String() string          { return "plan " + string(e.UID) + " gone" }
func (e WorkloadObserved) String() string {
	return "workload " + e.Workload.Namespace + "/" + e.Workload.Name
}
func (e WorkloadGone) String() string     { return "workload " + e.Key.String() + " gone" }
func (e TombstoneCleared) String() string { return "workload " + string(e.UID) + " doubted" }
