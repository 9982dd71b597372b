package admission

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// maxRemarks is how many remarks about quotas the condition Active repeats.
const maxRemarks = 3

// An Activity is the condition Active of a queue. Reasons and messages are those of Kueue where Kueue has them.
type Activity struct {
	Status          metav1.ConditionStatus
	Reason, Message string
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

// activity reports whether a ClusterQueue takes new reservations.
func (e *Engine) activity(q *clusterQueue) Activity {
	cycle := ""
	if q.cohort != "" {
		cycle = e.cohort(q.cohort).cycle
	}
	return q.activity(e.checks, cycle)
}

// activity reports whether the ClusterQueue takes new reservations. cycle names the Cohorts above it if their parents form a cycle.
func (q *queueSpec) activity(checks map[string]*observed[admissionCheck], cycle string) Activity {
	if q.terminating {
		return Activity{metav1.ConditionFalse, kueue.ClusterQueueActiveReasonTerminating, "Can't admit new workloads; clusterQueue is terminating"}
	}
	var why inactivity
	if q.stop != kueue.None {
		why.add(kueue.ClusterQueueActiveReasonStopped, "is stopped")
	}
	why.addNames(kueue.ClusterQueueActiveReasonFlavorNotFound, "references missing ResourceFlavor(s): ", q.missing)
	q.addChecks(&why, checks)
	why.addNames(kueue.ClusterQueueActiveReasonTopologyNotFound, "spec.topologyName is not supported: remove it from ResourceFlavor(s): ", q.topological)
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
		return Activity{metav1.ConditionFalse, why.reasons[0], fmt.Sprintf("Can't admit new workloads: %s.", strings.Join(why.messages, ", "))}
	}
	return Activity{metav1.ConditionTrue, kueue.ClusterQueueActiveReasonReady, "Can admit new workloads" + q.advisories()}
}

// addChecks adds what is wrong with the AdmissionChecks of a ClusterQueue.
func (q *queueSpec) addChecks(why *inactivity, checks map[string]*observed[admissionCheck]) {
	var missing, inactive, multiKueue, perFlavor, provisioning []string
	for _, rule := range q.checks {
		name := string(rule.Name)
		known := checks[name]
		if known == nil {
			missing = append(missing, name)
			continue
		}
		if !known.fact.isActive {
			inactive = append(inactive, name)
		}
		switch known.fact.controller {
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

// hasOnly reports whether the ClusterQueue has no other flavors than these. An empty list stands for all flavors.
func (q *queueSpec) hasOnly(flavors []kueue.ResourceFlavorReference) bool {
	if len(flavors) == 0 {
		return true
	}
	for _, g := range q.groups {
		for i := range g.Flavors {
			if !slices.Contains(flavors, g.Flavors[i].Name) {
				return false
			}
		}
	}
	return true
}

// advisories returns problems that an administrator should correct although the ClusterQueue is active.
func (q *queueSpec) advisories() string {
	message := ""
	if len(q.remarks) > 0 {
		message += ", but correct spec.resourceGroups: " + strings.Join(q.remarks[:min(len(q.remarks), maxRemarks)], "; ")
	}
	if len(q.deleted) > 0 {
		message += "; being deleted, and still admitted to: ResourceFlavor " + strings.Join(q.deleted, ", ") +
			"; remove it from spec.resourceGroups, or it cannot disappear"
	}
	return message
}
