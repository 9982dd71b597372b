package jobsetstatus

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
	// GangsKept means that objects exist for all gangs of a JobSet.
	GangsKept = "GangsKept"
	// GangsOfUser means that the user has created the objects of some gangs, which Tranche leaves unchanged.
	GangsOfUser = "MadeByUser"
	// GangsOfJobSet means that the JobSet controller keeps the objects of gangs.
	GangsOfJobSet = "ManagedByJobSet"
	// GangsNotConfigured means that the administrator has named no scheduler that places gangs.
	GangsNotConfigured = "NotConfigured"
	// GangsNotServed means that the API server serves no objects for gangs.
	GangsNotServed = "APINotServed"
	// GangsContradicted means that a LocalQueue or flavor names another scheduler than the one that places the gangs of the JobSet.
	GangsContradicted = "SchedulerContradicted"
	// GangsNotNamed means that pods do not name their gang.
	GangsNotNamed = "PodsNameNoGang"
	// GangMissing means that pods wait for a PodGroup which does not exist.
	GangMissing = "PodGroupMissing"
	// GangsRefused means that the API server rejects the objects of gangs.
	GangsRefused = "PodGroupRefused"
	// GangChanged means that a PodGroup which pods use differs from what the JobSet asks for.
	GangChanged = "PodGroupDiffers"
	// GangTooSmall means that there are fewer pods than a PodGroup requires.
	GangTooSmall = "TooFewPods"
	// GangSplit means that the pods of a gang use several schedulers.
	GangSplit = "SchedulersDiffer"
	// GangUnschedulable means that the scheduler has no place for a gang.
	GangUnschedulable = "Unschedulable"
	// GangUnheard means that the scheduler reports nothing about a gang whose pods wait.
	GangUnheard = "SchedulerSilent"
	// GangsMisconfigured means that the user has to fix the JobSet.
	GangsMisconfigured = "Misconfigured"
)

// WithGangs adds the condition GangScheduling, if the JobSet asks for gangs. They are placed as a whole if the reason is GangsKept,
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
	return append(all, timed(js, c)...)
}

// WithGangBlocked adds to the condition of an admitted stage that one of its gangs is not placed.
func WithGangBlocked(all []metav1.Condition, message string) []metav1.Condition {
	all = slices.Clone(all)
	if c := apimeta.FindStatusCondition(all, StageAdmitted); c != nil && c.Status == metav1.ConditionTrue {
		c.Message = cut(c.Message + "; but " + message)
	}
	return all
}

// BlockedGang returns the message of the condition GangScheduling about a gang that holds its quota and is not placed, or "" if there is no
// such gang, or the message has not changed except for amounts.
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

// gangFields returns the fields and annotations in which a JobSet asks for gangs.
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
