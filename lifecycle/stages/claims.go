package stages

import (
	"slices"

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
	return st.hasPodSet(func(charged *kueue.PodSet, planned *stageplan.PodSet) bool {
		return !stageplan.SameResources(&charged.Template.Spec, &planned.Template.Spec)
	})
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
