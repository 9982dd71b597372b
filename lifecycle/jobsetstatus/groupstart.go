package jobsetstatus

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// Reasons of GroupScheduling.
const (
	// GroupReleased means that all pods of the group had started, so that their main containers may run.
	GroupReleased = "AllStarted"
	// GroupWaiting means that not all pods have started yet.
	GroupWaiting = "WaitingForPods"
	// GroupTimedOut means that a pod has given up.
	GroupTimedOut = "TimedOut"
	// GroupOfUser means that a ConfigMap with the name of the group's belongs to a user.
	GroupOfUser = "ConfigMapOfUser"
	// GroupNotWritten means that the API server rejects the ConfigMap of the group.
	GroupNotWritten = "ConfigMapRefused"
	// GroupNotConfigured means that the administrator has turned group start off.
	GroupNotConfigured = "NotConfigured"
	// GroupNotInjected means that pods do not wait.
	GroupNotInjected = "PodsDoNotWait"
	// GroupMisconfigured means that the user has to fix the JobSet.
	GroupMisconfigured = "Misconfigured"
)

// Group returns the condition GroupScheduling of a JobSet whose main containers start together.
func Group(js *jobsetapi.JobSet, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: GroupScheduling, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if reason == GroupReleased {
		c.Status = metav1.ConditionTrue
	}
	return timed(js, c)[0]
}

// GroupField returns the field or annotation in which a JobSet asks for a group, to begin a message with.
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
