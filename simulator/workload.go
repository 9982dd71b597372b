package simulator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

func isFinished(w *kueue.Workload) bool { return quotaworkload.IsTrue(w, kueue.WorkloadFinished) }

// setFinished records that a stage has finished.
func (s *simulation) setFinished(w *kueue.Workload, reason string) {
	apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
		Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: w.Generation,
		LastTransitionTime: s.timestamp(),
	})
}

// timestamp returns the current time in the precision of objects: in whole seconds.
func (s *simulation) timestamp() metav1.Time { return metav1.NewTime(s.time().Truncate(time.Second)) }

// withoutQuota releases the quota of a quota Workload whose pods have terminated.
func (s *simulation) withoutQuota(w *kueue.Workload) *kueue.Workload {
	status := workloadstatus.Suspended(w, s.time())
	if quotaworkload.IsTrue(w, kueue.WorkloadEvicted) {
		status = workloadstatus.QuotaReleased(w, s.time())
	}
	after := workloadstatus.Merge(w, &status)
	if apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady) != nil {
		s.setPodsReady(after, workloadstatus.PodsNotStarted())
	}
	return after
}

// readiness returns the condition PodsReady of a quota Workload, and whether it has to be written.
func readiness(w *kueue.Workload, areReady bool) (c metav1.Condition, differs bool) {
	old := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	c = workloadstatus.PodsReady(old, areReady)
	return c, old == nil && c.Status == metav1.ConditionTrue || old != nil && (old.Status != c.Status || old.Reason != c.Reason)
}

func (s *simulation) setPodsReady(w *kueue.Workload, c metav1.Condition) {
	status := workloadstatus.Progress(w, c, nil, s.time())
	for i := range status.Conditions {
		apimeta.SetStatusCondition(&w.Status.Conditions, status.Conditions[i])
	}
}

// setChecks writes the states of checks, and reports whether the quota Workload waits for one of them.
func (s *simulation) setChecks(w *kueue.Workload, states []scenario.CheckState) bool {
	found := false
	for i := range w.Status.AdmissionChecks {
		check := &w.Status.AdmissionChecks[i]
		at := slices.IndexFunc(states, func(c scenario.CheckState) bool { return c.Check == string(check.Name) })
		if at >= 0 {
			found = true
			check.State, check.LastTransitionTime = states[at].State, s.timestamp()
			if after := states[at].AfterSeconds; after > 0 {
				check.RequeueAfterSeconds = &after
			}
		}
	}
	return found
}

// details returns the parts of an admission that vary: named flavors, and pod counts below the requested ones.
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
			if p := &w.Spec.PodSets[k]; p.Name == a.Name && a.Count != nil && *a.Count < p.Count-elastic.Reclaimable(w, string(p.Name)) {
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
