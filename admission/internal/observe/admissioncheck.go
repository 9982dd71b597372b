package observe

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/version"
)

// observeCheck records whether an AdmissionCheck is active, and its controller.
func (o *Observer) observeCheck(object *kueue.AdmissionCheck) {
	v := version.Of(object.UID, object.ResourceVersion)
	known := o.m.Checks[object.Name]
	if known != nil && v.IsOlderThan(known.Version) {
		return
	}
	isActive := slices.ContainsFunc(object.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == kueue.AdmissionCheckActive && c.Status == metav1.ConditionTrue
	})
	check := queuespec.AdmissionCheck{IsActive: isActive, Controller: object.Spec.ControllerName}
	o.m.Checks[object.Name] = &version.Observed[queuespec.AdmissionCheck]{Fact: check, Version: v}
	if known == nil || known.Fact != check {
		o.renewUsersOfCheck(object.Name)
	}
}

func (o *Observer) loseCheck(name string) {
	delete(o.m.Checks, name)
	o.renewUsersOfCheck(name)
}

func (o *Observer) renewUsersOfCheck(name string) {
	for _, q := range o.m.ClusterQueues {
		if slices.ContainsFunc(q.Checks, func(r kueue.AdmissionCheckStrategyRule) bool { return string(r.Name) == name }) {
			o.renewClusterQueue(q)
		}
	}
}
