package jobsetstatus

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// Reasons of SpecPruned.
const (
	// PrunedRecorded means that the lost fields are recorded, and count as before.
	PrunedRecorded = "FieldsRecorded"
	// PrunedUnknown means that nothing shows whether the JobSet had the fields.
	PrunedUnknown = "FieldsUnknown"
)

// UnknownRules is why a JobSet is refused that was created while the API server served a CRD of JobSets without startupPolicy.rules.
const UnknownRules = "spec.startupPolicy: the JobSet was created while the API server served a CRD of JobSets without rules, so it may have lost them, and its" +
	" ReplicatedJobs would start in another order: ask your administrator to apply Tranche's CRD again, and then delete the JobSet and submit it again"

// WithPruned adds the condition SpecPruned to those of a JobSet that has lost fields, or may have. It also returns the message as news if the fields are
// recorded and the JobSet did not report that before.
func WithPruned(js *jobsetapi.JobSet, all []metav1.Condition, lost []string, isUnknown bool) (with []metav1.Condition, news string) {
	c := metav1.Condition{Type: SpecPruned, Status: metav1.ConditionTrue, Reason: PrunedUnknown, Message: UnknownRules}
	switch {
	case isUnknown:
	case len(lost) > 0:
		c.Reason = PrunedRecorded
		c.Message = fmt.Sprintf("%s: lost when another CRD of JobSets was applied over Tranche's. The fields are recorded, and count until the JobSet is submitted again",
			strings.Join(lost, ", "))
		if old := apimeta.FindStatusCondition(js.Status.Conditions, SpecPruned); old == nil || old.Message != cut(c.Message) {
			news = c.Message
		}
	default:
		return all, ""
	}
	return append(all, timed(js, c)...), news
}

// HasUnknownRules reports whether a JobSet has been refused because of UnknownRules.
func HasUnknownRules(js *jobsetapi.JobSet) bool {
	c := apimeta.FindStatusCondition(js.Status.Conditions, SpecPruned)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == PrunedUnknown
}
