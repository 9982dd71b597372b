package conditions

import (
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// Reasons of GangScheduling.
const (
	// GangsKept tells that there are objects for all gangs of a JobSet.
	GangsKept = "GangsKept"
	// GangsOfUser tells that the user has made the objects of some gangs, which Tranche leaves as they are.
	GangsOfUser = "MadeByUser"
	// GangsOfJobSet tells that the JobSet controller keeps the objects of gangs.
	GangsOfJobSet = "ManagedByJobSet"
	// GangsNotConfigured tells that the administrator has named no scheduler that places gangs.
	GangsNotConfigured = "NotConfigured"
	// GangsNotServed tells that the API server has no objects for gangs.
	GangsNotServed = "APINotServed"
	// GangsContradicted tells that a LocalQueue or flavor names a scheduler that the gangs of a JobSet are not placed by.
	GangsContradicted = "SchedulerContradicted"
	// GangsNotNamed tells that pods do not name their gang.
	GangsNotNamed = "PodsNameNoGang"
	// GangMissing tells that pods wait for a PodGroup which is not there.
	GangMissing = "PodGroupMissing"
	// GangsRefused tells that the API server refuses the objects of gangs.
	GangsRefused = "PodGroupRefused"
	// GangChanged tells that a PodGroup which pods go by is not what the JobSet asks for.
	GangChanged = "PodGroupDiffers"
	// GangTooSmall tells that there are fewer pods than a PodGroup takes.
	GangTooSmall = "TooFewPods"
	// GangSplit tells that the pods of a gang go to several schedulers.
	GangSplit = "SchedulersDiffer"
	// GangUnschedulable tells that the scheduler has no place for a gang.
	GangUnschedulable = "Unschedulable"
	// GangUnheard tells that the scheduler says nothing about a gang whose pods wait.
	GangUnheard = "SchedulerSilent"
	// GangsMisconfigured tells that the user has to mend the JobSet.
	GangsMisconfigured = "Misconfigured"
)

// WithGangs adds what is said about the gangs of a JobSet, if it asks for any. They are placed whole if the reason is GangsKept,
// GangsOfUser or GangsOfJobSet.
func WithGangs(js *jobsetapi.JobSet, all []metav1.Condition, reason, message string) []metav1.Condition {
	fields := gangFields(js)
	if len(fields) == 0 {
		return all
	}
	c := metav1.Condition{Type: GangScheduling, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	switch reason {
	case GangsKept, GangsOfUser, GangsOfJobSet:
	case GangsContradicted:
		c.Status = metav1.ConditionFalse
		c.Message = fmt.Sprintf("%s: gangs are not placed by the scheduler that is named for them: %s", strings.Join(fields, ", "), message)
	default:
		c.Status = metav1.ConditionFalse
		c.Message = fmt.Sprintf("%s: gangs are not placed whole: %s", strings.Join(fields, ", "), message)
	}
	return append(all, timed(js, []metav1.Condition{c})...)
}

// WithGangBlocked adds to what is said of an admitted stage that a gang of it is not placed.
func WithGangBlocked(all []metav1.Condition, message string) []metav1.Condition {
	all = slices.Clone(all)
	if c := apimeta.FindStatusCondition(all, StageAdmitted); c != nil && c.Status == metav1.ConditionTrue {
		c.Message = cut(c.Message + "; but " + message)
	}
	return all
}

// BlockedGang returns what the condition GangScheduling newly says of a gang that holds its quota and is not placed, or "" if it says
// nothing, or nothing else than before. That amounts have changed is no news.
func BlockedGang(js *jobsetapi.JobSet, all []metav1.Condition) string {
	c := apimeta.FindStatusCondition(all, GangScheduling)
	if c == nil || !slices.Contains([]string{GangMissing, GangChanged, GangTooSmall, GangSplit, GangUnschedulable, GangUnheard}, c.Reason) {
		return ""
	}
	before := apimeta.FindStatusCondition(js.Status.Conditions, GangScheduling)
	if before != nil && before.Reason == c.Reason && withoutAmounts(before.Message) == withoutAmounts(c.Message) {
		return ""
	}
	return c.Message
}

// gangFields lists where a JobSet asks for gangs.
func gangFields(js *jobsetapi.JobSet) []string {
	var fields []string
	add := func(config *jobsetapi.GangConfig, field string, annotations map[string]string, annotationsField string) {
		switch mode, annotated := annotations[apis.GangAnnotation]; {
		case config != nil && config.GangMode != jobsetapi.GangModeOff:
			fields = append(fields, field)
		case config == nil && annotated && mode != string(jobsetapi.GangModeOff):
			fields = append(fields, fmt.Sprintf("%s[%s]", annotationsField, apis.GangAnnotation))
		}
	}
	if js.Spec.Scheduling != nil {
		fields = append(fields, "spec.scheduling")
	}
	add(js.Spec.GangConfig, "spec.gangConfig", js.Annotations, "metadata.annotations")
	for i := range js.Spec.ReplicatedJobs {
		job, field := &js.Spec.ReplicatedJobs[i], fmt.Sprintf("spec.replicatedJobs[%d]", i)
		add(job.GangConfig, field+".gangConfig", job.Template.Annotations, field+".template.metadata.annotations")
	}
	return fields
}
