package queuespec

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/apis"
)

// An AdmissionCheck is the part of an AdmissionCheck that the Engine uses.
type AdmissionCheck struct {
	IsActive   bool
	Controller string
}

// maxRemarks is how many remarks about quotas the condition Active repeats.
const maxRemarks = 3

// An Activity is the condition Active of a queue. Reasons and messages are those of Kueue where Kueue has them.
type Activity struct {
	Status          metav1.ConditionStatus
	Reason, Message string
	// Why says in plain words why a ClusterQueue is not active, as in "is stopped (stopPolicy: Hold)". It is empty if the ClusterQueue is active.
	Why string
}

// Sentence says which ClusterQueue is not active, and why.
func (a Activity) Sentence(name string) string {
	between := ": "
	for _, verb := range []string{"is ", "references "} {
		if strings.HasPrefix(a.Why, verb) {
			between = " "
		}
	}
	return "ClusterQueue " + name + between + a.Why
}

// inactivity collects why a ClusterQueue is not active.
type inactivity struct {
	reasons, messages []string
}

func (i *inactivity) add(reason, message string) {
	i.reasons = append(i.reasons, reason)
	i.messages = append(i.messages, message)
}

// addNames adds a reason that is about objects, if there are any.
func (i *inactivity) addNames(reason, message string, names []string) {
	if len(names) > 0 {
		i.add(reason, message+strings.Join(names, ","))
	}
}

// stopField returns the field that stops the ClusterQueue.
func (q *Spec) stopField() string {
	if q.Takeover.IsAsked() && q.Takeover.Policy != "" {
		return apis.StopPolicyAnnotation + ": " + q.Takeover.Policy
	}
	return "stopPolicy: " + string(q.Stop)
}

// Activity reports whether the ClusterQueue takes new reservations. cycle names the Cohorts above it if their parents form a cycle.
func (q *Spec) Activity(checks map[string]*version.Observed[AdmissionCheck], cycle string) Activity {
	if q.IsTerminating {
		return Activity{metav1.ConditionFalse, kueue.ClusterQueueActiveReasonTerminating, "Can't admit new workloads; clusterQueue is terminating", "is being deleted"}
	}
	var why inactivity
	if q.Stop != kueue.None {
		why.add(kueue.ClusterQueueActiveReasonStopped, "is stopped")
	}
	why.addNames(kueue.ClusterQueueActiveReasonFlavorNotFound, "references missing ResourceFlavor(s): ", q.Missing)
	q.addChecks(&why, checks)
	why.addNames(kueue.ClusterQueueActiveReasonTopologyNotFound, "spec.topologyName is not supported: remove it from ResourceFlavor(s): ", q.Topological)
	if q.isConcurrent {
		why.add(kueue.ClusterQueueActiveReasonUnknown, "spec.concurrentAdmissionPolicy is not supported: remove it")
	}
	if cycle != "" {
		why.add(kueue.ClusterQueueActiveReasonUnknown, "spec.cohortName: the parents of Cohorts form a cycle: "+cycle)
	}
	if q.selectorProblem != "" {
		why.add(kueue.ClusterQueueActiveReasonUnknown, "spec.namespaceSelector: "+q.selectorProblem)
	}
	if len(why.reasons) > 0 {
		if ignored := q.whyIgnored(); ignored != "" {
			why.messages = append(why.messages, ignored)
		}
		message := fmt.Sprintf("Can't admit new workloads: %s.", strings.Join(why.messages, ", "))
		if q.Stop != kueue.None {
			why.messages[0] += " (" + q.stopField() + ")"
		}
		return Activity{metav1.ConditionFalse, why.reasons[0], message, strings.Join(why.messages, "; ")}
	}
	return Activity{Status: metav1.ConditionTrue, Reason: kueue.ClusterQueueActiveReasonReady, Message: "Can admit new workloads" + q.advisories()}
}

// ActivityInKueue reports whether the ClusterQueue takes new reservations of Kueue, which supports more than the Engine.
func (q *Spec) ActivityInKueue(checks map[string]*version.Observed[AdmissionCheck], cycle string) Activity {
	led := *q
	led.Topological, led.isConcurrent = nil, false
	if q.Takeover.IsAsked() {
		led.Stop, led.Takeover = q.Takeover.StopInKueue, Takeover{}
	}
	return led.Activity(checks, cycle)
}

// ActivityInstead reports whether the ClusterQueue takes new reservations after it was taken over. Kueue's manager takes quota back there from what waits for
// an AdmissionCheck.
func (q *Spec) ActivityInstead(checks map[string]*version.Observed[AdmissionCheck], cycle string) Activity {
	foreign := q.ForeignChecks(checks)
	if a := q.Activity(checks, cycle); a.Status != metav1.ConditionTrue || len(foreign) == 0 {
		return a
	}
	why := "a ClusterQueue that was taken over supports no AdmissionChecks of other controllers: remove " + strings.Join(foreign, ", ") +
		" from spec.admissionChecksStrategy"
	return Activity{metav1.ConditionFalse, kueue.ClusterQueueActiveReasonUnknown, "Can't admit new workloads: " + why + ".", why}
}

// addChecks adds what is wrong with the AdmissionChecks of a ClusterQueue.
func (q *Spec) addChecks(why *inactivity, checks map[string]*version.Observed[AdmissionCheck]) {
	var missing, inactive, multiKueue, perFlavor, provisioning []string
	for _, rule := range q.Checks {
		name := string(rule.Name)
		known := checks[name]
		if known == nil {
			missing = append(missing, name)
			continue
		}
		if !known.Fact.IsActive {
			inactive = append(inactive, name)
		}
		switch known.Fact.Controller {
		case kueue.MultiKueueControllerName:
			multiKueue = append(multiKueue, name)
			if !q.hasOnly(rule.OnFlavors) {
				perFlavor = append(perFlavor, name)
			}
		case kueue.ProvisioningRequestControllerName:
			provisioning = append(provisioning, name)
		}
	}
	for _, names := range [][]string{missing, inactive, multiKueue, perFlavor, provisioning} {
		slices.Sort(names)
	}
	why.addNames(kueue.ClusterQueueActiveReasonAdmissionCheckNotFound, "references missing AdmissionCheck(s): ", missing)
	why.addNames(kueue.ClusterQueueActiveReasonAdmissionCheckInactive, "references inactive AdmissionCheck(s): ", inactive)
	if len(multiKueue) > 1 {
		why.addNames(kueue.ClusterQueueActiveReasonMultipleMultiKueueAdmissionChecks,
			"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: ", multiKueue)
	}
	why.addNames(kueue.ClusterQueueActiveReasonMultiKueueAdmissionCheckAppliedPerFlavor, "Cannot specify MultiKueue AdmissionCheck per flavor, found: ", perFlavor)
	if len(multiKueue) > 0 && len(provisioning) > 0 {
		why.add(kueue.ClusterQueueActiveReasonMultiKueueWithProvisioningRequest, fmt.Sprintf(
			"Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: %s, %s", strings.Join(multiKueue, ","), strings.Join(provisioning, ",")))
	}
}

// advisories returns problems that an administrator should correct although the ClusterQueue is active.
func (q *Spec) advisories() string {
	message := ""
	if len(q.Remarks) > 0 {
		message += ", but correct spec.resourceGroups: " + strings.Join(q.Remarks[:min(len(q.Remarks), maxRemarks)], "; ")
	}
	if len(q.annotationRemarks) > 0 {
		message += ", but correct " + strings.Join(q.annotationRemarks, "; ")
	}
	if len(q.Deleted) > 0 {
		message += "; being deleted, and still admitted to: ResourceFlavor " + strings.Join(q.Deleted, ", ") +
			"; remove it from spec.resourceGroups, or it cannot disappear"
	}
	if ignored := q.whyIgnored(); ignored != "" {
		message += "; " + ignored
	}
	return message
}
