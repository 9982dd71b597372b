package conditions

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// Reasons of GroupScheduling.
const (
	// GroupReleased tells that all pods of the group had started, so that their main containers may run.
	GroupReleased = "AllStarted"
	// GroupWaiting tells that not all pods have started yet.
	GroupWaiting = "WaitingForPods"
	// GroupTimedOut tells that a pod has given up.
	GroupTimedOut = "TimedOut"
	// GroupOfUser tells that somebody else has a ConfigMap of the name of the group's.
	GroupOfUser = "ConfigMapOfUser"
	// GroupNotWritten tells that the API server refuses the ConfigMap of the group.
	GroupNotWritten = "ConfigMapRefused"
	// GroupNotConfigured tells that the administrator has turned group start off.
	GroupNotConfigured = "NotConfigured"
	// GroupNotInjected tells that pods do not wait.
	GroupNotInjected = "PodsDoNotWait"
	// GroupMisconfigured tells that the user has to mend the JobSet.
	GroupMisconfigured = "Misconfigured"
)

// Group returns what is said about the group of a JobSet whose main containers start together.
func Group(js *jobsetapi.JobSet, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: GroupScheduling, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if reason == GroupReleased {
		c.Status = metav1.ConditionTrue
	}
	return timed(js, []metav1.Condition{c})[0]
}

// GroupField names where a JobSet asks for a group, to begin a message with.
func GroupField(js *jobsetapi.JobSet, annotation string) string {
	field := ""
	switch {
	case js.Spec.GroupSchedulingConfig != nil:
		field = "spec.groupSchedulingConfig"
	case js.Annotations[annotation] != "":
		field = fmt.Sprintf("metadata.annotations[%s]", annotation)
	}
	for i := range js.Spec.ReplicatedJobs {
		if js.Spec.ReplicatedJobs[i].Template.Annotations[annotation] != "" {
			field = cmp.Or(field, fmt.Sprintf("spec.replicatedJobs[%d].template.metadata.annotations[%s]", i, annotation))
		}
	}
	return field
}
