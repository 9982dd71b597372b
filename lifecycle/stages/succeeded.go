package stages

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// A Job that has succeeded may disappear: its time to live expires (ttlSecondsAfterFinished), or a user deletes it. The JobSet controller
// then recreates it. A success counts for the whole attempt, so the new Job stays held:
//
//	init(finished)  train(runs)      init-0 expires; init-0 is recreated and stays held; train runs on
//	init(finished)  train(finished)  init-0 is marked as succeeded without running; the JobSet completes
//
// The quota Workload of the stage has the record: the condition Finished, and before that an annotation with the Jobs that have succeeded.
// A stage whose success has opened another stage in this attempt has succeeded, too.

// readSucceeded reads which Jobs of a stage its quota Workload records as succeeded in the current attempt.
func (st *stage) readSucceeded() {
	if st.workload == nil || st.stale {
		return
	}
	replicas := map[string]int32{}
	for name, count := range st.tallies {
		replicas[name] = count.replicas
	}
	st.done = childjob.ParseSucceeded(st.workload.Annotations[apis.SucceededJobsAnnotation], replicas)
	if finished := quotaworkload.FindTrue(st.workload, kueue.WorkloadFinished); finished != nil && finished.Reason == kueue.WorkloadFinishedReasonSucceeded {
		st.addSucceeded(st.ReplicatedJobs)
	}
}

func (st *stage) addSucceeded(replicatedJobs []string) {
	for _, name := range replicatedJobs {
		st.done.AddAll(name, st.tallies[name].replicas)
	}
}

// inferSucceeded adds Jobs that must have succeeded because a stage that waited for them was opened in this attempt.
func inferSucceeded(stages []stage) {
	for i := range stages {
		st := &stages[i]
		if st.workload == nil || st.stale || quotaworkload.HasGate(st.workload, apis.StageGate) {
			continue
		}
		for _, c := range st.After {
			if c.Status == stageplan.Succeeded {
				stages[c.Stage].addSucceeded(c.Targets)
			}
		}
	}
}

// hasSucceeded reports whether a Job has succeeded in the current attempt, or replaces one that has.
func (st *stage) hasSucceeded(job *batchv1.Job) bool {
	if childjob.IsFinished(job, batchv1.JobComplete) {
		return true
	}
	index, ok := childjob.Index(job)
	return ok && st.done[jobsetstate.ReplicatedJobOf(job)][index]
}

// forgetSucceeded deletes the record of gangs that run again as a whole: their succeeded Jobs that have disappeared run again with the
// others. Existing succeeded Jobs are recreated (stop, spent).
func (st *stage) forgetSucceeded(s *jobsetstate.Snapshot) {
	runs, starts := map[string]bool{}, map[string]bool{}
	for _, job := range st.jobs {
		gang := s.GangOf(job)
		runs[gang] = runs[gang] || childjob.IsRunning(job)
		starts[gang] = starts[gang] || childjob.IsHeld(job) && !st.hasSucceeded(job)
	}
	st.forgotten = map[string]bool{}
	for _, job := range st.jobs {
		name, gang := jobsetstate.ReplicatedJobOf(job), s.GangOf(job)
		if schedulergang.IsSingleGang(s.JobSet, name) && (st.mustRelease || gang != "" && starts[gang] && !runs[gang]) {
			st.forgotten[name] = true
			delete(st.done, name)
		}
	}
}

// count counts the Jobs of the current attempt by ReplicatedJob, and adds those that have succeeded to the record.
func (st *stage) count(s *jobsetstate.Snapshot) {
	for _, job := range st.leaving {
		if index, ok := childjob.Index(job); ok && !schedulergang.IsSingleGang(s.JobSet, jobsetstate.ReplicatedJobOf(job)) {
			st.done.Add(jobsetstate.ReplicatedJobOf(job), index)
		}
	}
	for name, count := range st.tallies {
		st.tallies[name] = tally{replicas: count.replicas}
	}
	for _, job := range st.jobs {
		name := jobsetstate.ReplicatedJobOf(job)
		count := st.tallies[name]
		switch index, ok := childjob.Index(job); {
		case ok && !st.forgotten[name] && childjob.IsFinished(job, batchv1.JobComplete):
			st.done.Add(name, index)
		case ok && st.done[name][index]:
		case childjob.IsFinished(job, batchv1.JobComplete):
			count.succeeded++
			count.ready++
		case childjob.IsFinished(job, batchv1.JobFailed):
			count.failed++
		case childjob.IsReady(job) && !st.mustRelease: // running Jobs of an evicted stage are about to end
			count.ready++
		}
		st.tallies[name] = count
	}
	for name, indexes := range st.done {
		count := st.tallies[name]
		done := int32(len(indexes)) //nolint:gosec // not more than the replicas
		count.succeeded, count.ready = count.succeeded+done, count.ready+done
		st.tallies[name] = count
	}
}

// record writes into the quota Workload which Jobs of the stage have succeeded. A stage that is about to finish needs no such record.
func (st *stage) record(workload *kueue.Workload) {
	text := st.done.String()
	if text == workload.Annotations[apis.SucceededJobsAnnotation] || text != "" && st.succeeded() && !st.hasPods {
		return
	}
	if text == "" {
		delete(workload.Annotations, apis.SucceededJobsAnnotation)
		return
	}
	workload.Annotations[apis.SucceededJobsAnnotation] = text
}

// skipSucceeded selects held Jobs that replace succeeded ones, once the JobSet controller needs them to have succeeded: it completes a JobSet
// only if all existing Jobs of its success policy have succeeded, and creates the Jobs of a stage only after those that the stage waits
// for. Until then they stay held, so that a time to live of a few seconds does not cause a loop.
func (w *Step) skipSucceeded(s *jobsetstate.Snapshot, stages []stage) {
	needed := isComplete(s, stages) || slices.ContainsFunc(stages, func(st stage) bool { return st.open && st.lacksJobs() })
	if !needed || ptr.Deref(s.JobSet.Spec.Suspend, false) {
		return
	}
	for i := range stages {
		for _, job := range stages[i].jobs {
			if childjob.IsHeld(job) && !childjob.IsEnding(job) && stages[i].hasSucceeded(job) && !s.HasPodOf(job) {
				w.SkipJobs = append(w.SkipJobs, job)
			}
		}
	}
}

// lacksJobs reports whether the JobSet controller still has to create Jobs of a stage that has not succeeded.
func (st *stage) lacksJobs() bool {
	present := map[string]int32{}
	for _, job := range st.jobs {
		present[jobsetstate.ReplicatedJobOf(job)]++
	}
	for name, count := range st.tallies {
		if present[name] < count.replicas && count.succeeded < count.replicas {
			return true
		}
	}
	return false
}

// isComplete reports whether the Jobs of a JobSet satisfy its success policy, as the JobSet controller reads it.
func isComplete(s *jobsetstate.Snapshot, stages []stage) bool {
	policy := jobset.SuccessPolicy{Operator: jobset.OperatorAll}
	if s.JobSet.Spec.SuccessPolicy != nil {
		policy = *s.JobSet.Spec.SuccessPolicy
	}
	expected, succeeded := int32(0), int32(0)
	for i := range stages {
		for name, count := range stages[i].tallies {
			if len(policy.TargetReplicatedJobs) == 0 || slices.Contains(policy.TargetReplicatedJobs, name) {
				expected += count.replicas
				succeeded += count.succeeded
			}
		}
	}
	return succeeded > 0 && (policy.Operator == jobset.OperatorAny || succeeded >= expected)
}

// isDecided reports whether the JobSet controller is about to end or restart the JobSet, or a Job of it, at its next reconcile: the success
// policy is satisfied, or a Job has failed. Until it has, no stage is opened and no Job released.
func isDecided(s *jobsetstate.Snapshot, stages []stage) bool {
	return isComplete(s, stages) || slices.ContainsFunc(stages, func(st stage) bool { return st.hasFailed(s) })
}

// hasFailed reports whether a Job of the stage has failed, or is about to, and the JobSet controller has not decided to replace it yet.
func (st *stage) hasFailed(s *jobsetstate.Snapshot) bool {
	return slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool {
		index, _ := childjob.Index(job)
		restarts, err := strconv.ParseInt(job.Labels[jobsetstate.JobRestartAttemptLabel], 10, 32)
		replaced := err == nil && int32(restarts) < jobsetstate.JobRestartsOf(s.JobSet, jobsetstate.ReplicatedJobOf(job), index)
		return (childjob.IsFinished(job, batchv1.JobFailed) || childjob.IsFinished(job, batchv1.JobFailureTarget)) && !replaced
	})
}
