package observe

import (
	"fmt"
	"maps"
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
	fmt.Stringer
	// apply records the fact.
	apply(e *Observer)
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

// PlanObserved reports the plan of a JobSet or a gang of pods. A stage of a plan is not admitted before the plan is known.
type PlanObserved struct {
	Owner decision.Owner
	// UID is that of the JobSet, or of the plan of the gang.
	UID       types.UID
	Submitted time.Time
	// StageAdmission is the policy that the owner asks for, or empty.
	StageAdmission string
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

func (ev FlavorObserved) apply(o *Observer) { o.observeFlavor(ev.Flavor) }

func (ev FlavorGone) apply(o *Observer) { o.loseFlavor(kueue.ResourceFlavorReference(ev.Name)) }

func (ev ClusterQueueObserved) apply(o *Observer) { o.observeClusterQueue(ev) }

func (ev ClusterQueueGone) apply(o *Observer) { o.loseClusterQueue(ev.Name) }

func (ev CohortObserved) apply(o *Observer) { o.observeCohort(ev.Cohort) }

func (ev CohortGone) apply(o *Observer) { o.loseCohort(ev.Name) }

func (ev CheckObserved) apply(o *Observer) { o.observeCheck(ev.AdmissionCheck) }

func (ev CheckGone) apply(o *Observer) { o.loseCheck(ev.Name) }

func (ev LocalQueueObserved) apply(o *Observer) { o.observeLocalQueue(ev.LocalQueue) }

func (ev LocalQueueGone) apply(o *Observer) { o.loseLocalQueue(ev.Key) }

func (ev NamespaceObserved) apply(o *Observer) {
	labels := map[string]string{}
	maps.Copy(labels, ev.Labels)
	o.observeNamespace(ev.Name, labels)
}

func (ev NamespaceGone) apply(o *Observer) { o.observeNamespace(ev.Name, nil) }

func (ev LimitRangeObserved) apply(o *Observer) { o.observeLimitRange(ev.LimitRange) }

func (ev LimitRangeGone) apply(o *Observer) { o.loseLimitRange(ev.Key) }

func (ev RuntimeClassObserved) apply(o *Observer) { o.observeOverhead(ev.Name, ev.Overhead.DeepCopy()) }

func (ev RuntimeClassGone) apply(o *Observer) { o.observeOverhead(ev.Name, nil) }

func (ev DeviceClassObserved) apply(o *Observer) { o.observeDeviceClass(ev.DeviceClass) }

func (ev DeviceClassGone) apply(o *Observer) { o.loseDeviceClass(ev.Name) }

func (ev ClaimTemplateObserved) apply(o *Observer) { o.observeClaimTemplate(ev.Template) }

func (ev ClaimTemplateGone) apply(o *Observer) { o.loseClaimTemplate(ev.Key) }

func (ev PlanObserved) apply(o *Observer) { o.observePlan(ev) }

func (ev PlanGone) apply(o *Observer) {
	o.tombstones.Insert(ev.UID)
	o.losePlan(ev.UID)
}

func (ev WorkloadObserved) apply(o *Observer) { o.observeStage(ev.Workload) }

func (ev WorkloadGone) apply(o *Observer) { o.observeEnd(ev) }

func (ev TombstoneCleared) apply(o *Observer) { o.tombstones.Remove(ev.UID) }

func (ev FlavorObserved) String() string { return "flavor " + ev.Flavor.Name }

func (ev FlavorGone) String() string { return "flavor " + ev.Name + " gone" }

func (ev ClusterQueueObserved) String() string { return "clusterqueue " + ev.ClusterQueue.Name }

func (ev ClusterQueueGone) String() string { return "clusterqueue " + ev.Name + " gone" }

func (ev CohortObserved) String() string { return "cohort " + ev.Cohort.Name }

func (ev CohortGone) String() string { return "cohort " + ev.Name + " gone" }

func (ev CheckObserved) String() string { return "admissioncheck " + ev.AdmissionCheck.Name }

func (ev CheckGone) String() string { return "admissioncheck " + ev.Name + " gone" }

func (ev LocalQueueObserved) String() string {
	return "localqueue " + ev.LocalQueue.Namespace + "/" + ev.LocalQueue.Name
}

func (ev LocalQueueGone) String() string { return "localqueue " + ev.Key.String() + " gone" }

func (ev NamespaceObserved) String() string { return "namespace " + ev.Name }

func (ev NamespaceGone) String() string { return "namespace " + ev.Name + " gone" }

func (ev LimitRangeObserved) String() string {
	return "limitrange " + ev.LimitRange.Namespace + "/" + ev.LimitRange.Name
}

func (ev LimitRangeGone) String() string { return "limitrange " + ev.Key.String() + " gone" }

func (ev RuntimeClassObserved) String() string { return "runtimeclass " + ev.Name }

func (ev RuntimeClassGone) String() string { return "runtimeclass " + ev.Name + " gone" }

func (ev DeviceClassObserved) String() string { return "deviceclass " + ev.DeviceClass.Name }

func (ev DeviceClassGone) String() string { return "deviceclass " + ev.Name + " gone" }

func (ev ClaimTemplateObserved) String() string {
	return "claimtemplate " + ev.Template.Namespace + "/" + ev.Template.Name
}

func (ev ClaimTemplateGone) String() string { return "claimtemplate " + ev.Key.String() + " gone" }

func (ev PlanObserved) String() string { return "plan of " + ev.Owner.String() }

func (ev PlanGone) String() string { return "plan " + string(ev.UID) + " gone" }

func (ev WorkloadObserved) String() string {
	return "workload " + ev.Workload.Namespace + "/" + ev.Workload.Name
}

func (ev WorkloadGone) String() string { return "workload " + ev.Key.String() + " gone" }

func (ev TombstoneCleared) String() string { return "workload " + string(ev.UID) + " doubted" }
