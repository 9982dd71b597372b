package workloadstatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Reserved returns the status of a quota Workload that has just got its quota and is admitted as soon as these AdmissionChecks are Ready.
// Existing states stay unchanged.
func Reserved(workload *kueue.Workload, admission *kueue.Admission, checks []kueue.AdmissionCheckReference, now time.Time) kueue.WorkloadStatus {
	s := newStatusBuilder(workload, now)
	s.reserve(admission)
	s.require(checks)
	return s.status
}

// require waits for these AdmissionChecks. Existing states stay unchanged, also those of other checks: server-side apply cannot remove what
// the controller of a check has written.
func (s *statusBuilder) require(checks []kueue.AdmissionCheckReference) {
	s.set(kueue.WorkloadAdmitted, metav1.ConditionFalse, reasonUnsatisfied, messageUnsatisfied)
	for _, name := range checks {
		if !slices.ContainsFunc(s.status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.Name == name }) {
			s.status.AdmissionChecks = append(s.status.AdmissionChecks, kueue.AdmissionCheckState{
				Name: name, State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(s.now),
			})
		}
	}
}

// reset returns the state of an AdmissionCheck after an eviction. If the check asked for a retry, its retries are counted.
func reset(check *kueue.AdmissionCheckState, now time.Time) kueue.AdmissionCheckState {
	if check.State == kueue.CheckStatePending {
		return *check
	}
	after := kueue.AdmissionCheckState{
		Name: check.Name, State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(now),
		Message:             "Reset to Pending after eviction. Previously: " + string(check.State),
		RequeueAfterSeconds: check.RequeueAfterSeconds,
	}
	if check.State == kueue.CheckStateRetry {
		after.RetryCount = new(ptr.Deref(check.RetryCount, 0) + 1)
	}
	return after
}

// Checks returns the AdmissionChecks of a quota Workload that are in this state, in the order of their names.
func Checks(workload *kueue.Workload, state kueue.CheckState) []kueue.AdmissionCheckState {
	isOther := func(check kueue.AdmissionCheckState) bool { return check.State != state }
	found := slices.DeleteFunc(slices.Clone(workload.Status.AdmissionChecks), isOther)
	slices.SortFunc(found, func(a, b kueue.AdmissionCheckState) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return found
}

// Verdict returns a message that names AdmissionChecks in one state, and contains their messages.
func Verdict(checks []kueue.AdmissionCheckState) string {
	var parts []string
	for i := range checks {
		part := fmt.Sprintf("%q", checks[i].Name)
		if checks[i].Message != "" {
			part += " (" + checks[i].Message + ")"
		}
		parts = append(parts, part)
	}
	noun := "AdmissionCheck"
	if len(checks) > 1 {
		noun = "AdmissionChecks"
	}
	return fmt.Sprintf("%s in state %s: %s", noun, checks[0].State, strings.Join(parts, "; "))
}
