package simulator

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// act applies an action to a job. An action that is impossible, for instance because a stage runs later than the scenario expects, is
// reported and skipped.
func (s *simulation) act(a scenario.Act) {
	j := s.jobs[a.Target.Name]
	if why := s.obstacle(j); why != "" {
		s.ignore(string(a.Action), a.Target, why)
		return
	}
	switch a.Action {
	case scenario.Ready, scenario.Finish, scenario.Fail:
		s.actOnPods(j, a)
	case scenario.Evict:
		s.evictByAdministrator(j, a)
	case scenario.Delete:
		s.delete(j)
	case scenario.Suspend:
		j.suspended = true
		s.stop(j)
	case scenario.Resume:
		j.suspended = false
		s.reconcileJob(j)
	}
}

// obstacle returns the reason why no action can be applied to a job, or "".
func (s *simulation) obstacle(j *job) string {
	switch {
	case j == nil:
		return "it is not submitted yet"
	case j.isDeleted:
		return "it is deleted"
	case j.isOver:
		return "it is over"
	}
	return ""
}

func (s *simulation) ignore(verb string, t scenario.Target, why string) {
	s.say("ignore %s %s: %s", verb, t, why)
}

// actOnPods makes running pods ready, succeeded or failed.
func (s *simulation) actOnPods(j *job, a scenario.Act) {
	found := false
	for _, st := range j.stages {
		if !j.includes(a.Target, st) || !st.isReleased {
			continue
		}
		found = true
		if a.Action == scenario.Fail {
			s.failJob(j, st)
			return
		}
		for _, name := range j.meant(a.Target, st) {
			for _, b := range j.pods[name].batches {
				b.isReady, b.hasSucceeded = true, b.hasSucceeded || a.Action == scenario.Finish
			}
		}
	}
	if !found {
		s.ignore(string(a.Action), a.Target, "none of its pods run")
		return
	}
	s.reconcileJob(j)
}

// meant returns the ReplicatedJobs of a stage that a target names.
func (j *job) meant(t scenario.Target, st *stage) []string {
	if slices.Contains(st.ReplicatedJobs, t.Part) {
		return []string{t.Part}
	}
	return st.ReplicatedJobs
}

// evictByAdministrator evicts a job although the engine has not asked for it.
func (s *simulation) evictByAdministrator(j *job, a scenario.Act) {
	workloadRefs := j.workloadRefs()
	first := slices.IndexFunc(workloadRefs, func(p workloadRef) bool { return j.concerns(a.Target, p) && s.isEvictable(p) })
	if first < 0 {
		s.ignore(string(a.Action), a.Target, "it holds no quota, or gives it back already")
		return
	}
	e := workloadstatus.Eviction{Reason: kueue.WorkloadEvictedDueToNodeFailures, Message: "an administrator wants its nodes"}
	status := workloadstatus.Evicted(s.objects.workloads[workloadRefs[first].key], e, s.time())
	s.evict(j, workloadRefs[first], &status, e.Reason+": "+e.Message)
}

// isEvictable reports whether a quota Workload holds quota and is not being evicted.
func (s *simulation) isEvictable(p workloadRef) bool {
	w := s.objects.workloads[p.key]
	return w != nil && quotaworkload.HoldsQuota(w) && !isFinished(w) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
}

// evict writes the status of an evicted quota Workload. If it is that of a stage, all other stages of its job that hold quota are evicted
// with it, and their pods stopped. A growth is evicted alone.
func (s *simulation) evict(j *job, first workloadRef, status *kueue.WorkloadStatus, why string) {
	after := workloadstatus.Merge(s.objects.workloads[first.key], status)
	s.say("evict %s %s", j.subject(first), why)
	s.put(after)
	if first.growth > 0 {
		s.reconcileJob(j)
		return
	}
	for _, st := range j.stages {
		if s.isEvictable(st.own) {
			w := s.objects.workloads[st.own.key]
			status := workloadstatus.Evicted(w, workloadstatus.EvictionOf(after), s.time())
			s.say("evict %s with %s", j.subject(st.own), j.subject(first))
			s.put(workloadstatus.Merge(w, &status))
		}
	}
	if !j.stopping {
		s.stop(j)
	}
}

// reasonOf returns the reason of an eviction by the engine, and the preemptor.
func (s *simulation) reasonOf(d *admission.Evict) string {
	if d.Preemption == nil {
		return d.Reason + ": " + d.Message
	}
	return d.Reason + " " + d.Preemption.Reason + " for " + s.subject(d.Preemption.Preemptor)
}

// delete removes a job. Its quota Workloads stay until its pods have terminated.
func (s *simulation) delete(j *job) {
	j.isDeleted = true
	if j.IsJobSet {
		delete(s.objects.plans, j.uid)
		s.observe(admission.PlanGone{UID: j.uid})
	}
	for _, p := range j.workloadRefs() {
		w := s.objects.workloads[p.key]
		if w == nil || !quotaworkload.HoldsQuota(w) || !p.stage.isReleased && !j.stopping {
			if w != nil && quotaworkload.HoldsQuota(w) && !isFinished(w) {
				s.say("stop %s", j.subject(p))
			}
			s.drop(p)
			continue
		}
		after := w.DeepCopy()
		after.DeletionTimestamp = &metav1.Time{Time: s.time().Truncate(time.Second)}
		s.put(after)
	}
	s.stop(j)
}

// set changes quota Workloads, the current ones and those that replace them.
func (s *simulation) set(set scenario.Set) error {
	j := s.jobs[set.Target.Name]
	if why := s.obstacle(j); why != "" {
		s.ignore("set", set.Target, why)
		return nil
	}
	j.settings = append(j.settings, set)
	for _, p := range j.workloadRefs() {
		w := s.objects.workloads[p.key]
		if w == nil || isFinished(w) || !j.concerns(set.Target, p) {
			continue
		}
		if gates, ok := set.Fields.Gates(); ok {
			p.stage.gates = gates
		}
		after := w.DeepCopy()
		if err := set.Fields.ApplyWorkload(after); err != nil {
			return err
		}
		after.Generation++
		j.annotate(p.stage, after)
		s.put(after)
	}
	s.reconcileJob(j)
	return nil
}

// check writes the states of AdmissionChecks.
func (s *simulation) check(c scenario.Check) {
	j := s.jobs[c.Target.Name]
	if why := s.obstacle(j); why != "" {
		s.ignore("check", c.Target, why)
		return
	}
	found := false
	for _, p := range j.workloadRefs() {
		w := s.objects.workloads[p.key]
		if w == nil || isFinished(w) || !quotaworkload.HoldsQuota(w) || !j.concerns(c.Target, p) {
			continue
		}
		after := w.DeepCopy()
		if !s.setChecks(after, c.States) {
			continue
		}
		found = true
		s.put(after)
	}
	if !found {
		s.ignore("check", c.Target, "it waits for no check of this name")
	}
}
