package queuespec

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/apis"
)

// SafetyChecks returns the rules of the AdmissionChecks by which this manager judges reservations of Kueue.
func (q *Spec) SafetyChecks(checks map[string]*version.Observed[AdmissionCheck]) []kueue.AdmissionCheckStrategyRule {
	var rules []kueue.AdmissionCheckStrategyRule
	for _, rule := range q.Checks {
		if check := checks[string(rule.Name)]; check != nil && check.Fact.Controller == apis.StageSafetyController {
			rules = append(rules, rule)
		}
	}
	return rules
}

// AsksForSafety reports whether an AdmissionCheck of the ClusterQueue is one of them.
func (q *Spec) AsksForSafety(checks map[string]*version.Observed[AdmissionCheck], name kueue.AdmissionCheckReference) bool {
	return slices.ContainsFunc(q.SafetyChecks(checks), func(rule kueue.AdmissionCheckStrategyRule) bool { return rule.Name == name })
}

// IsJudged reports whether such an AdmissionCheck applies to each flavor.
func (q *Spec) IsJudged(checks map[string]*version.Observed[AdmissionCheck]) bool {
	rules := q.SafetyChecks(checks)
	for _, g := range q.Groups {
		for i := range g.Flavors {
			applies := func(rule kueue.AdmissionCheckStrategyRule) bool { return AppliesTo(rule, g.Flavors[i].Name) }
			if !slices.ContainsFunc(rules, applies) {
				return false
			}
		}
	}
	return true
}

// AppliesTo reports whether a rule applies to a flavor.
func AppliesTo(rule kueue.AdmissionCheckStrategyRule, flavor kueue.ResourceFlavorReference) bool {
	return len(rule.OnFlavors) == 0 || slices.Contains(rule.OnFlavors, flavor)
}
