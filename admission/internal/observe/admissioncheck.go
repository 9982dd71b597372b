package observe

import (
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/version"
)

// apply records whether an AdmissionCheck is active, and its controller.
func (ev CheckObserved) apply(o *Observer) {
	object := ev.AdmissionCheck
	v := version.Of(object.UID, object.ResourceVersion)
	known := o.m.Checks[object.Name]
	if known != nil && v.IsOlderThan(known.Version) {
		return
	}
	isActive := apimeta.IsStatusConditionTrue(object.Status.Conditions, kueue.AdmissionCheckActive)
	check := queuespec.AdmissionCheck{IsActive: isActive, Controller: object.Spec.ControllerName}
	o.m.Checks[object.Name] = &version.Observed[queuespec.AdmissionCheck]{Fact: check, Version: v}
	if known == nil || known.Fact != check {
		o.renewUsersOfCheck(object.Name)
	}
}

func (ev CheckGone) apply(o *Observer) {
	delete(o.m.Checks, ev.Name)
	o.renewUsersOfCheck(ev.Name)
}

func (o *Observer) renewUsersOfCheck(name string) {
	for _, q := range o.m.ClusterQueues {
		if slices.ContainsFunc(q.Checks, func(r kueue.AdmissionCheckStrategyRule) bool { return string(r.Name) == name }) {
			o.renewClusterQueue(q)
		}
	}
	o.m.RefreshJudged()
}
