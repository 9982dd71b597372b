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

// find returns the quota Workload of a decision, if it still exists.
func (s *simulation) find(key admission.StageKey) (*job, workloadRef) {
	for _, name := range sorted(s.jobs) {
		j := s.jobs[name]
		for _, p := range j.workloadRefs() {
			if p.key == key && s.objects.workloads[key] != nil {
				return j, p
			}
		}
	}
	return nil, workloadRef{}
}

// subject returns the name of a quota Workload's owner in the timeline.
func (s *simulation) subject(key admission.StageKey) string {
	if j, p := s.find(key); j != nil {
		return j.subject(p)
	}
	return key.String()
}

// settle ends a decision.
func (s *simulation) settle(id admission.DecisionID) {
	s.engine.Settle(id)
	for _, violation := range s.engine.Violations() {
		s.violation("%s", violation)
	}
}

// isLost reports whether the write of a decision about a quota Workload is to fail now.
func (s *simulation) isLost(j *job, p workloadRef) bool {
	i := slices.IndexFunc(s.failing, func(t scenario.Target) bool { return t.Name == j.Name && j.concerns(t, p) })
	if i >= 0 {
		s.failing = slices.Delete(s.failing, i, i+1)
	}
	return i >= 0
}

func (s *simulation) writeAdmission(d *admission.Admit) {
	j, p := s.find(d.Stage)
	if j == nil {
		s.violation("I4: the engine admits %s, which does not exist", d.Stage)
		s.settle(d.ID)
		return
	}
	if s.isLost(j, p) {
		s.say("admit %s is not written", j.subject(p))
		s.settle(d.ID)
		return
	}
	w := s.objects.workloads[d.Stage]
	if quotaworkload.HoldsQuota(w) || isFinished(w) {
		s.violation("I4: the engine admits %s once more", j.subject(p))
	}
	status := workloadstatus.Admitted(w, &d.Admission, s.time())
	if len(d.Checks) > 0 {
		status = workloadstatus.Reserved(w, &d.Admission, d.Checks, s.time())
	}
	after := workloadstatus.Merge(w, &status)
	s.out.object(d.Admission)
	if len(d.Checks) > 0 {
		s.say("reserve %s%s, checks %s", j.subject(p), details(after), joined(d.Checks))
	} else {
		s.say("admit %s%s", j.subject(p), details(after))
	}
	s.put(after)
	s.settle(d.ID)
	s.auditAdmission(after)
	s.reconcileJob(j)
}

func joined(checks []kueue.AdmissionCheckReference) string {
	words := make([]string, len(checks))
	for i, c := range checks {
		words[i] = string(c)
	}
	return strings.Join(words, ", ")
}

func (s *simulation) writeEviction(d *admission.Evict) {
	j, p := s.find(d.Stage)
	if j == nil {
		s.violation("I4: the engine evicts %s, which does not exist", d.Stage)
		s.settle(d.ID)
		return
	}
	if s.isLost(j, p) {
		s.say("evict %s is not written", j.subject(p))
		s.settle(d.ID)
		return
	}
	if s.isEvictable(p) {
		e := workloadstatus.Eviction{Reason: d.Reason, Message: d.Message}
		if d.Preemption != nil {
			e.Preempted = d.Preemption.Reason
		}
		status := workloadstatus.Evicted(s.objects.workloads[d.Stage], e, s.time())
		s.evict(j, p, &status, s.reasonOf(d))
	}
	s.settle(d.ID)
}

// writeRefusal reports to the owner why a stage waits, if that has changed.
func (s *simulation) writeRefusal(d *admission.Refuse) {
	j, p := s.find(d.Stage)
	if j == nil {
		return
	}
	w := s.objects.workloads[d.Stage]
	old := workloadstatus.WaitOf(w)
	if w.Status.Admission != nil || old != nil && old.Reason == d.Refusal.Reason && old.Message == d.Refusal.Message {
		return
	}
	status := workloadstatus.Pending(w, d.Wait(), s.time())
	s.say("refuse %s %s", j.subject(p), d.Refusal)
	s.put(workloadstatus.Merge(w, &status))
}

// explain prints why the stages of a job wait.
func (s *simulation) explain(t scenario.Target) {
	j := s.jobs[t.Name]
	if j == nil {
		s.ignore("explain", t, "it is not submitted yet")
		return
	}
	for _, p := range j.workloadRefs() {
		if !j.concerns(t, p) {
			continue
		}
		refusals := s.engine.Explain(p.key)
		for _, refusal := range refusals {
			s.say("explain %s %s", j.subject(p), refusal)
		}
		if len(refusals) == 0 {
			s.say("explain %s: %s", j.subject(p), s.standing(p))
		}
	}
}

// standing describes the state of a quota Workload that no check refuses.
func (s *simulation) standing(p workloadRef) string {
	w := s.objects.workloads[p.key]
	switch {
	case w == nil:
		return "it is gone"
	case isFinished(w):
		return "it has finished"
	case quotaworkload.HoldsQuota(w):
		return fmt.Sprintf("it holds quota in %s", w.Status.Admission.ClusterQueue)
	}
	return "nothing is in its way"
}
