package simulator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

func isTrue(w *kueue.Workload, conditionType string) bool {
	return apimeta.IsStatusConditionTrue(w.Status.Conditions, conditionType)
}

func isFinished(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadFinished) }

func holdsQuota(w *kueue.Workload) bool {
	return w.Status.Admission != nil && isTrue(w, kueue.WorkloadQuotaReserved)
}

// setCondition writes a condition. Its transition time is kept while its status stays, as everywhere in Kubernetes.
func (s *simulation) setCondition(w *kueue.Workload, conditionType string, status metav1.ConditionStatus, reason string, message ...string) {
	apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: strings.Join(message, " "), ObservedGeneration: w.Generation,
		LastTransitionTime: s.timestamp(),
	})
}

// timestamp is now as objects have it: in whole seconds.
func (s *simulation) timestamp() metav1.Time { return metav1.NewTime(s.time().Truncate(time.Second)) }

// setAdmission writes a decision to admit.
func (s *simulation) setAdmission(w *kueue.Workload, d *admission.Admit) {
	w.Status.Admission = d.Admission.DeepCopy()
	s.setCondition(w, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved")
	for _, old := range []string{kueue.WorkloadEvicted, kueue.WorkloadPreempted} {
		if isTrue(w, old) {
			s.setCondition(w, old, metav1.ConditionFalse, "QuotaReserved")
		}
	}
	w.Status.AdmissionChecks = nil
	for _, name := range d.Checks {
		w.Status.AdmissionChecks = append(w.Status.AdmissionChecks, kueue.AdmissionCheckState{
			Name: name, State: kueue.CheckStatePending, LastTransitionTime: s.timestamp(),
		})
	}
	if len(d.Checks) == 0 {
		s.setCondition(w, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted")
	}
}

// setEvicted writes a decision to evict.
func (s *simulation) setEvicted(w *kueue.Workload, d *admission.Evict) {
	s.setCondition(w, kueue.WorkloadEvicted, metav1.ConditionTrue, d.Reason, d.Message)
	if d.Preemption != nil {
		s.setCondition(w, kueue.WorkloadPreempted, metav1.ConditionTrue, d.Preemption.Reason, d.Message)
	}
}

// clearAdmission gives back what a quota Workload holds.
func (s *simulation) clearAdmission(w *kueue.Workload) {
	w.Status.Admission = nil
	s.setCondition(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", "the pods have ended")
	if isTrue(w, kueue.WorkloadAdmitted) {
		s.setCondition(w, kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.WorkloadAdmittedReasonNoReservation)
	}
	if isTrue(w, kueue.WorkloadPodsReady) {
		s.setCondition(w, kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForStart)
	}
	for i := range w.Status.AdmissionChecks {
		w.Status.AdmissionChecks[i].State = kueue.CheckStatePending
	}
}

// tellReadiness writes the condition PodsReady of a stage whose pods run. One that has never been ready need not say so.
func (s *simulation) tellReadiness(j *job, st *stage, w *kueue.Workload) {
	isReady, wasReady := st.isReleased && j.all(st, ready), isTrue(w, kueue.WorkloadPodsReady)
	if isReady == wasReady || !holdsQuota(w) {
		return
	}
	after := w.DeepCopy()
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	switch {
	case wasReady:
		s.setCondition(after, kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForRecovery)
	case c != nil && c.Reason == kueue.WorkloadWaitForRecovery:
		s.setCondition(after, kueue.WorkloadPodsReady, metav1.ConditionTrue, kueue.WorkloadRecovered)
	default:
		s.setCondition(after, kueue.WorkloadPodsReady, metav1.ConditionTrue, kueue.WorkloadStarted)
	}
	s.put(after)
}

// setChecks writes the states of checks, and tells whether the quota Workload waits for one of them.
func (s *simulation) setChecks(w *kueue.Workload, states []scenario.CheckState) bool {
	found := false
	for i := range w.Status.AdmissionChecks {
		check := &w.Status.AdmissionChecks[i]
		at := slices.IndexFunc(states, func(c scenario.CheckState) bool { return c.Check == string(check.Name) })
		if at >= 0 {
			found = true
			check.State, check.LastTransitionTime = states[at].State, s.timestamp()
		}
	}
	return found
}

func checksAreReady(w *kueue.Workload) bool {
	return !slices.ContainsFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State != kueue.CheckStateReady })
}

// details tell what cannot be guessed of an admission: flavors that have names, and pods that are fewer than asked for.
func details(w *kueue.Workload) string {
	var flavors, fewer []string
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		for _, flavor := range a.Flavors {
			if flavor != scenario.DefaultFlavor && !slices.Contains(flavors, string(flavor)) {
				flavors = append(flavors, string(flavor))
			}
		}
		for k := range w.Spec.PodSets {
			if p := &w.Spec.PodSets[k]; p.Name == a.Name && a.Count != nil && *a.Count < p.Count {
				fewer = append(fewer, fmt.Sprintf(" with %d of %d pods", *a.Count, p.Count))
			}
		}
	}
	text := strings.Join(fewer, "")
	if len(flavors) > 0 {
		slices.Sort(flavors)
		text += " on " + strings.Join(flavors, ", ")
	}
	return text
}
