package queuespec

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/queue"
)

// A Spec is the part of the spec of a ClusterQueue that the Engine uses, with the flavors that exist.
type Spec struct {
	// IsTerminating is true if the object is being deleted.
	IsTerminating bool
	// Stop is spec.stopPolicy, unless that is for Kueue: see Takeover.
	Stop     kueue.StopPolicy
	Takeover Takeover
	Checks   []kueue.AdmissionCheckStrategyRule
	Policy   string
	// CoStart is nil if the ClusterQueue does not override the configuration.
	CoStart *CoStart
	// MinimumRuntime is nil if the ClusterQueue does not override the configuration.
	MinimumRuntime *time.Duration
	// PreemptionNotice is nil if the ClusterQueue does not override the configuration.
	PreemptionNotice *time.Duration
	// Reservation is nil if the ClusterQueue does not override the configuration.
	Reservation *Reservation
	Cohort      string
	Weight      float64
	Groups      []kueue.ResourceGroup
	Fungibility flavor.Fungibility
	// IsUsageBased is true if the order of its LocalQueues depends on their past usage.
	IsUsageBased bool
	Preemption   kueue.ClusterQueuePreemption
	Selector     labels.Selector
	// selectorProblem says what is wrong with the selector, or is empty.
	selectorProblem string

	// Remarks are about quotas of the spec that are not used as they are written. annotationRemarks are about annotations that have no effect.
	Remarks           []string
	annotationRemarks []string
	// FlavorGroups are the groups with the flavors that exist; Missing names those that do not.
	FlavorGroups []flavor.Group
	Missing      []string
	// Deleted names the flavors that are being deleted.
	Deleted []string
	// Topological are flavors with a topology, and isConcurrent is true if spec.concurrentAdmissionPolicy is set. Neither is supported.
	Topological  []string
	isConcurrent bool
	// ignored are annotations about takeovers from Kueue, which have no effect where this Engine admits in all cohort trees.
	ignored  []string
	Strategy queue.Strategy
}

// hasOnly reports whether the ClusterQueue has no other flavors than these. An empty list stands for all flavors.
func (q *Spec) hasOnly(flavors []kueue.ResourceFlavorReference) bool {
	if len(flavors) == 0 {
		return true
	}
	for _, g := range q.Groups {
		for i := range g.Flavors {
			if !slices.Contains(flavors, g.Flavors[i].Name) {
				return false
			}
		}
	}
	return true
}

// ChecksFor returns the AdmissionChecks that a stage has to pass on these flavors (KEP-1432).
func (q *Spec) ChecksFor(a *kueue.Admission) []kueue.AdmissionCheckReference {
	var names []kueue.AdmissionCheckReference
	for _, rule := range q.Checks {
		if len(rule.OnFlavors) == 0 || slices.ContainsFunc(rule.OnFlavors, func(f kueue.ResourceFlavorReference) bool { return uses(a, f) }) {
			names = append(names, rule.Name)
		}
	}
	slices.Sort(names)
	return names
}

func uses(a *kueue.Admission, f kueue.ResourceFlavorReference) bool {
	for i := range a.PodSetAssignments {
		for _, assigned := range a.PodSetAssignments[i].Flavors {
			if assigned == f {
				return true
			}
		}
	}
	return false
}

// AllowsPreemption reports whether a policy of a ClusterQueue allows any preemption.
func AllowsPreemption(policy kueue.PreemptionPolicy) bool {
	return policy != "" && policy != kueue.PreemptionPolicyNever
}

// MayPreempt reports whether the policies of a ClusterQueue let its stages preempt others.
func (q *Spec) MayPreempt() bool {
	return AllowsPreemption(q.Preemption.WithinClusterQueue) || AllowsPreemption(q.Preemption.ReclaimWithinCohort)
}

// NewSpec returns the spec of a ClusterQueue without an object.
func NewSpec() Spec {
	return Spec{Stop: kueue.None, Weight: 1, Selector: labels.Nothing()}
}

// Adopt copies the relevant fields of an object, and reports whether they have changed. leader is who admits where no ClusterQueue asks for another.
func (q *Spec) Adopt(object *kueue.ClusterQueue, leader Leader) bool {
	before := *q
	spec := object.Spec.DeepCopy()
	q.IsTerminating = !object.DeletionTimestamp.IsZero()
	q.Stop = ptr.Deref(spec.StopPolicy, kueue.None)
	if leader == Kueue {
		q.Takeover = takeoverOf(object, q.Stop)
		if q.Takeover.IsAsked() {
			q.Stop = q.Takeover.Stop()
		}
	} else {
		q.ignored = ignoredAnnotations(object)
	}
	q.Checks = ptr.Deref(spec.AdmissionChecksStrategy, kueue.AdmissionChecksStrategy{}).AdmissionChecks
	q.Policy = object.Annotations[apis.StageAdmissionAnnotation]
	q.adoptSpans(object)
	q.Cohort, q.Weight = string(spec.CohortName), WeightOf(spec.FairSharing)
	q.Groups = spec.ResourceGroups
	q.Fungibility = flavor.NewFungibility(spec.FlavorFungibility)
	q.Preemption = ptr.Deref(spec.Preemption, kueue.ClusterQueuePreemption{})
	q.IsUsageBased = spec.AdmissionScope != nil && spec.AdmissionScope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing
	q.isConcurrent = spec.ConcurrentAdmissionPolicy != nil
	q.selectorProblem = ""
	selector, err := metav1.LabelSelectorAsSelector(spec.NamespaceSelector)
	if err != nil {
		selector, q.selectorProblem = labels.Nothing(), err.Error()
	}
	q.Selector = selector
	q.Strategy = queue.BestEffort
	if spec.QueueingStrategy == kueue.StrictFIFO {
		q.Strategy = queue.Strict
	}
	return !q.saysTheSameAs(&before)
}

// adoptSpans reads the annotations with a duration.
func (q *Spec) adoptSpans(object *kueue.ClusterQueue) {
	var remarks [4]string
	q.CoStart, remarks[0] = coStartOf(object)
	q.Reservation, remarks[1] = reservationOf(object)
	q.MinimumRuntime, remarks[2] = spanOf(object, apis.MinimumRuntimeAnnotation, "")
	q.PreemptionNotice, remarks[3] = spanOf(object, apis.PreemptionNoticeAnnotation, "")
	q.annotationRemarks = slices.DeleteFunc(remarks[:], func(remark string) bool { return remark == "" })
}

func (q *Spec) saysTheSameAs(o *Spec) bool {
	facts := func(q *Spec) string {
		return fmt.Sprintln(q.Takeover, q.IsTerminating, q.Stop, q.Strategy, q.Policy, ptr.Deref(q.CoStart, CoStart{}), q.CoStart == nil, ptr.Deref(q.Reservation, Reservation{}), q.Reservation == nil, ptr.Deref(q.MinimumRuntime, -1), ptr.Deref(q.PreemptionNotice, -1), q.annotationRemarks, q.Cohort, q.Weight, q.Fungibility, q.Selector, q.selectorProblem, q.Checks, q.IsUsageBased, q.isConcurrent, q.ignored)
	}
	return facts(q) == facts(o) && SameGroups(q.Groups, o.Groups) && equality.Semantic.DeepEqual(q.Preemption, o.Preemption)
}

// WeightOf returns the weight, by default 1.
func WeightOf(f *kueue.FairSharing) float64 {
	if f == nil || f.Weight == nil {
		return 1
	}
	return max(0, f.Weight.AsApproximateFloat64())
}

// SameGroups reports whether two lists of resource groups are equal.
func SameGroups(a, b []kueue.ResourceGroup) bool { return equality.Semantic.DeepEqual(a, b) }
