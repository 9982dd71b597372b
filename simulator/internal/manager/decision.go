package manager

import (
	"fmt"
	"slices"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// Evict writes the status of an evicted quota Workload. The stage controller evicts the other stages of its JobSet.
func (m *Manager) Evict(w *kueue.Workload, status *kueue.WorkloadStatus, why string) {
	m.Log("evict %s %s", cluster.SubjectOf(w), why)
	m.PutWorkload(workloadstatus.Merge(w, status))
}

// reasonOf returns the reason of an eviction by the engine, and the preemptor.
func (m *Manager) reasonOf(d *admission.Evict) string {
	if d.Preemption == nil {
		return d.Reason + ": " + d.Message
	}
	return d.Reason + " " + d.Preemption.Reason + " for " + m.Subject(d.Preemption.Preemptor)
}

// Write applies a decision to the objects, as the writers of the manager do, and settles it.
func (m *Manager) Write(decision admission.Decision) {
	m.Detail("%v %s", m.Now, decision)
	if m.Decided != nil {
		m.Decided(decision)
	}
	switch d := decision.(type) {
	case admission.Admit:
		m.writeAdmission(&d)
	case admission.Evict:
		m.writeEviction(&d)
	case admission.Notice:
		m.writeNotice(&d)
	case admission.Refuse:
		m.writeRefusal(&d)
	}
}

// Settle ends a decision.
func (m *Manager) Settle(id admission.DecisionID) {
	m.call(func(e *admission.Engine) { e.Settle(id) })
}

// isLost reports whether the write of a decision about a quota Workload is to fail now.
func (m *Manager) isLost(w *kueue.Workload) bool {
	i := slices.IndexFunc(m.Failing, func(t scenario.Target) bool { return m.Concerns(t, w) })
	if i >= 0 {
		m.Failing = slices.Delete(m.Failing, i, i+1)
	}
	return i >= 0
}

// target returns the quota Workload of a decision, or nil if the decision is not written.
func (m *Manager) target(verb string, stage admission.StageKey) *kueue.Workload {
	w := m.Workloads[stage]
	switch {
	case w == nil:
		m.ReportViolation("I4: the engine decides to %s %s, which does not exist", verb, stage)
	case m.isLost(w):
		m.Log("%s %s is not written", verb, cluster.SubjectOf(w))
		return nil
	}
	return w
}

func (m *Manager) writeAdmission(d *admission.Admit) {
	defer m.Settle(d.ID)
	w := m.target("admit", d.Stage)
	if w == nil {
		return
	}
	if quotaworkload.HoldsQuota(w) || cluster.IsFinished(w) {
		m.ReportViolation("I4: the engine admits %s once more", cluster.SubjectOf(w))
	}
	status := workloadstatus.Admitted(w, &d.Admission, m.Time())
	if len(d.Checks) > 0 {
		status = workloadstatus.Reserved(w, &d.Admission, d.Checks, m.Time())
	}
	after := workloadstatus.Merge(w, &status)
	m.Object(d.Admission)
	if len(d.Checks) > 0 {
		m.Log("reserve %s%s, checks %s", cluster.SubjectOf(w), details(after), joined(d.Checks))
	} else {
		m.Log("admit %s%s", cluster.SubjectOf(w), details(after))
	}
	m.PutWorkload(after)
	m.AuditAdmission(after)
}

func joined(checks []kueue.AdmissionCheckReference) string {
	words := make([]string, len(checks))
	for i, c := range checks {
		words[i] = string(c)
	}
	return strings.Join(words, ", ")
}

func (m *Manager) writeEviction(d *admission.Evict) {
	defer m.Settle(d.ID)
	if w := m.target("evict", d.Stage); w != nil && cluster.IsEvictable(w) {
		e := workloadstatus.Eviction{Reason: d.Reason, Message: d.Message}
		if d.Preemption != nil {
			e.Preempted = d.Preemption.Reason
			e.Message = workloadstatus.PreemptionMessage(preemptorOf(d.Preemption))
		}
		status := workloadstatus.Evicted(w, e, m.Time())
		m.Evict(w, &status, m.reasonOf(d))
	}
}

// writeNotice writes when a quota Workload will be preempted, or that it will not be.
func (m *Manager) writeNotice(d *admission.Notice) {
	defer m.Settle(d.ID)
	w := m.target("give notice to", d.Stage)
	switch {
	case w == nil || !cluster.IsEvictable(w):
		return
	case d.Preemption == nil:
		m.Log("withdraw notice %s", cluster.SubjectOf(w))
		status := workloadstatus.NoticeWithdrawn(w, m.Time())
		m.PutWorkload(workloadstatus.Merge(w, &status))
	default:
		m.Log("notice %s %s for %s, ends %s", cluster.SubjectOf(w), d.Preemption.Reason, m.Subject(d.Preemption.Preemptor), d.Ends.Format(time.RFC3339))
		status := workloadstatus.Noticed(w, d.Ends, preemptorOf(d.Preemption), m.Time())
		m.PutWorkload(workloadstatus.Merge(w, &status))
	}
}

func preemptorOf(p *admission.Preemption) workloadstatus.Preemptor {
	return workloadstatus.Preemptor{UID: p.PreemptorUID, Reason: p.Reason, Path: p.PreemptorPath, VictimPath: p.VictimPath}
}

// writeRefusal reports to the owner why a stage waits, if that has changed.
func (m *Manager) writeRefusal(d *admission.Refuse) {
	w := m.Workloads[d.Stage]
	if w == nil || m.IsQuiet {
		return
	}
	old := workloadstatus.WaitOf(w)
	if w.Status.Admission != nil || old != nil && old.Reason == d.Refusal.Reason && old.Message == d.Refusal.Message {
		return
	}
	status := workloadstatus.Pending(w, d.Wait(), m.Time())
	m.Log("refuse %s %s", cluster.SubjectOf(w), d.Refusal)
	m.PutWorkload(workloadstatus.Merge(w, &status))
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
