package simulator

import (
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// write applies a decision to the objects, as the writers of the manager do, and settles it.
func (s *simulation) write(decision admission.Decision) {
	s.out.detail("%v %s", s.now, decision)
	switch d := decision.(type) {
	case admission.Admit:
		s.writeAdmission(&d)
	case admission.Evict:
		s.writeEviction(&d)
	case admission.Refuse:
		s.writeRefusal(&d)
	}
}

// settle ends a decision.
func (s *simulation) settle(id admission.DecisionID) {
	s.call(func(e *admission.Engine) { e.Settle(id) })
	for _, violation := range s.engine.Violations() {
		s.violation("%s", violation)
	}
}

// isLost reports whether the write of a decision about a quota Workload is to fail now.
func (s *simulation) isLost(w *kueue.Workload) bool {
	i := slices.IndexFunc(s.failing, func(t scenario.Target) bool { return s.concerns(t, w) })
	if i >= 0 {
		s.failing = slices.Delete(s.failing, i, i+1)
	}
	return i >= 0
}

func (s *simulation) writeAdmission(d *admission.Admit) {
	w := s.objects.workloads[d.Stage]
	if w == nil {
		s.violation("I4: the engine admits %s, which does not exist", d.Stage)
		s.settle(d.ID)
		return
	}
	if s.isLost(w) {
		s.say("admit %s is not written", s.subjectOf(w))
		s.settle(d.ID)
		return
	}
	if quotaworkload.HoldsQuota(w) || isFinished(w) {
		s.violation("I4: the engine admits %s once more", s.subjectOf(w))
	}
	status := workloadstatus.Admitted(w, &d.Admission, s.time())
	if len(d.Checks) > 0 {
		status = workloadstatus.Reserved(w, &d.Admission, d.Checks, s.time())
	}
	after := workloadstatus.Merge(w, &status)
	s.out.object(d.Admission)
	if len(d.Checks) > 0 {
		s.say("reserve %s%s, checks %s", s.subjectOf(w), details(after), joined(d.Checks))
	} else {
		s.say("admit %s%s", s.subjectOf(w), details(after))
	}
	s.put(after)
	s.settle(d.ID)
	s.auditAdmission(after)
}

func joined(checks []kueue.AdmissionCheckReference) string {
	words := make([]string, len(checks))
	for i, c := range checks {
		words[i] = string(c)
	}
	return strings.Join(words, ", ")
}

func (s *simulation) writeEviction(d *admission.Evict) {
	w := s.objects.workloads[d.Stage]
	if w == nil {
		s.violation("I4: the engine evicts %s, which does not exist", d.Stage)
		s.settle(d.ID)
		return
	}
	if s.isLost(w) {
		s.say("evict %s is not written", s.subjectOf(w))
		s.settle(d.ID)
		return
	}
	if isEvictable(w) {
		e := workloadstatus.Eviction{Reason: d.Reason, Message: d.Message}
		if d.Preemption != nil {
			e.Preempted = d.Preemption.Reason
		}
		status := workloadstatus.Evicted(w, e, s.time())
		s.evict(w, &status, s.reasonOf(d))
	}
	s.settle(d.ID)
}

// writeRefusal reports to the owner why a stage waits, if that has changed.
func (s *simulation) writeRefusal(d *admission.Refuse) {
	w := s.objects.workloads[d.Stage]
	if w == nil {
		return
	}
	old := workloadstatus.WaitOf(w)
	if w.Status.Admission != nil || old != nil && old.Reason == d.Refusal.Reason && old.Message == d.Refusal.Message {
		return
	}
	status := workloadstatus.Pending(w, d.Wait(), s.time())
	s.say("refuse %s %s", s.subjectOf(w), d.Refusal)
	s.put(workloadstatus.Merge(w, &status))
}

// explain prints why the stages of a job wait.
func (s *simulation) explain(t scenario.Target) {
	j := s.jobs[t.Name]
	if j == nil {
		s.ignore("explain", t, "it is not submitted yet")
		return
	}
	for _, w := range s.workloadsOf(j) {
		if !s.concerns(t, w) {
			continue
		}
		refusals := s.engine.Explain(keyOf(w))
		for _, refusal := range refusals {
			s.say("explain %s %s", s.subjectOf(w), refusal)
		}
		if len(refusals) == 0 {
			s.say("explain %s: %s", s.subjectOf(w), standing(w))
		}
	}
}

// standing describes the state of a quota Workload that no check refuses.
func standing(w *kueue.Workload) string {
	switch {
	case isFinished(w):
		return "it has finished"
	case quotaworkload.HoldsQuota(w):
		return fmt.Sprintf("it holds quota in %s", w.Status.Admission.ClusterQueue)
	}
	return "nothing is in its way"
}
