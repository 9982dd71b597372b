package scenario

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

// ApplyFlavor does what the fields of a flavor line say to a ResourceFlavor.
func (f Fields) ApplyFlavor(object *kueue.ResourceFlavor) error {
	return apply(object, f, flavorOptions())
}

// ApplyNamespace does what the fields of a namespace line say to the labels of a Namespace.
func (f Fields) ApplyNamespace(labels *map[string]string) error {
	return apply(labels, f, namespaceOptions())
}

// ApplyLocalQueue does what the fields of a localqueue line say to a LocalQueue.
func (f Fields) ApplyLocalQueue(object *kueue.LocalQueue) error {
	return apply(object, f, localQueueOptions())
}

// ApplyAdmissionCheck does what the fields of an admissioncheck line say to an AdmissionCheck.
func (f Fields) ApplyAdmissionCheck(object *kueue.AdmissionCheck) error {
	return apply(object, f, admissionCheckOptions())
}

// ApplyPriorityClass does what the fields of a priorityclass line say to a WorkloadPriorityClass.
func (f Fields) ApplyPriorityClass(object *kueue.WorkloadPriorityClass) error {
	return apply(object, f, priorityClassOptions())
}

// ApplyCohort does what the fields of a cohort line say to a Cohort.
func (f Fields) ApplyCohort(object *kueue.Cohort) error {
	quotas, others := f.quotas()
	if err := apply(object, others, cohortOptions()); err != nil {
		return err
	}
	return quotas.applyTo(&object.Spec.ResourceGroups)
}

// ApplyClusterQueue does what the fields of a queue line say to a ClusterQueue.
func (f Fields) ApplyClusterQueue(object *kueue.ClusterQueue) error {
	quotas, others := f.quotas()
	if err := apply(object, others, queueOptions()); err != nil {
		return err
	}
	return quotas.applyTo(&object.Spec.ResourceGroups)
}

func flavorOptions() []option[kueue.ResourceFlavor] {
	return []option[kueue.ResourceFlavor]{
		{
			Option{"labels", "KEY=VALUE,...", "Labels of its nodes."},
			into(labels, func(o *kueue.ResourceFlavor, v map[string]string) { o.Spec.NodeLabels = v }),
		},
		{
			Option{"taints", "KEY=VALUE:EFFECT,...", "Taints of its nodes, which pods must tolerate."},
			func(o *kueue.ResourceFlavor, text string) (err error) {
				o.Spec.NodeTaints, err = taints(text)
				return err
			},
		},
		{
			Option{"tolerations", "KEY=VALUE:EFFECT,...", "Tolerations that pods get with the flavor."},
			func(o *kueue.ResourceFlavor, text string) (err error) {
				o.Spec.Tolerations, err = tolerations(text)
				return err
			},
		},
	}
}

func namespaceOptions() []option[map[string]string] {
	return []option[map[string]string]{{
		Option{"labels", "KEY=VALUE,...", "Its labels, which the selector of a queue may ask for."},
		into(labels, func(o *map[string]string, v map[string]string) { *o = v }),
	}}
}

func localQueueOptions() []option[kueue.LocalQueue] {
	return []option[kueue.LocalQueue]{
		{
			Option{"queue", "NAME", "The ClusterQueue that it leads to."},
			into(name, func(o *kueue.LocalQueue, v string) { o.Spec.ClusterQueue = kueue.ClusterQueueReference(v) }),
		},
		{
			Option{"namespace", "NAME", "Where it is; `default` if left out."},
			into(name, func(o *kueue.LocalQueue, v string) { o.Namespace = v }),
		},
		{
			Option{"stop", "None|Hold|HoldAndDrain", "Its stopPolicy."},
			into(among(kueue.None, kueue.Hold, kueue.HoldAndDrain), func(o *kueue.LocalQueue, v kueue.StopPolicy) { o.Spec.StopPolicy = &v }),
		},
		{
			Option{"weight", "NUMBER", "Its weight in fair sharing."},
			into(quantity, func(o *kueue.LocalQueue, v resource.Quantity) { o.Spec.FairSharing = &kueue.FairSharing{Weight: &v} }),
		},
	}
}

func admissionCheckOptions() []option[kueue.AdmissionCheck] {
	return []option[kueue.AdmissionCheck]{{
		Option{"active", "true|false", "Whether its controller is running; true if left out."},
		into(truth, func(o *kueue.AdmissionCheck, active bool) {
			c := metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", Message: "the controller is running"}
			if !active {
				c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Inactive", "the controller is not running"
			}
			o.Status.Conditions = []metav1.Condition{c}
		}),
	}}
}

func priorityClassOptions() []option[kueue.WorkloadPriorityClass] {
	return []option[kueue.WorkloadPriorityClass]{{
		Option{"value", "NUMBER", "The priority of what is submitted with this class."},
		into(number, func(o *kueue.WorkloadPriorityClass, v int32) { o.Value = v }),
	}}
}

func cohortOptions() []option[kueue.Cohort] {
	return []option[kueue.Cohort]{
		{
			Option{"parent", "NAME", "The Cohort above it."},
			into(name, func(o *kueue.Cohort, v string) { o.Spec.ParentName = kueue.CohortReference(v) }),
		},
		{
			Option{"weight", "NUMBER", "Its weight in fair sharing."},
			into(quantity, func(o *kueue.Cohort, v resource.Quantity) { o.Spec.FairSharing = &kueue.FairSharing{Weight: &v} }),
		},
	}
}

// NoNamespace is the value of the field namespace of a queue line without a LocalQueue.
const NoNamespace = "none"

func queueOptions() []option[kueue.ClusterQueue] {
	type queue = kueue.ClusterQueue
	all := []option[queue]{
		{
			Option{"cohort", "NAME", "The Cohort that it is in."},
			into(name, func(o *queue, v string) { o.Spec.CohortName = kueue.CohortReference(v) }),
		},
		{
			Option{"strategy", "StrictFIFO|BestEffortFIFO", "Its queueingStrategy; BestEffortFIFO if left out."},
			into(among(kueue.StrictFIFO, kueue.BestEffortFIFO), func(o *queue, v kueue.QueueingStrategy) { o.Spec.QueueingStrategy = v }),
		},
		{
			Option{"policy", "Safe|Reserve|Greedy", "Its stage-admission policy, as annotation tranche.dev/stage-admission."},
			into(among(admission.Safe, admission.Reserve, admission.Greedy), func(o *queue, v string) {
				metav1.SetMetaDataAnnotation(&o.ObjectMeta, apis.StageAdmissionAnnotation, v)
			}),
		},
		{
			Option{"stop", "None|Hold|HoldAndDrain", "Its stopPolicy."},
			into(among(kueue.None, kueue.Hold, kueue.HoldAndDrain), func(o *queue, v kueue.StopPolicy) { o.Spec.StopPolicy = &v }),
		},
		{
			Option{"checks", "NAME,...", "Its AdmissionChecks. NAME@FLAVOR only asks for the check where that flavor is taken."},
			func(o *queue, text string) (err error) {
				o.Spec.AdmissionChecksStrategy, err = checkRules(text)
				return err
			},
		},
		{
			Option{"weight", "NUMBER", "Its weight in fair sharing."},
			into(quantity, func(o *queue, v resource.Quantity) { o.Spec.FairSharing = &kueue.FairSharing{Weight: &v} }),
		},
		{
			Option{"selector", "KEY=VALUE,...", "The labels of namespaces that it admits from; all namespaces if left out."},
			into(labels, func(o *queue, v map[string]string) { o.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: v} }),
		},
		{
			Option{"scope", "UsageBasedAdmissionFairSharing|NoAdmissionFairSharing", "Its admissionScope."},
			into(among(kueue.UsageBasedAdmissionFairSharing, kueue.NoAdmissionFairSharing), func(o *queue, v kueue.AdmissionMode) {
				o.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: v}
			}),
		},
		{
			Option{"namespace", "NAME|none", "Where its LocalQueue is made; `default` if left out. `none` makes no LocalQueue."},
			func(_ *queue, text string) error {
				_, err := name(text)
				return err
			},
		},
	}
	return append(append(all, preemptionOptions()...), fungibilityOptions()...)
}

func preemptionOptions() []option[kueue.ClusterQueue] {
	type queue = kueue.ClusterQueue
	preemption := func(o *queue) *kueue.ClusterQueuePreemption {
		if o.Spec.Preemption == nil {
			o.Spec.Preemption = &kueue.ClusterQueuePreemption{
				WithinClusterQueue: kueue.PreemptionPolicyNever, ReclaimWithinCohort: kueue.PreemptionPolicyNever,
			}
		}
		return o.Spec.Preemption
	}
	return []option[queue]{
		{
			Option{"within", "Never|LowerPriority|LowerOrNewerEqualPriority", "preemption.withinClusterQueue."},
			into(among(kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority),
				func(o *queue, v kueue.PreemptionPolicy) { preemption(o).WithinClusterQueue = v }),
		},
		{
			Option{"reclaim", "Never|LowerPriority|Any", "preemption.reclaimWithinCohort."},
			into(among(kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny),
				func(o *queue, v kueue.PreemptionPolicy) { preemption(o).ReclaimWithinCohort = v }),
		},
		{
			Option{"borrow-within", "Never|LowerPriority|LowerPriority:NUMBER", "preemption.borrowWithinCohort; the number is its maxPriorityThreshold."},
			into(borrowWithin, func(o *queue, v *kueue.BorrowWithinCohort) { preemption(o).BorrowWithinCohort = v }),
		},
	}
}

func borrowWithin(text string) (*kueue.BorrowWithinCohort, error) {
	word, threshold, hasThreshold := strings.Cut(text, ":")
	policy, err := oneOf(word, kueue.BorrowWithinCohortPolicyNever, kueue.BorrowWithinCohortPolicyLowerPriority)
	if err != nil {
		return nil, err
	}
	b := &kueue.BorrowWithinCohort{Policy: policy}
	if hasThreshold {
		n, err := number(threshold)
		if err != nil {
			return nil, err
		}
		b.MaxPriorityThreshold = &n
	}
	return b, nil
}

func fungibilityOptions() []option[kueue.ClusterQueue] {
	type queue = kueue.ClusterQueue
	fungibility := func(o *queue) *kueue.FlavorFungibility {
		if o.Spec.FlavorFungibility == nil {
			o.Spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: kueue.MayStopSearch, WhenCanPreempt: kueue.TryNextFlavor}
		}
		return o.Spec.FlavorFungibility
	}
	return []option[queue]{
		{
			Option{"when-can-borrow", "MayStopSearch|TryNextFlavor", "flavorFungibility.whenCanBorrow."},
			into(among(kueue.MayStopSearch, kueue.TryNextFlavor), func(o *queue, v kueue.FlavorFungibilityPolicy) { fungibility(o).WhenCanBorrow = v }),
		},
		{
			Option{"when-can-preempt", "MayStopSearch|TryNextFlavor", "flavorFungibility.whenCanPreempt."},
			into(among(kueue.MayStopSearch, kueue.TryNextFlavor), func(o *queue, v kueue.FlavorFungibilityPolicy) { fungibility(o).WhenCanPreempt = v }),
		},
		{
			Option{"preference", "BorrowingOverPreemption|PreemptionOverBorrowing", "flavorFungibility.preference."},
			into(among(kueue.BorrowingOverPreemption, kueue.PreemptionOverBorrowing),
				func(o *queue, v kueue.FlavorFungibilityPreference) { fungibility(o).Preference = &v }),
		},
	}
}

func checkRules(text string) (*kueue.AdmissionChecksStrategy, error) {
	strategy := &kueue.AdmissionChecksStrategy{}
	at := map[string]int{}
	for part := range strings.SplitSeq(text, ",") {
		check, flavor, onFlavor := strings.Cut(part, "@")
		if _, err := name(check); err != nil {
			return nil, err
		}
		i, known := at[check]
		if !known {
			i = len(strategy.AdmissionChecks)
			at[check] = i
			strategy.AdmissionChecks = append(strategy.AdmissionChecks, kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(check)})
		}
		rule := &strategy.AdmissionChecks[i]
		if known && (!onFlavor || len(rule.OnFlavors) == 0) {
			return nil, fmt.Errorf("%q is there twice", check)
		}
		if onFlavor {
			if _, err := name(flavor); err != nil {
				return nil, err
			}
			rule.OnFlavors = append(rule.OnFlavors, kueue.ResourceFlavorReference(flavor))
		}
	}
	return strategy, nil
}
