package childjob

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// UpdatesOf returns the updates that Ready AdmissionChecks of a quota Workload request for the pods of a pod set.
func UpdatesOf(workload *kueue.Workload, podSet string) []Update {
	name := kueue.NewPodSetReference(podSet)
	var updates []Update
	for i := range workload.Status.AdmissionChecks {
		check := &workload.Status.AdmissionChecks[i]
		for _, update := range check.PodSetUpdates {
			if check.State == kueue.CheckStateReady && update.Name == name {
				updates = append(updates, Update{By: CheckedBy(check.Name), Update: update})
			}
		}
	}
	return updates
}

// AssignmentOf returns what a pod set of a quota Workload, which has an admission, is admitted to, or nil.
func AssignmentOf(workload *kueue.Workload, podSet string) *kueue.PodSetAssignment {
	name := kueue.NewPodSetReference(podSet)
	assignments := workload.Status.Admission.PodSetAssignments
	for i := range assignments {
		if assignments[i].Name == name {
			return &assignments[i]
		}
	}
	return nil
}
