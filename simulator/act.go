package simulator

import (
	"slices"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
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
		if j.plain != nil {
			s.actOnPlain(j, a)
		} else {
			s.actOnPods(j, a)
		}
	case scenario.Evict:
		s.evictByAdministrator(j, a)
	case scenario.Delete:
		s.delete(j)
	case scenario.Suspend:
		s.suspend(j, true)
	case scenario.Resume:
		s.suspend(j, false)
	}
}

// obstacle returns the reason why no action can be applied to a job, or "".
func (s *simulation) obstacle(j *job) string {
	switch {
	case j == nil:
		return "it is not submitted yet"
	case j.isDeleted:
		return "it is deleted"
	case j.plain != nil && j.plain.isOver, j.plain == nil && s.objects.jobSets[j.key()].Status.TerminalState != "":
		return "it is over"
	}
	return ""
}

func (s *simulation) ignore(verb string, t scenario.Target, why string) {
	s.say("ignore %s %s: %s", verb, t, why)
}

// actOnPods makes running pods of a JobSet ready, succeeded or failed.
func (s *simulation) actOnPods(j *job, a scenario.Act) {
	found := false
	for _, job := range s.objects.jobsOf(s.objects.jobSets[j.key()].UID) {
		part, name := a.Target.Part, job.Labels[jobset.ReplicatedJobNameKey]
		p := s.podsOf(job)
		if part != "" && part != name && part != j.stageOf(job).Name || p.count(isAny) == 0 || !childjob.IsRunning(job) {
			continue
		}
		found = true
		if a.Action == scenario.Fail {
			s.failJob(job)
			return
		}
		p.set(a.Action == scenario.Finish)
		s.dirtyJobs[job.UID] = true
	}
	if !found {
		s.ignore(string(a.Action), a.Target, "none of its pods run")
	}
}

// suspend writes spec.suspend of a JobSet, as its user does.
func (s *simulation) suspend(j *job, suspend bool) { //nolint:revive // the value of a field
	if j.plain != nil {
		j.plain.isSuspended = suspend
		if suspend {
			s.stopPlain(j)
		} else {
			s.touch(j.Namespace, j.Name)
		}
		return
	}
	js := s.objects.jobSets[j.key()].DeepCopy()
	js.Spec.Suspend = &suspend
	s.putJobSet(js)
}

// evictByAdministrator evicts a job although the engine has not asked for it.
func (s *simulation) evictByAdministrator(j *job, a scenario.Act) {
	all := s.workloadsOf(j)
	first := slices.IndexFunc(all, func(w *kueue.Workload) bool { return s.concerns(a.Target, w) && isEvictable(w) })
	if first < 0 {
		s.ignore(string(a.Action), a.Target, "it holds no quota, or gives it back already")
		return
	}
	e := workloadstatus.Eviction{Reason: kueue.WorkloadEvictedDueToNodeFailures, Message: "an administrator wants its nodes"}
	status := workloadstatus.Evicted(all[first], e, s.time())
	s.evict(all[first], &status, e.Reason+": "+e.Message)
}

// isEvictable reports whether a quota Workload holds quota and is not being evicted.
func isEvictable(w *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(w) && !isFinished(w) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
}

// evict writes the status of an evicted quota Workload. The stage controller evicts the other stages of its JobSet.
func (s *simulation) evict(w *kueue.Workload, status *kueue.WorkloadStatus, why string) {
	s.say("evict %s %s", s.subjectOf(w), why)
	s.put(workloadstatus.Merge(w, status))
	if j := s.ownerOf(w); j.plain != nil && !j.plain.isStopping {
		s.stopPlain(j)
	}
}

// reasonOf returns the reason of an eviction by the engine, and the preemptor.
func (s *simulation) reasonOf(d *admission.Evict) string {
	if d.Preemption == nil {
		return d.Reason + ": " + d.Message
	}
	return d.Reason + " " + d.Preemption.Reason + " for " + s.subject(d.Preemption.Preemptor)
}

// delete deletes a job. Its quota Workloads stay until its pods have terminated.
func (s *simulation) delete(j *job) {
	j.isDeleted = true
	if j.plain != nil {
		s.deletePlain(j)
		return
	}
	js := s.objects.jobSets[j.key()]
	delete(s.objects.jobSets, j.key())
	delete(s.objects.plans, js.UID)
	s.observe(admission.PlanGone{UID: js.UID})
	// The garbage collector deletes what belongs to the JobSet.
	for _, job := range s.objects.jobsOf(js.UID) {
		s.deleteJob(job)
	}
	for _, w := range s.workloadsOf(j) {
		s.deleteWorkload(w)
	}
	s.touch(j.Namespace, j.Name)
}

// resize gives a ReplicatedJob another number of pods.
func (s *simulation) resize(r scenario.Resize) error {
	j := s.jobs[r.Target.Name]
	if why := s.obstacle(j); why != "" {
		s.ignore("resize", r.Target, why)
		return nil
	}
	after, err := j.Resized(r.Target.Part, r.Pods)
	if err != nil {
		return err
	}
	after.Priority = j.Priority
	j.Submission = after
	js := s.objects.jobSets[j.key()].DeepCopy()
	for i := range js.Spec.ReplicatedJobs {
		spec := &after.Spec.ReplicatedJobs[i].Template.Spec
		js.Spec.ReplicatedJobs[i].Template.Spec.Parallelism, js.Spec.ReplicatedJobs[i].Template.Spec.Completions = spec.Parallelism, spec.Completions
	}
	js.Generation++
	s.putJobSet(js)
	s.putPlan(j)
	return nil
}

// set changes quota Workloads, the current ones and those that replace them. The priority, the queue and the gates of a JobSet are changed
// in the JobSet.
func (s *simulation) set(set scenario.Set) error {
	j := s.jobs[set.Target.Name]
	if why := s.obstacle(j); why != "" {
		s.ignore("set", set.Target, why)
		return nil
	}
	j.settings = append(j.settings, set)
	if err := s.setOwner(j, set); err != nil {
		return err
	}
	for _, w := range s.workloadsOf(j) {
		if isFinished(w) || !s.concerns(set.Target, w) {
			continue
		}
		after := w.DeepCopy()
		if err := set.Fields.ApplyWorkload(after); err != nil {
			return err
		}
		after.Generation++
		s.put(after)
	}
	s.touch(j.Namespace, j.Name)
	return nil
}

// setOwner changes the job itself.
func (s *simulation) setOwner(j *job, set scenario.Set) error {
	var wanted kueue.Workload
	if err := set.Fields.ApplyWorkload(&wanted); err != nil {
		return err
	}
	if wanted.Spec.Priority != nil {
		after := *j.Submission
		after.Priority, after.Class = *wanted.Spec.Priority, ""
		j.Submission = &after
	}
	gates, hasGates := set.Fields.Gates()
	if j.plain != nil {
		if hasGates {
			j.plain.gates = gates
		}
		return nil
	}
	js := s.objects.jobSets[j.key()].DeepCopy()
	if hasGates {
		quotaworkload.SetGates(js, gates)
	}
	if wanted.Spec.QueueName != "" {
		js.Labels[apis.QueueLabel] = string(wanted.Spec.QueueName)
	}
	s.putJobSet(js)
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
	for _, w := range s.workloadsOf(j) {
		if isFinished(w) || !quotaworkload.HoldsQuota(w) || !s.concerns(c.Target, w) {
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
