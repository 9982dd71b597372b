package admission

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// An admissionCheck is the part of an AdmissionCheck that the Engine uses.
type admissionCheck struct {
	isActive   bool
	controller string
}

// observeCheck records whether an AdmissionCheck is active, and its controller.
func (e *Engine) observeCheck(object *kueue.AdmissionCheck) {
	v := versionOf(object.UID, object.ResourceVersion)
	known := e.checks[object.Name]
	if known != nil && v.isOlderThan(known.version) {
		return
	}
	isActive := slices.ContainsFunc(object.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == kueue.AdmissionCheckActive && c.Status == metav1.ConditionTrue
	})
	check := admissionCheck{isActive, object.Spec.ControllerName}
	e.checks[object.Name] = &observed[admissionCheck]{check, v}
	if known == nil || known.fact != check {
		e.renewUsersOfCheck(object.Name)
	}
}

func (e *Engine) loseCheck(name string) {
	delete(e.checks, name)
	e.renewUsersOfCheck(name)
}

func (e *Engine) renewUsersOfCheck(name string) {
	for _, q := range e.clusterQueues {
		if slices.ContainsFunc(q.checks, func(r kueue.AdmissionCheckStrategyRule) bool { return string(r.Name) == name }) {
			e.renewClusterQueue(q)
		}
	}
}

// checksFor returns the AdmissionChecks that a stage has to pass on these flavors (KEP-1432).
func (q *queueSpec) checksFor(a *kueue.Admission) []kueue.AdmissionCheckReference {
	var names []kueue.AdmissionCheckReference
	for _, rule := range q.checks {
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
