package stages

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// ensureGangs makes sure that the objects of a stage's gangs exist before its Jobs start, and reports whether the Jobs may start. Objects
// that no longer fit stay while pods still use them.
func (w *Step) ensureGangs(s *jobsetstate.Snapshot, st *stage) bool {
	if wrong := s.Gangs.ToRecreate(st.index); len(wrong) > 0 && !st.hasPods {
		w.DeleteGangs = append(w.DeleteGangs, wrong...)
		return false
	}
	if st.isResizing(s) {
		return false
	}
	if g := (EnsureGangs{st.Name, s.Gangs.Missing(st.index), s.Gangs.Drifted(st.index)}); len(g.Missing)+len(g.Drifted) > 0 {
		w.EnsureGangs = append(w.EnsureGangs, g)
	}
	return true
}

// An EnsureGangs has the writes that must precede the start of the Jobs of a stage.
type EnsureGangs struct {
	Stage string
	// Missing has objects to be created, and amiss existing objects that have drifted.
	Missing []*unstructured.Unstructured
	Drifted []schedulergang.Update
}

// isResizing reports whether the JobSet controller still has to resize a Job of a gang. Kubernetes rejects that resize once the gang has a
// PodGroup.
func (st *stage) isResizing(s *jobsetstate.Snapshot) bool {
	return slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool {
		index, ok := childjob.Index(job)
		return ok && s.Gangs != nil && childjob.IsHeld(job) && childjob.IsIndexed(&job.Spec) && s.Gangs.ObjectOf(jobsetstate.ReplicatedJobOf(job), index) != "" &&
			childjob.PodsAtOnce(job) != st.podsPerJob(st.podSetOf(job))
	})
}

// resizeGangs deletes the objects of gangs of a suspended JobSet whose size has changed. While the PodGroup of the old size exists, the
// JobSet controller can neither resize their Jobs nor, since the resize fails first, suspend them.
func (w *Step) resizeGangs(s *jobsetstate.Snapshot, st *stage) {
	wrong := s.Gangs.ToRecreate(st.index)
	if len(wrong) == 0 {
		return
	}
	for _, job := range st.jobs {
		if childjob.IsNoticed(job) {
			w.HoldJobs = append(w.HoldJobs, job)
		}
	}
	if !st.hasPods {
		w.DeleteGangs = append(w.DeleteGangs, wrong...)
	}
}

// ending returns the held Jobs of a stage that have to wait for pods to terminate, by name: a pod may still run that the Job created before
// it was held, or that an earlier Job of the same name created. For a gang it returns all Jobs: a scheduler counts a terminating pod of the
// same attempt as a placed member, and would place the recreated pods one by one.
//
// suspended, and resumed before the workers have terminated:  driver held, workers held -> both are released when the last worker has
// terminated.
func (st *stage) ending(s *jobsetstate.Snapshot) map[string]bool {
	held := slices.DeleteFunc(slices.Clone(st.jobs), func(job *batchv1.Job) bool { return !childjob.IsHeld(job) })
	podsOf := s.PodsByJob()
	names, gangs := map[string]bool{}, map[string]bool{}
	isOfEarlierAttempt := func(pod *corev1.Pod) bool {
		return pod.Labels[jobsetstate.RestartAttemptLabel] != jobsetstate.AttemptOf(s.JobSet)
	}
	for _, job := range held {
		if childjob.IsRunEnding(job, podsOf(job)) {
			names[job.Name] = true
		}
		if childjob.IsRunEnding(job, slices.DeleteFunc(slices.Clone(podsOf(job)), isOfEarlierAttempt)) {
			gangs[s.GangOf(job)] = true
		}
	}
	for _, job := range held {
		if gang := s.GangOf(job); gang != "" && gangs[gang] {
			names[job.Name] = true
		}
	}
	return names
}

// spent returns the Jobs that keep gangs from starting as a whole, and the names of these gangs: some of their pods succeeded before the
// JobSet was suspended, and fewer pods are left than the gang requires. Schedulers do not count terminated pods, so the others would wait
// forever. spent leaves out gangs of which a Job runs. The failure policy of the JobSet handles Jobs that have failed or are about to fail.
func (st *stage) spent(s *jobsetstate.Snapshot, ending map[string]bool) (jobs []*batchv1.Job, gangs map[string]bool) {
	runs, starts := map[string]bool{}, map[string]bool{}
	for _, job := range st.jobs {
		gang := s.GangOf(job)
		runs[gang] = runs[gang] || childjob.IsRunning(job)
		starts[gang] = starts[gang] || childjob.IsHeld(job) && !ending[job.Name] && !st.hasSucceeded(job)
	}
	gangs = map[string]bool{}
	for _, job := range st.jobs {
		gang := s.GangOf(job)
		fails := childjob.IsFinished(job, batchv1.JobFailed) || childjob.IsFinished(job, batchv1.JobFailureTarget)
		lacksPods := podsLeft(job) < childjob.PodsAtOnce(job) && !fails
		if gang != "" && starts[gang] && !runs[gang] && lacksPods {
			jobs, gangs[gang] = append(jobs, job), true
		}
	}
	return jobs, gangs
}

// podsLeft returns how many pods of a Job still have to succeed.
func podsLeft(job *batchv1.Job) int32 {
	return ptr.Deref(job.Spec.Completions, ptr.Deref(job.Spec.Parallelism, 1)) - job.Status.Succeeded
}

// ReportRefusedGangs reports that a stage waits for gang objects that the API server rejects. The reason is one of the condition
// GangScheduling, and help says what to do.
func (w *Step) ReportRefusedGangs(s *jobsetstate.Snapshot, stage, reason, help string, refusal error) {
	message := fmt.Sprintf("stage %q starts no Jobs until the objects of its gangs exist, which the API server rejects; %s: %v", stage, help, refusal)
	w.Complaints = append(w.Complaints, message)
	reported := apimeta.FindStatusCondition(w.Conditions, jobsetstatus.GangScheduling)
	if reported != nil && (reported.Reason == jobsetstatus.GangsRefused || reported.Reason == jobsetstatus.GangsNotServed) {
		return
	}
	others := slices.DeleteFunc(w.Conditions, func(c metav1.Condition) bool { return c.Type == jobsetstatus.GangScheduling })
	w.Conditions = jobsetstatus.WithGangs(s.JobSet, others, reason, message)
}
