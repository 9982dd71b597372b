package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// A Setting is a setting of a queue in words.
type Setting struct {
	// Field is a path in the object, or an annotation, and Value what it has, or has by default.
	Field string `json:"field"`
	Value string `json:"value"`
	// Text is what that means.
	Text string `json:"text"`
}

// ClusterQueueSettings returns the settings of a ClusterQueue in words. Those of its quota are in its bars.
func ClusterQueueSettings(q *kueue.ClusterQueue) []Setting {
	spec := &q.Spec
	return slices.Concat(
		[]Setting{cohortSetting(spec), namespaceSetting(spec), strategySetting(spec), stopSetting(spec.StopPolicy)},
		preemptionSettings(spec), fungibilitySettings(spec), fairSharingSettings(spec), checkSettings(spec), clusterQueueAnnotations(q),
	)
}

// LocalQueueSettings returns the settings of a LocalQueue in words.
func LocalQueueSettings(q *kueue.LocalQueue) []Setting {
	all := []Setting{
		{"spec.clusterQueue", string(q.Spec.ClusterQueue), "The ClusterQueue from which its JobSets and Jobs get quota."},
		stopSetting(q.Spec.StopPolicy),
	}
	if q.Spec.FairSharing != nil {
		all = append(all, Setting{"spec.fairSharing.weight", weightText(q.Spec.FairSharing), "With admission fair sharing, past usage counts divided by this weight."})
	}
	return append(all, annotations(q.Annotations, []annotation{
		{apis.GangProviderAnnotation, "", "The scheduler that places the gangs of its JobSets."},
	})...)
}

// meaning returns a setting whose values have meanings. An empty value stands for the default.
func meaning[T ~string](field string, value, byDefault T, texts map[T]string) Setting {
	value = cmp.Or(value, byDefault)
	return Setting{field, string(value), texts[value]}
}

func cohortSetting(spec *kueue.ClusterQueueSpec) Setting {
	if spec.CohortName == "" {
		return Setting{"spec.cohortName", "", "It is in no Cohort: it borrows and lends no quota."}
	}
	return Setting{"spec.cohortName", string(spec.CohortName), "It borrows and lends quota in the tree of this Cohort."}
}

func namespaceSetting(spec *kueue.ClusterQueueSpec) Setting {
	const field = "spec.namespaceSelector"
	switch {
	case spec.NamespaceSelector == nil:
		return Setting{field, "", "No namespace may use it."}
	case len(spec.NamespaceSelector.MatchLabels)+len(spec.NamespaceSelector.MatchExpressions) == 0:
		return Setting{field, "{}", "All namespaces may use it."}
	}
	return Setting{field, metav1.FormatLabelSelector(spec.NamespaceSelector), "Namespaces with these labels may use it."}
}

func strategySetting(spec *kueue.ClusterQueueSpec) Setting {
	return meaning("spec.queueingStrategy", spec.QueueingStrategy, kueue.BestEffortFIFO, map[kueue.QueueingStrategy]string{
		kueue.BestEffortFIFO: "A quota Workload that does not fit does not block those behind it.",
		kueue.StrictFIFO:     "A quota Workload that does not fit blocks all those behind it.",
	})
}

func stopSetting(p *kueue.StopPolicy) Setting {
	return meaning("spec.stopPolicy", ptr.Deref(p, kueue.None), kueue.None, map[kueue.StopPolicy]string{
		kueue.None:         "It admits.",
		kueue.Hold:         "It admits nothing. What is admitted runs on; reservations of quota are canceled.",
		kueue.HoldAndDrain: "It admits nothing, and what is admitted is evicted.",
	})
}

func preemptionSettings(spec *kueue.ClusterQueueSpec) []Setting {
	p := ptr.Deref(spec.Preemption, kueue.ClusterQueuePreemption{})
	all := []Setting{
		meaning("spec.preemption.withinClusterQueue", p.WithinClusterQueue, kueue.PreemptionPolicyNever, map[kueue.PreemptionPolicy]string{
			kueue.PreemptionPolicyNever:                     "Its pending quota Workloads preempt none of its own.",
			kueue.PreemptionPolicyLowerPriority:             "Its pending quota Workloads preempt those of it that have a lower priority.",
			kueue.PreemptionPolicyLowerOrNewerEqualPriority: "Its pending quota Workloads preempt those of it that have a lower priority, or the same priority and are newer.",
		}),
		meaning("spec.preemption.reclaimWithinCohort", p.ReclaimWithinCohort, kueue.PreemptionPolicyNever, map[kueue.PreemptionPolicy]string{
			kueue.PreemptionPolicyNever:         "It does not take back quota that other ClusterQueues of its Cohort have borrowed.",
			kueue.PreemptionPolicyLowerPriority: "It takes back quota that other ClusterQueues of its Cohort have borrowed, from quota Workloads of a lower priority.",
			kueue.PreemptionPolicyAny:           "It takes back quota that other ClusterQueues of its Cohort have borrowed, from quota Workloads of any priority.",
		}),
	}
	borrow := ptr.Deref(p.BorrowWithinCohort, kueue.BorrowWithinCohort{})
	all = append(all, meaning("spec.preemption.borrowWithinCohort.policy", borrow.Policy, kueue.BorrowWithinCohortPolicyNever, map[kueue.BorrowWithinCohortPolicy]string{
		kueue.BorrowWithinCohortPolicyNever:         "A quota Workload that needs to borrow preempts none of other ClusterQueues.",
		kueue.BorrowWithinCohortPolicyLowerPriority: "A quota Workload that needs to borrow preempts those of other ClusterQueues that borrow and have a lower priority.",
	}))
	if borrow.MaxPriorityThreshold != nil {
		all = append(all, Setting{"spec.preemption.borrowWithinCohort.maxPriorityThreshold", fmt.Sprint(*borrow.MaxPriorityThreshold), "The highest priority of what is preempted by a quota Workload that needs to borrow."})
	}
	return all
}

func fungibilitySettings(spec *kueue.ClusterQueueSpec) []Setting {
	f := ptr.Deref(spec.FlavorFungibility, kueue.FlavorFungibility{})
	all := []Setting{
		meaning("spec.flavorFungibility.whenCanBorrow", f.WhenCanBorrow, kueue.MayStopSearch, map[kueue.FlavorFungibilityPolicy]string{
			kueue.MayStopSearch: "A flavor in which a stage fits by borrowing is taken.",
			kueue.TryNextFlavor: "Before a stage borrows in a flavor, the next flavors are tried.",
		}),
		meaning("spec.flavorFungibility.whenCanPreempt", f.WhenCanPreempt, kueue.TryNextFlavor, map[kueue.FlavorFungibilityPolicy]string{
			kueue.MayStopSearch: "A flavor in which a stage fits by preemption is taken.",
			kueue.TryNextFlavor: "Before a stage preempts in a flavor, the next flavors are tried.",
		}),
	}
	if f.Preference != nil {
		all = append(all, meaning("spec.flavorFungibility.preference", *f.Preference, kueue.BorrowingOverPreemption, map[kueue.FlavorFungibilityPreference]string{
			kueue.BorrowingOverPreemption: "If every flavor needs one of them, borrowing is preferred to preemption.",
			kueue.PreemptionOverBorrowing: "If every flavor needs one of them, preemption is preferred to borrowing.",
		}))
	}
	return all
}

func fairSharingSettings(spec *kueue.ClusterQueueSpec) []Setting {
	all := []Setting{{"spec.fairSharing.weight", weightText(spec.FairSharing), "With fair sharing, its share of borrowed quota counts divided by this weight."}}
	if s := spec.AdmissionScope; s != nil {
		all = append(all, meaning("spec.admissionScope.admissionMode", s.AdmissionMode, kueue.NoAdmissionFairSharing, map[kueue.AdmissionMode]string{
			kueue.UsageBasedAdmissionFairSharing: "LocalQueues with less past usage come first.",
			kueue.NoAdmissionFairSharing:         "The past usage of LocalQueues does not count.",
		}))
	}
	return all
}

func weightText(f *kueue.FairSharing) string {
	if f == nil || f.Weight == nil {
		return "1"
	}
	return f.Weight.String()
}

func checkSettings(spec *kueue.ClusterQueueSpec) []Setting {
	if spec.AdmissionChecksStrategy == nil {
		return nil
	}
	var all []Setting
	for i := range spec.AdmissionChecksStrategy.AdmissionChecks {
		check := &spec.AdmissionChecksStrategy.AdmissionChecks[i]
		text := "What reserves quota is admitted when this AdmissionCheck is Ready."
		if len(check.OnFlavors) > 0 {
			var names []string
			for _, name := range check.OnFlavors {
				names = append(names, string(name))
			}
			text = "What reserves quota of " + strings.Join(names, ", ") + " is admitted when this AdmissionCheck is Ready."
		}
		all = append(all, Setting{"spec.admissionChecksStrategy.admissionChecks", string(check.Name), text})
	}
	return all
}

// An annotation sets something.
type annotation struct{ name, byDefault, text string }

// annotations returns the settings of annotations that are set, or have a default.
func annotations(of map[string]string, known []annotation) []Setting {
	var all []Setting
	for _, a := range known {
		if value, isSet := of[a.name]; isSet || a.byDefault != "" {
			all = append(all, Setting{"annotation " + a.name, cmp.Or(value, a.byDefault), a.text})
		}
	}
	return all
}

// fromConfiguration is the value of a setting that the manager's configuration has.
const fromConfiguration = "as configured"

func clusterQueueAnnotations(q *kueue.ClusterQueue) []Setting {
	policy := map[string]string{
		string(configapi.StageAdmissionSafe):    "A stage is admitted if it fits, and afterwards every JobSet that holds quota can still finish in some order.",
		string(configapi.StageAdmissionReserve): "A stage is admitted if the most that its JobSet can hold at once fits, which is then reserved.",
		string(configapi.StageAdmissionGreedy):  "A stage is admitted if it fits.",
		fromConfiguration:                       "The stage-admission policy is stageAdmission of the manager's configuration.",
	}
	stage := cmp.Or(q.Annotations[apis.StageAdmissionAnnotation], fromConfiguration)
	all := []Setting{{"annotation " + apis.StageAdmissionAnnotation, stage, policy[stage]}}
	return append(all, annotations(q.Annotations, []annotation{
		{apis.MinimumRuntimeAnnotation, fromConfiguration, "How long a stage runs before it may be preempted; preemption.minimumRuntime of the configuration."},
		{apis.PreemptionNoticeAnnotation, fromConfiguration, "How long a stage runs on after notice of its preemption; preemption.notice of the configuration."},
		{apis.ReserveAfterAnnotation, fromConfiguration, "After this time quota is reserved for a stage that waits; reservation.after of the configuration."},
		{apis.CoStartAnnotation, fromConfiguration, "How long quota is reserved for stages that start together; coStart.reserveFor of the configuration."},
		{apis.EngineAnnotation, "", "The engine that admits in its cohort tree beside Kueue."},
		{apis.StopPolicyAnnotation, "", "The stop policy where Tranche admits beside Kueue."},
	})...)
}
