package stages

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// hasOtherClaims reports whether the quota Workload of a stage was charged for devices of other ResourceClaimTemplates than those that pods
// of the stage would claim now. Existing pods may use either.
func (st *stage) hasOtherClaims() bool {
	return st.hasPodSet(func(charged *kueue.PodSet, planned *stageplan.PodSet) bool {
		return !device.IsSame(&charged.Template, planned.Template)
	})
}

// hasOtherResources reports whether new pods of the stage would have other resources than those charged: another overhead, including
// devices, or other defaults of LimitRanges.
func (st *stage) hasOtherResources() bool {
	var none corev1.ResourceRequirements
	return st.hasPodSet(func(charged *kueue.PodSet, planned *stageplan.PodSet) bool {
		a, b := &charged.Template.Spec, &planned.Template.Spec
		return !equality.Semantic.DeepEqual(a.Overhead, b.Overhead) || !slices.EqualFunc(a.InitContainers, b.InitContainers, sameResources) ||
			!slices.EqualFunc(a.Containers, b.Containers, sameResources) || !sameAmounts(ptr.Deref(a.Resources, none), ptr.Deref(b.Resources, none))
	})
}

func sameResources(a, b corev1.Container) bool { return sameAmounts(a.Resources, b.Resources) }

func sameAmounts(a, b corev1.ResourceRequirements) bool {
	return equality.Semantic.DeepEqual(a.Requests, b.Requests) && equality.Semantic.DeepEqual(a.Limits, b.Limits)
}

func (st *stage) hasPodSet(differs func(charged *kueue.PodSet, planned *stageplan.PodSet) bool) bool {
	for i := range st.PodSets {
		planned := &st.PodSets[i]
		if slices.ContainsFunc(st.workload.Spec.PodSets, func(charged kueue.PodSet) bool {
			return charged.Name == kueue.NewPodSetReference(planned.Name) && differs(&charged, planned)
		}) {
			return true
		}
	}
	return false
}
