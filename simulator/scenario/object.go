package scenario

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// A declaration describes the lines that make an object of one kind.
type declaration struct {
	kind Kind
	// text describes the effect of such a line.
	text string
	// empty is an object without fields.
	empty metav1.Object
}

// declarations returns one declaration for each kind, in the order in which a reader should learn them.
func declarations() []declaration {
	return []declaration{
		{Flavor, "makes a ResourceFlavor. A quota that names no flavor is of the flavor `default`, which need not be declared.", &kueue.ResourceFlavor{}},
		{Cohort, "makes a Cohort. One without quota and parent need not be declared.", &kueue.Cohort{}},
		{Queue, "makes a ClusterQueue, and a LocalQueue of the same name that leads to it.", &kueue.ClusterQueue{}},
		{LocalQueue, "makes one more LocalQueue.", &kueue.LocalQueue{}},
		{Namespace, "gives a Namespace labels. One without labels need not be declared.", &corev1.Namespace{}},
		{AdmissionCheck, "makes an AdmissionCheck, which queues name in their field checks.", &kueue.AdmissionCheck{}},
		{PriorityClass, "makes a WorkloadPriorityClass.", &kueue.WorkloadPriorityClass{}},
		{LimitRange, "makes a LimitRange: what the containers of a namespace have to ask for, or its pods with type=Pod.", &corev1.LimitRange{}},
		{RuntimeClass, "makes a RuntimeClass.", &nodev1.RuntimeClass{}},
		{DeviceClass, "makes a DeviceClass. The setting devices=NAME:RESOURCE maps it to a resource of quota.", &resourcev1.DeviceClass{}},
	}
}

// options returns the fields that change an object, and the resource groups that fields about its quota change, if it has any.
func options(object metav1.Object) ([]Option, *[]kueue.ResourceGroup) {
	switch o := object.(type) {
	case *kueue.ResourceFlavor:
		return flavorOptions(o), nil
	case *kueue.Cohort:
		return cohortOptions(o), &o.Spec.ResourceGroups
	case *kueue.ClusterQueue:
		return queueOptions(o), &o.Spec.ResourceGroups
	case *kueue.LocalQueue:
		return localQueueOptions(o), nil
	case *corev1.Namespace:
		return []Option{{"labels", "KEY=VALUE,...", "Its labels, which the selector of a queue may ask for.", into(&o.Labels, labels)}}, nil
	case *kueue.AdmissionCheck:
		return admissionCheckOptions(o), nil
	case *kueue.WorkloadPriorityClass:
		return []Option{{"value", "NUMBER", "The priority of what is submitted with this class.", into(&o.Value, number)}}, nil
	case *corev1.LimitRange:
		return limitRangeOptions(o), nil
	case *nodev1.RuntimeClass:
		return runtimeClassOptions(o), nil
	case *resourcev1.DeviceClass:
		return deviceClassOptions(o), nil
	case *kueue.Workload:
		return workloadOptions(o), nil
	}
	return nil, nil
}

// Apply does what the fields of a line say to an object: one of the kind that the line declares or changes, or the quota Workload of a set
// line, where it leaves out the gates.
func (f Fields) Apply(object metav1.Object) error {
	all, groups := options(object)
	if groups == nil {
		return f.set(all)
	}
	var quotas, others Fields
	for _, field := range f {
		if _, _, isQuota := field.quotaKey(); isQuota {
			quotas = append(quotas, field)
		} else {
			others = append(others, field)
		}
	}
	if err := others.set(all); err != nil {
		return err
	}
	return quotas.applyQuotas(groups)
}

// The following options occur in several kinds.

func namespace(target *string) Option {
	return Option{"namespace", "NAME", "Where it is; `default` if left out.", into(target, name)}
}

func stopPolicy(target **kueue.StopPolicy) Option {
	return choice("stop", "None|Hold|HoldAndDrain", "Its stopPolicy.", func(v kueue.StopPolicy) { *target = &v })
}

func weight(target **kueue.FairSharing) Option {
	return Option{"weight", "NUMBER", "Its weight in fair sharing.", then(quantity, func(v resource.Quantity) {
		*target = &kueue.FairSharing{Weight: &v}
	})}
}

func flavorOptions(o *kueue.ResourceFlavor) []Option {
	return []Option{
		{"labels", "KEY=VALUE,...", "Labels of its nodes.", into(&o.Spec.NodeLabels, labels)},
		{"taints", "KEY=VALUE:EFFECT,...", "Taints of its nodes, which pods must tolerate.", into(&o.Spec.NodeTaints, list(taint))},
		{"tolerations", "KEY=VALUE:EFFECT,...", "Tolerations that pods get with the flavor.", into(&o.Spec.Tolerations, list(toleration))},
	}
}

func localQueueOptions(o *kueue.LocalQueue) []Option {
	return []Option{
		{"queue", "NAME", "The ClusterQueue that it leads to.", into(&o.Spec.ClusterQueue, name)},
		namespace(&o.Namespace),
		stopPolicy(&o.Spec.StopPolicy),
		weight(&o.Spec.FairSharing),
	}
}

func admissionCheckOptions(o *kueue.AdmissionCheck) []Option {
	return []Option{
		{"active", "true|false", "Whether its controller is running; true if left out.", then(truth, func(active bool) {
			c := metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", Message: "the controller is running"}
			if !active {
				c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Inactive", "the controller is not running"
			}
			o.Status.Conditions = []metav1.Condition{c}
		})},
	}
}

func cohortOptions(o *kueue.Cohort) []Option {
	return []Option{
		{"parent", "NAME", "The Cohort above it.", into(&o.Spec.ParentName, name)},
		weight(&o.Spec.FairSharing),
	}
}

// NoNamespace is the value of the field namespace of a queue line without a LocalQueue.
const NoNamespace = "none"

func queueOptions(o *kueue.ClusterQueue) []Option {
	spec := &o.Spec
	all := []Option{
		{"cohort", "NAME", "The Cohort that it is in.", into(&spec.CohortName, name)},
		choice("strategy", "StrictFIFO|BestEffortFIFO", "Its queueingStrategy; BestEffortFIFO if left out.", func(v kueue.QueueingStrategy) {
			spec.QueueingStrategy = v
		}),
		choice("policy", "Safe|Reserve|Greedy", "Its stage-admission policy, as annotation tranche.dev/stage-admission.", func(v string) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, apis.StageAdmissionAnnotation, v)
		}),
		{"costart", "TIME|Never", "How long co-start reserves quota, as annotation tranche.dev/co-start-reserve-for; `Never` disables co-start.", then(span, func(v string) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, apis.CoStartAnnotation, v)
		})},
		{"minimum-runtime", "TIME", "How long a stage runs here before it may be preempted, as annotation tranche.dev/minimum-runtime.", then(duration, func(d time.Duration) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, apis.MinimumRuntimeAnnotation, d.String())
		})},
		{"reserve-after", "TIME|Never", "How long a stage waits before quota is reserved for it, as annotation tranche.dev/reserve-after.", then(span, func(v string) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, apis.ReserveAfterAnnotation, v)
		})},
		{"preemption-notice", "TIME", "How long a stage that is preempted here goes on running, as annotation tranche.dev/preemption-notice.", then(duration, func(d time.Duration) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, apis.PreemptionNoticeAnnotation, d.String())
		})},
		stopPolicy(&spec.StopPolicy),
		{
			"checks", "NAME,...", "Its AdmissionChecks. NAME@FLAVOR only asks for the check where that flavor is taken.",
			into(&spec.AdmissionChecksStrategy, checkRules),
		},
		weight(&spec.FairSharing),
		{
			"selector", "KEY=VALUE,...", "The labels of namespaces that it admits from; all namespaces if left out.",
			then(labels, func(v map[string]string) { spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: v} }),
		},
		choice("scope", "UsageBasedAdmissionFairSharing|NoAdmissionFairSharing", "Its admissionScope.", func(v kueue.AdmissionMode) {
			spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: v}
		}),
		// The simulator reads this field: it is about another object.
		{"namespace", "NAME|none", "Where its LocalQueue is made; `default` if left out. `none` makes no LocalQueue.", into(new(string), name)},
	}
	return append(append(all, preemptionOptions(spec)...), fungibilityOptions(spec)...)
}

func preemptionOptions(spec *kueue.ClusterQueueSpec) []Option {
	preemption := func() *kueue.ClusterQueuePreemption {
		if spec.Preemption == nil {
			spec.Preemption = &kueue.ClusterQueuePreemption{
				WithinClusterQueue: kueue.PreemptionPolicyNever, ReclaimWithinCohort: kueue.PreemptionPolicyNever,
			}
		}
		return spec.Preemption
	}
	return []Option{
		choice("within", "Never|LowerPriority|LowerOrNewerEqualPriority", "preemption.withinClusterQueue.", func(v kueue.PreemptionPolicy) {
			preemption().WithinClusterQueue = v
		}),
		choice("reclaim", "Never|LowerPriority|Any", "preemption.reclaimWithinCohort.", func(v kueue.PreemptionPolicy) {
			preemption().ReclaimWithinCohort = v
		}),
		{
			"borrow-within", "Never|LowerPriority|LowerPriority:NUMBER", "preemption.borrowWithinCohort; the number is its maxPriorityThreshold.",
			then(borrowWithin, func(v *kueue.BorrowWithinCohort) { preemption().BorrowWithinCohort = v }),
		},
	}
}

func borrowWithin(text string) (*kueue.BorrowWithinCohort, error) {
	word, threshold, hasThreshold := strings.Cut(text, ":")
	policy, err := oneOf[kueue.BorrowWithinCohortPolicy](word, "Never|LowerPriority")
	if err != nil {
		return nil, err
	}
	b := &kueue.BorrowWithinCohort{Policy: policy}
	if hasThreshold {
		err = intoPointer(&b.MaxPriorityThreshold, number)(threshold)
	}
	return b, err
}

func fungibilityOptions(spec *kueue.ClusterQueueSpec) []Option {
	fungibility := func() *kueue.FlavorFungibility {
		if spec.FlavorFungibility == nil {
			spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: kueue.MayStopSearch, WhenCanPreempt: kueue.TryNextFlavor}
		}
		return spec.FlavorFungibility
	}
	return []Option{
		choice("when-can-borrow", "MayStopSearch|TryNextFlavor", "flavorFungibility.whenCanBorrow.", func(v kueue.FlavorFungibilityPolicy) {
			fungibility().WhenCanBorrow = v
		}),
		choice("when-can-preempt", "MayStopSearch|TryNextFlavor", "flavorFungibility.whenCanPreempt.", func(v kueue.FlavorFungibilityPolicy) {
			fungibility().WhenCanPreempt = v
		}),
		choice("preference", "BorrowingOverPreemption|PreemptionOverBorrowing", "flavorFungibility.preference.", func(v kueue.FlavorFungibilityPreference) {
			fungibility().Preference = &v
		}),
	}
}

func checkRules(text string) (*kueue.AdmissionChecksStrategy, error) {
	strategy := &kueue.AdmissionChecksStrategy{}
	at := map[string]int{}
	for part := range strings.SplitSeq(text, ",") {
		check, flavor, onFlavor := strings.Cut(part, "@")
		if err := checkName(check); err != nil {
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
			if err := checkName(flavor); err != nil {
				return nil, err
			}
			rule.OnFlavors = append(rule.OnFlavors, kueue.ResourceFlavorReference(flavor))
		}
	}
	return strategy, nil
}
