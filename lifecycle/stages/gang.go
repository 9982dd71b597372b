package stages

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// ensureGangs makes sure that the objects of a stage's gangs exist before its Jobs start, and reports whether the Jobs may start. Objects
// that no longer fit stay while pods still use them.
func (w *Step) ensureGangs(s *Snapshot, st *stage) bool {
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
func (st *stage) isResizing(s *Snapshot) bool {
	return slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool {
		index, ok := childjob.Index(job)
		return ok && s.Gangs != nil && childjob.IsHeld(job) && childjob.IsIndexed(&job.Spec) && s.Gangs.ObjectOf(replicatedJobOf(job), index) != "" &&
			childjob.PodsAtOnce(job) != st.podsPerJob(st.podSetOf(job))
	})
}

// resizeGangs deletes the objects of gangs of a suspended JobSet whose size has changed. While the PodGroup of the old size exists, the
// JobSet controller can neither resize their Jobs nor, since the resize fails first, suspend them.
func (w *Step) resizeGangs(s *Snapshot, st *stage) {
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
func (st *stage) ending(s *Snapshot) map[string]bool {
	held := map[string]*batchv1.Job{}
	for _, job := range st.jobs {
		if childjob.IsHeld(job) {
			held[job.Name] = job
		}
	}
	names, gangs := map[string]bool{}, map[string]bool{}
	for _, job := range held {
		if ptr.Deref(job.Status.Terminating, 0) > 0 {
			names[job.Name], gangs[s.gangOf(job)] = true, true
		}
	}
	for _, pod := range s.Owned.Pods {
		job := held[pod.Labels[batchv1.JobNameLabel]]
		if job == nil || pod.Labels[jobset.JobSetUIDKey] != job.Labels[jobset.JobSetUIDKey] {
			continue
		}
		names[job.Name] = true
		if pod.Labels[restartAttemptLabel] == attemptOf(s.JobSet) {
			gangs[s.gangOf(job)] = true
		}
	}
	for _, job := range held {
		if gang := s.gangOf(job); gang != "" && gangs[gang] {
			names[job.Name] = true
		}
	}
	return names
}

// spent returns the Jobs that keep gangs from starting as a whole, and the names of these gangs: some of their pods succeeded before the
// JobSet was suspended, and fewer pods are left than the gang requires. Schedulers do not count terminated pods, so the others would wait
// forever. spent leaves out gangs of which a Job runs. The failure policy of the JobSet handles Jobs that have failed or are about to fail.
func (st *stage) spent(s *Snapshot, ending map[string]bool) (jobs []*batchv1.Job, gangs map[string]bool) {
	runs, starts := map[string]bool{}, map[string]bool{}
	for _, job := range st.jobs {
		gang := s.gangOf(job)
		runs[gang] = runs[gang] || childjob.IsRunning(job)
		starts[gang] = starts[gang] || childjob.IsHeld(job) && !ending[job.Name] && !st.hasSucceeded(job)
	}
	gangs = map[string]bool{}
	for _, job := range st.jobs {
		gang := s.gangOf(job)
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

// gangOf returns the name of the gang of a Job, or "".
func (s *Snapshot) gangOf(job *batchv1.Job) string {
	index, ok := childjob.Index(job)
	if !ok || s.Gangs == nil {
		return ""
	}
	return s.Gangs.GangSet.GangOf(replicatedJobOf(job), index)
}

// gangUpdates returns the labels and annotations that put the pods of a Job into their gang. They are not known if the Job belongs to
// another attempt than the status of the JobSet.
func (s *Snapshot) gangUpdates(job *batchv1.Job) (updates []childjob.Update, known bool) {
	index, ok := childjob.Index(job)
	if !ok || s.Gangs == nil {
		return nil, true
	}
	fields := s.Gangs.PodFields(replicatedJobOf(job), index)
	if len(fields.Labels)+len(fields.Annotations) == 0 {
		return nil, true
	}
	updates = []childjob.Update{{By: "its gang would", Update: kueue.PodSetUpdate{Labels: fields.Labels, Annotations: fields.Annotations}}}
	return updates, cmp.Or(job.Labels[jobRestartAttemptLabel], "0") == strconv.Itoa(int(jobRestartsOf(s.JobSet, replicatedJobOf(job), index)))
}

// jobRestartsOf returns how often a single Job was restarted.
func jobRestartsOf(js *jobsetapi.JobSet, replicatedJob string, index int32) int32 {
	for i := range js.Status.ReplicatedJobsStatus {
		if status := &js.Status.ReplicatedJobsStatus[i]; status.Name == replicatedJob && int(index) < len(status.JobRestarts) && index >= 0 {
			return status.JobRestarts[index]
		}
	}
	return 0
}

// withGangs adds the conditions that report the gangs of the JobSet.
func withGangs(s *Snapshot, all []metav1.Condition, wait gangWait) []metav1.Condition {
	reason, message := gangNews(s)
	if wait.reason != "" && (reason == jobsetstatus.GangsKept || reason == jobsetstatus.GangsOfUser) {
		reason, message = wait.reason, wait.message
		all = jobsetstatus.WithGangBlocked(all, message)
	}
	return jobsetstatus.WithGangs(s.JobSet, all, reason, message)
}

func gangNews(s *Snapshot) (reason, message string) {
	switch {
	case s.JobSet.Spec.Scheduling != nil:
		return jobsetstatus.GangsOfJobSet, "spec.scheduling makes the JobSet controller keep the objects of its gangs: Tranche keeps none, and gangConfig changes nothing"
	case s.Scheduler.Problem != "":
		return jobsetstatus.GangsContradicted, s.Scheduler.Problem
	case !s.Scheduler.IsConfigured:
		return jobsetstatus.GangsNotConfigured, "neither gang.provider in the manager's configuration nor the annotation " + apis.GangProviderAnnotation +
			" of the LocalQueue or ResourceFlavor names a scheduler that does"
	case !s.Scheduler.IsServed:
		return jobsetstatus.GangsNotServed, notServed(s.Scheduler.API)
	case s.Gangs == nil:
		return jobsetstatus.GangsMisconfigured, s.Refusal
	}
	if why := s.contradiction(); why != "" {
		return jobsetstatus.GangsContradicted, why
	}
	if job, field := s.namelessJob(); job != "" {
		return jobsetstatus.GangsNotNamed, fmt.Sprintf("the pods of Job %q have no %s, and are placed one by one or not at all: the API server has left"+
			" it out, or the policy tranche-gang-jobs was not there when the Job was created", job, field)
	}
	if taken := s.Gangs.NotOurs(); taken != "" {
		return jobsetstatus.GangsOfUser, taken
	}
	if s.Scheduler.Version == "" {
		return jobsetstatus.GangsKept, fmt.Sprintf("%s, whose PodGroups %s makes", countGangs(s.Gangs.Gangs()), s.Scheduler.Name)
	}
	return jobsetstatus.GangsKept, fmt.Sprintf("%s, each with a PodGroup of %s from when its stage is admitted", countGangs(s.Gangs.Gangs()), s.Scheduler.Version)
}

func countGangs(n int32) string {
	if n == 1 {
		return "1 gang"
	}
	return fmt.Sprintf("%d gangs", n)
}

func notServed(backend schedulergang.API) string {
	if backend.Name == string(configapi.GangProviderKube) {
		return "the API server has no PodGroups of scheduling.k8s.io that the manager knows; ask your administrator to turn on" +
			" the feature gate GenericWorkload and to serve scheduling.k8s.io/v1alpha2 (--runtime-config)"
	}
	return fmt.Sprintf("the API server has no PodGroups of %s; ask your administrator to install %s", backend.WantedVersion, backend.Name)
}

// namelessJob returns the first Job of the attempt that should be in a gang and lacks a field that can be set only at creation, and the
// name of that field.
func (s *Snapshot) namelessJob() (name, field string) {
	for _, job := range s.Owned.Jobs {
		index, ok := childjob.Index(job)
		if !ok || job.Labels[restartAttemptLabel] != attemptOf(s.JobSet) || name != "" && name < job.Name || s.isOfOtherScheduler(job) {
			continue
		}
		if lacks := s.Gangs.Lacks(replicatedJobOf(job), index, &job.Spec.Template); lacks != "" {
			name, field = job.Name, lacks
		}
	}
	return name, field
}

// ReportRefusedGangs reports that a stage waits for gang objects that the API server rejects. The reason is one of the condition
// GangScheduling, and help says what to do.
func (w *Step) ReportRefusedGangs(s *Snapshot, stage, reason, help string, refusal error) {
	message := fmt.Sprintf("stage %q starts no Jobs until the objects of its gangs exist, which the API server rejects; %s: %v", stage, help, refusal)
	w.Complaints = append(w.Complaints, message)
	reported := apimeta.FindStatusCondition(w.Conditions, jobsetstatus.GangScheduling)
	if reported != nil && (reported.Reason == jobsetstatus.GangsRefused || reported.Reason == jobsetstatus.GangsNotServed) {
		return
	}
	others := slices.DeleteFunc(w.Conditions, func(c metav1.Condition) bool { return c.Type == jobsetstatus.GangScheduling })
	w.Conditions = jobsetstatus.WithGangs(s.JobSet, others, reason, message)
}
