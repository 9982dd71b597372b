package policies

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// quote encloses the value of a parameter that is a text: r”'None”'. CEL takes what is between literally, also line breaks and backslashes.
const quote = "'''"

// managerCondition is the match condition by which a policy recognizes the manager. Match conditions have no variables.
const managerCondition = "not-the-manager"

// parameters are the keys of parameters.yaml.
var parameters = []string{
	"manager", "kueueManager", "manageJobSetsWithoutQueueName", "gangProvider", "gangSchedulerName", "maxTerminationGracePeriod", "maxJobs", "maxPods",
	"accelerators", "usersWithoutQueue", "groupStartImage", "groupStartCommand", "groupStartCPU", "groupStartMemory",
}

// Constants returns the values of the parameters in the expressions of a policy.
func Constants(policy *unstructured.Unstructured) map[string]string {
	found := map[string]string{}
	visit(policy, func(name, expression string) string {
		_, value, _ := parts(expression)
		found[name] = value
		return expression
	})
	return found
}

// SetConstants writes values of parameters into the expressions of a policy that have them.
func SetConstants(policy *unstructured.Unstructured, values map[string]string) {
	visit(policy, func(name, expression string) string {
		value, isSet := values[name]
		if !isSet {
			return expression
		}
		before, _, after := parts(expression)
		return before + value + after
	})
}

// visit replaces each expression of a policy that has a parameter as a constant: the variable of its name, or the condition about the manager.
func visit(policy *unstructured.Unstructured, replace func(name, expression string) string) {
	for field, parameterOf := range map[string]func(string) string{
		"variables":       func(name string) string { return name },
		"matchConditions": func(name string) string { return map[string]string{managerCondition: "manager"}[name] },
	} {
		entries, _, _ := unstructured.NestedFieldNoCopy(policy.Object, "spec", field)
		list, _ := entries.([]any)
		for _, entry := range list {
			fields, _ := entry.(map[string]any)
			name, _ := fields["name"].(string)
			expression, _ := fields["expression"].(string)
			if slices.Contains(parameters, parameterOf(name)) {
				fields["expression"] = replace(parameterOf(name), expression)
			}
		}
	}
}

// parts splits an expression around the value of its parameter: a text is between quotes, a number or a truth value is the whole expression.
func parts(expression string) (before, value, after string) {
	before, rest, isText := strings.Cut(expression, quote)
	if !isText {
		return "", expression, ""
	}
	value, after, _ = strings.Cut(rest, quote)
	return before + quote, value, quote + after
}
