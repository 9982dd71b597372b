package simulator

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// submit creates a job.
func (s *simulation) submit(submission scenario.Submission) error {
	sub := &submission
	s.NeedNamespace(sub.Namespace)
	j := &cluster.UserJob{Submission: sub, Created: s.Time()}
	if class := s.PriorityClasses[sub.Class]; class != nil {
		sub.Priority = class.Value
	} else if sub.Class != "" {
		return fmt.Errorf("WorkloadPriorityClass %q does not exist: declare it with priorityclass", sub.Class)
	}
	if s.Workloads[j.Key()] != nil {
		return fmt.Errorf("quota Workload %s exists already: choose another name", j.Key())
	}
	if sub.IsQueued {
		s.QueuedJobs[j.Key()] = j
		s.PutJob(j.NewJob())
		s.ReconcileQueuedJob(j.Key())
		return nil
	}
	if !sub.IsJobSet {
		s.PlainJobs[j.Key()] = j
		s.plainJobController.Submit(j)
		return nil
	}
	s.UserJobs[j.Key()] = j
	s.PutJobSet(j.NewJobSet())
	s.PutPlan(j)
	for len(s.JobSetQueue.Changed) > 0 {
		s.reconcileJobSets()
	}
	return nil
}

// act applies an action to a job. An action that is impossible, for instance because a stage runs later than the scenario expects, is
// reported and skipped.
func (s *simulation) act(a scenario.Act) {
	j := s.Named(a.Target)
	if why := s.obstacle(j); why != "" {
		s.ignore(string(a.Action), a.Target, why)
		return
	}
	switch a.Action {
	case scenario.Ready, scenario.Finish, scenario.Fail:
		if j.Plain != nil {
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
	case scenario.Checkpoint:
		js := s.JobSets[j.Key()].DeepCopy()
		metav1.SetMetaDataAnnotation(&js.ObjectMeta, apis.CheckpointedAtAnnotation, s.Time().Format(time.RFC3339))
		s.PutJobSet(js)
		s.PutPlan(j)
	}
}

// obstacle returns the reason why no action can be applied to a job, or "".
func (s *simulation) obstacle(j *cluster.UserJob) string {
	switch {
	case j == nil:
		return "it is not submitted yet"
	case j.IsDeleted:
		return "it is deleted"
	case s.hasFinished(j):
		return "it has finished"
	}
	return ""
}

func (s *simulation) hasFinished(j *cluster.UserJob) bool {
	switch {
	case j.Plain != nil:
		return j.Plain.HasEnded
	case j.IsQueued:
		job := s.QueuedJob(j.Key())
		return childjob.IsFinished(job, batchv1.JobComplete) || cluster.IsFailed(job)
	}
	return s.JobSets[j.Key()].Status.TerminalState != ""
}

// jobsOf returns the Jobs of a submission.
func (s *simulation) jobsOf(j *cluster.UserJob) []*batchv1.Job {
	if j.IsQueued {
		return []*batchv1.Job{s.QueuedJob(j.Key())}
	}
	return s.JobsOf(s.JobSets[j.Key()].UID)
}

// ignore reports that an action is skipped.
func (s *simulation) ignore(verb string, t scenario.Target, why string) {
	s.Log("ignore %s %s: %s", verb, t, why)
}

// actOnPods makes running pods of a JobSet ready, succeeded or failed.
func (s *simulation) actOnPods(j *cluster.UserJob, a scenario.Act) {
	found := false
	for _, job := range s.jobsOf(j) {
		part, name := a.Target.Part, job.Labels[jobset.ReplicatedJobNameKey]
		p := s.PodsOf(job)
		if part != "" && part != name && part != j.StageOf(job).Name || p.Count(cluster.IsAny) == 0 || !childjob.IsRunning(job) {
			continue
		}
		found = true
		if a.Action == scenario.Fail {
			s.jobController.Fail(job)
			return
		}
		p.Set(a.Action == scenario.Finish)
		s.JobQueue[job.UID] = true
	}
	if !found {
		s.ignore(string(a.Action), a.Target, "none of its pods is running")
	}
}

// actOnPlain makes the pods of a job ready, succeeded or failed.
func (s *simulation) actOnPlain(j *cluster.UserJob, a scenario.Act) {
	p := j.Plain
	switch {
	case !p.IsReleased:
		s.ignore(string(a.Action), a.Target, "none of its pods is running")
		return
	case a.Action == scenario.Fail:
		s.plainJobController.Fail(j)
		return
	}
	for name, pods := range p.Pods {
		if a.Target.Part == "" || a.Target.Part == name || a.Target.Part == j.Plan.Stages[0].Name {
			pods.Set(a.Action == scenario.Finish)
		}
	}
	s.plainJobController.Reconcile(j)
}

// suspend writes spec.suspend of a JobSet or a Job.
func (s *simulation) suspend(j *cluster.UserJob, suspend bool) { //nolint:revive // the value of a field
	if j.Plain != nil {
		j.Plain.IsSuspended = suspend
		if suspend {
			s.plainJobController.Stop(j)
		} else {
			s.Touch(j.Namespace, j.Name)
		}
		return
	}
	if j.IsQueued {
		// An admission policy records what the user wants. It lets only the manager resume a Job.
		job := s.QueuedJob(j.Key()).DeepCopy()
		delete(job.Annotations, apis.SuspendedAnnotation)
		if suspend {
			job.Spec.Suspend = &suspend
			metav1.SetMetaDataAnnotation(&job.ObjectMeta, apis.SuspendedAnnotation, "true")
		}
		s.PutJob(job)
		return
	}
	js := s.JobSets[j.Key()].DeepCopy()
	js.Spec.Suspend = new(suspend || !jobsetstate.IsStarted(js)) // an admission policy keeps a JobSet suspended that the manager has not started
	s.PutJobSet(js)
}

// evictByAdministrator evicts a job although the engine has not asked for it.
func (s *simulation) evictByAdministrator(j *cluster.UserJob, a scenario.Act) {
	all := s.WorkloadsOf(j)
	first := slices.IndexFunc(all, func(w *kueue.Workload) bool { return s.Concerns(a.Target, w) && cluster.IsEvictable(w) })
	if first < 0 {
		s.ignore(string(a.Action), a.Target, "it holds no quota, or is being evicted")
		return
	}
	e := workloadstatus.Eviction{Reason: kueue.WorkloadEvictedDueToNodeFailures, Message: "an administrator drained its nodes"}
	status := workloadstatus.Evicted(all[first], e, s.Time())
	s.Evict(all[first], &status, e.Reason+": "+e.Message)
}

// delete deletes a job. Its quota Workloads stay until its pods have terminated.
func (s *simulation) delete(j *cluster.UserJob) {
	j.IsDeleted = true
	if j.Plain != nil {
		s.plainJobController.Delete(j)
		return
	}
	jobs := s.jobsOf(j)
	if j.IsJobSet {
		s.DropJobSet(s.JobSets[j.Key()])
	}
	// The garbage collector deletes what belongs to the JobSet or the Job.
	for _, job := range jobs {
		s.DeleteJob(job)
	}
	for _, w := range s.WorkloadsOf(j) {
		s.DeleteWorkload(w)
	}
}

// resize gives a ReplicatedJob another number of pods.
func (s *simulation) resize(r scenario.Resize) error {
	j := s.Named(r.Target)
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
	if j.IsQueued {
		s.PutJob(resizedJob(s.QueuedJob(j.Key()), r.Pods))
		return nil
	}
	js := s.JobSets[j.Key()].DeepCopy()
	for i := range js.Spec.ReplicatedJobs {
		spec := &after.Spec.ReplicatedJobs[i].Template.Spec
		js.Spec.ReplicatedJobs[i].Template.Spec.Parallelism, js.Spec.ReplicatedJobs[i].Template.Spec.Completions = spec.Parallelism, spec.Completions
	}
	js.Generation++
	s.PutJobSet(js)
	s.PutPlan(j)
	return nil
}

// set changes quota Workloads, the current ones and those that replace them. The priority, the queue and the gates of a JobSet are changed
// in the JobSet.
func (s *simulation) set(set scenario.Set) error {
	j := s.Named(set.Target)
	if why := s.obstacle(j); why != "" {
		s.ignore("set", set.Target, why)
		return nil
	}
	j.Settings = append(j.Settings, set)
	if err := s.setOwner(j, set); err != nil {
		return err
	}
	for _, w := range s.WorkloadsOf(j) {
		if cluster.IsFinished(w) || !s.Concerns(set.Target, w) {
			continue
		}
		after := w.DeepCopy()
		if err := set.Fields.Apply(after); err != nil {
			return err
		}
		after.Generation++
		s.PutWorkload(after)
	}
	s.Touch(j.Namespace, j.Name)
	return nil
}

// setOwner changes the job itself.
func (s *simulation) setOwner(j *cluster.UserJob, set scenario.Set) error {
	var wanted kueue.Workload
	if err := set.Fields.Apply(&wanted); err != nil {
		return err
	}
	if wanted.Spec.Priority != nil {
		after := *j.Submission
		after.Priority, after.Class = *wanted.Spec.Priority, ""
		j.Submission = &after
	}
	gates, hasGates := set.Fields.Gates()
	if j.Plain != nil {
		if hasGates {
			j.Plain.Gates = gates
		}
		return nil
	}
	if j.IsQueued {
		s.setJob(j, set, &wanted)
		return nil
	}
	js := s.JobSets[j.Key()].DeepCopy()
	if hasGates {
		quotaworkload.SetGates(js, gates)
	}
	if wanted.Spec.QueueName != "" {
		js.Labels[apis.QueueLabel] = string(wanted.Spec.QueueName)
	}
	s.PutJobSet(js)
	return nil
}

// setJob changes a queued Job.
func (s *simulation) setJob(j *cluster.UserJob, set scenario.Set, wanted *kueue.Workload) {
	job := s.QueuedJob(j.Key()).DeepCopy()
	if gates, hasGates := set.Fields.Gates(); hasGates {
		quotaworkload.SetGates(job, gates)
	}
	if wanted.Spec.QueueName != "" {
		job.Labels[apis.QueueLabel] = string(wanted.Spec.QueueName)
	}
	if seconds := wanted.Spec.MaximumExecutionTimeSeconds; seconds != nil {
		job.Labels[apis.MaxExecTimeLabel] = strconv.Itoa(int(*seconds))
	}
	s.PutJob(job)
}

// resizedJob returns a Job whose user has asked for another number of pods. While it runs, an admission policy keeps it at the size that has quota.
func resizedJob(job *batchv1.Job, pods int32) *batchv1.Job {
	after := job.DeepCopy()
	delete(after.Annotations, apis.SizeAnnotation)
	delete(after.Annotations, apis.CompletionsAnnotation)
	if childjob.IsRunning(job) && pods > childjob.PodsAtOnce(job) {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.SizeAnnotation, strconv.Itoa(int(pods)))
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.CompletionsAnnotation, strconv.Itoa(int(pods)))
	} else {
		after.Spec.Parallelism, after.Spec.Completions = &pods, &pods
	}
	after.Generation++
	return after
}

// check writes the states of AdmissionChecks.
func (s *simulation) check(c scenario.Check) {
	j := s.Named(c.Target)
	if why := s.obstacle(j); why != "" {
		s.ignore("check", c.Target, why)
		return
	}
	found := false
	for _, w := range s.WorkloadsOf(j) {
		if cluster.IsFinished(w) || !quotaworkload.HoldsQuota(w) || !s.Concerns(c.Target, w) {
			continue
		}
		after := w.DeepCopy()
		if !s.setChecks(after, c.States) {
			continue
		}
		found = true
		s.PutWorkload(after)
	}
	if !found {
		s.ignore("check", c.Target, "it does not wait for a check of this name")
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
			check.State, check.LastTransitionTime = states[at].State, s.Timestamp()
			if after := states[at].AfterSeconds; after > 0 {
				check.RequeueAfterSeconds = &after
			}
		}
	}
	return found
}
