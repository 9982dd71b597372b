package dashboard_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/dashboard"
)

// expectSettings compares some settings, and requires a meaning of each.
func expectSettings(t *testing.T, settings []dashboard.Setting, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, s := range settings {
		got[s.Field] = s.Value
		if s.Text == "" {
			t.Errorf("%s %q has no meaning", s.Field, s.Value)
		}
	}
	for field, value := range want {
		if actual, isShown := got[field]; !isShown || actual != value {
			t.Errorf("%s is %q, want %q", field, actual, value)
		}
	}
}

// Every setting is shown with its default.
func TestDefaultSettings(t *testing.T) {
	expectSettings(t, dashboard.ClusterQueueSettings(&kueue.ClusterQueue{}), map[string]string{
		"spec.cohortName": "", "spec.namespaceSelector": "", "spec.queueingStrategy": "BestEffortFIFO", "spec.stopPolicy": "None",
		"spec.preemption.withinClusterQueue": "Never", "spec.preemption.reclaimWithinCohort": "Never", "spec.preemption.borrowWithinCohort.policy": "Never",
		"spec.flavorFungibility.whenCanBorrow": "MayStopSearch", "spec.flavorFungibility.whenCanPreempt": "TryNextFlavor", "spec.fairSharing.weight": "1",
		"annotation tranche.dev/stage-admission": "as configured", "annotation tranche.dev/minimum-runtime": "as configured",
	})
	expectSettings(t, dashboard.LocalQueueSettings(&kueue.LocalQueue{Spec: kueue.LocalQueueSpec{ClusterQueue: "q"}}), map[string]string{
		"spec.clusterQueue": "q", "spec.stopPolicy": "None",
	})
}

// Every value has a meaning.
func TestSettings(t *testing.T) {
	q := &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			apis.MinimumRuntimeAnnotation: "30m", apis.PreemptionNoticeAnnotation: "2m", apis.ReserveAfterAnnotation: "Never", apis.CoStartAnnotation: "10m",
			apis.EngineAnnotation: apis.EngineTranche, apis.StopPolicyAnnotation: "Hold",
		}},
		Spec: kueue.ClusterQueueSpec{
			CohortName: "research", NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "vision"}}, QueueingStrategy: kueue.StrictFIFO,
			FairSharing: &kueue.FairSharing{Weight: new(resource.MustParse("2"))}, AdmissionScope: &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing},
			AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "prov", OnFlavors: []kueue.ResourceFlavorReference{"a100"}}}},
			Preemption:              &kueue.ClusterQueuePreemption{BorrowWithinCohort: &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority, MaxPriorityThreshold: new(int32(7))}},
			FlavorFungibility:       &kueue.FlavorFungibility{WhenCanBorrow: kueue.TryNextFlavor, WhenCanPreempt: kueue.TryNextFlavor, Preference: new(kueue.PreemptionOverBorrowing)},
		},
	}
	want := map[string]string{
		"spec.cohortName": "research", "spec.namespaceSelector": "team=vision", "spec.queueingStrategy": "StrictFIFO", "spec.fairSharing.weight": "2",
		"spec.admissionScope.admissionMode": "UsageBasedAdmissionFairSharing", "spec.admissionChecksStrategy.admissionChecks": "prov",
		"spec.preemption.borrowWithinCohort.policy": "LowerPriority", "spec.preemption.borrowWithinCohort.maxPriorityThreshold": "7",
		"spec.flavorFungibility.preference": "PreemptionOverBorrowing", "annotation tranche.dev/minimum-runtime": "30m",
		"annotation tranche.dev/preemption-notice": "2m", "annotation tranche.dev/reserve-after": "Never", "annotation tranche.dev/co-start-reserve-for": "10m",
		"annotation tranche.dev/engine": "Tranche", "annotation tranche.dev/stop-policy": "Hold",
	}
	expectSettings(t, dashboard.ClusterQueueSettings(q), want)
	for _, stop := range []kueue.StopPolicy{kueue.None, kueue.Hold, kueue.HoldAndDrain} {
		q.Spec.StopPolicy = &stop
		lq := &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.GangProviderAnnotation: "Volcano"}},
			Spec:       kueue.LocalQueueSpec{StopPolicy: &stop, FairSharing: &kueue.FairSharing{}},
		}
		expectSettings(t, dashboard.LocalQueueSettings(lq), map[string]string{
			"spec.stopPolicy": string(stop), "spec.fairSharing.weight": "1", "annotation tranche.dev/gang-provider": "Volcano",
		})
	}
	for _, p := range []kueue.PreemptionPolicy{kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority} {
		q.Spec.Preemption.WithinClusterQueue = p
		expectSettings(t, dashboard.ClusterQueueSettings(q), map[string]string{"spec.preemption.withinClusterQueue": string(p)})
	}
	for _, p := range []kueue.PreemptionPolicy{kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny} {
		q.Spec.Preemption.ReclaimWithinCohort = p
		expectSettings(t, dashboard.ClusterQueueSettings(q), map[string]string{"spec.preemption.reclaimWithinCohort": string(p)})
	}
	for _, policy := range []string{"Safe", "Reserve", "Greedy"} {
		q.Annotations[apis.StageAdmissionAnnotation] = policy
		expectSettings(t, dashboard.ClusterQueueSettings(q), map[string]string{"annotation tranche.dev/stage-admission": policy})
	}
}
