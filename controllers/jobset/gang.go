package jobset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/childjob"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/controllers/gangobjects"
)

// ensureGangs makes sure that the objects of a stage's gangs exist before its Jobs start, and reports whether the Jobs may start. Objects
// that no longer fit stay while pods still use them.
func (w *actions) ensureGangs(s *snapshot, st *stage) bool {
	if wrong := s.gangs.ToRecreate(st.index); len(wrong) > 0 && !st.hasPods {
		w.disperse = append(w.disperse, wrong...)
		return false
	}
	if st.isResizing(s) {
		return false
	}
	if g := (gathering{st.Name, s.gangs.Missing(st.index), s.gangs.Drifted(st.index)}); len(g.missing)+len(g.amiss) > 0 {
		w.gather = append(w.gather, g)
	}
	return true
}

// A gathering has the writes that must precede the start of the Jobs of a stage.
type gathering struct {
	stage string
	// missing has objects to be created, and amiss existing objects that have drifted.
	missing []*unstructured.Unstructured
	amiss   []gangobjects.Update
}

// isResizing reports whether the JobSet controller still has to resize a Job of a gang. Kubernetes rejects that resize once the gang has a
// PodGroup.
func (st *stage) isResizing(s *snapshot) bool {
	return slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool {
		index, ok := childjob.Index(job)
		return ok && s.gangs != nil && childjob.IsHeld(job) && childjob.IsIndexed(&job.Spec) && s.gangs.ObjectOf(replicatedJobOf(job), index) != "" &&
			childjob.PodsAtOnce(job) != st.podsPerJob(st.podSetOf(job))
	})
}

// resizeGangs deletes the objects of gangs of a suspended JobSet whose size has changed. While the PodGroup of the old size exists, the
// JobSet controller can neither resize their Jobs nor, since the resize fails first, suspend them.
func (w *actions) resizeGangs(s *snapshot, st *stage) {
	wrong := s.gangs.ToRecreate(st.index)
	if len(wrong) == 0 {
		return
	}
	for _, job := range st.jobs {
		if childjob.IsNoticed(job) {
			w.hold = append(w.hold, job)
		}
	}
	if !st.hasPods {
		w.disperse = append(w.disperse, wrong...)
	}
}

// ending returns the held Jobs of a stage that have to wait for pods to terminate, by name: a pod may still run that the Job created before
// it was held, or that an earlier Job of the same name created. For a gang it returns all Jobs: a scheduler counts a terminating pod of the
// same attempt as a placed member, and would place the recreated pods one by one.
//
// suspended, and resumed before the workers have terminated:  driver held, workers held -> both are released when the last worker has
// terminated.
func (st *stage) ending(s *snapshot) map[string]bool {
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
	for _, pod := range s.mine.pods {
		job := held[pod.Labels[batchv1.JobNameLabel]]
		if job == nil || pod.Labels[jobset.JobSetUIDKey] != job.Labels[jobset.JobSetUIDKey] {
			continue
		}
		names[job.Name] = true
		if pod.Labels[restartAttemptLabel] == attemptOf(s.jobSet) {
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
func (st *stage) spent(s *snapshot, ending map[string]bool) (jobs []*batchv1.Job, gangs map[string]bool) {
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
func (s *snapshot) gangOf(job *batchv1.Job) string {
	index, ok := childjob.Index(job)
	if !ok || s.gangs == nil {
		return ""
	}
	return s.gangs.GangSet.GangOf(replicatedJobOf(job), index)
}

// gangUpdates returns the labels and annotations that put the pods of a Job into their gang. They are not known if the Job belongs to
// another attempt than the status of the JobSet.
func (s *snapshot) gangUpdates(job *batchv1.Job) (updates []childjob.Update, known bool) {
	index, ok := childjob.Index(job)
	if !ok || s.gangs == nil {
		return nil, true
	}
	fields := s.gangs.PodFields(replicatedJobOf(job), index)
	if len(fields.Labels)+len(fields.Annotations) == 0 {
		return nil, true
	}
	updates = []childjob.Update{{By: "its gang would", Update: kueue.PodSetUpdate{Labels: fields.Labels, Annotations: fields.Annotations}}}
	return updates, cmp.Or(job.Labels[jobRestartAttemptLabel], "0") == strconv.Itoa(int(jobRestartsOf(s.jobSet, replicatedJobOf(job), index)))
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
func withGangs(s *snapshot, all []metav1.Condition, wait gangWait) []metav1.Condition {
	reason, message := gangNews(s)
	if wait.reason != "" && (reason == conditions.GangsKept || reason == conditions.GangsOfUser) {
		reason, message = wait.reason, wait.message
		all = conditions.WithGangBlocked(all, message)
	}
	return conditions.WithGangs(s.jobSet, all, reason, message)
}

func gangNews(s *snapshot) (reason, message string) {
	switch {
	case s.jobSet.Spec.Scheduling != nil:
		return conditions.GangsOfJobSet, "spec.scheduling makes the JobSet controller keep the objects of its gangs: Tranche keeps none, and gangConfig changes nothing"
	case s.scheduler.problem != "":
		return conditions.GangsContradicted, s.scheduler.problem
	case s.backend == nil:
		return conditions.GangsNotConfigured, "neither gang.provider in the manager's configuration nor the annotation " + apis.GangProviderAnnotation +
			" of the LocalQueue or ResourceFlavor names a scheduler that does"
	case !s.backend.Served():
		return conditions.GangsNotServed, notServed(s.backend)
	case s.gangs == nil:
		return conditions.GangsMisconfigured, s.refusal
	}
	if why := s.contradiction(); why != "" {
		return conditions.GangsContradicted, why
	}
	if job, field := s.namelessJob(); job != "" {
		return conditions.GangsNotNamed, fmt.Sprintf("the pods of Job %q have no %s, and are placed one by one or not at all: the API server has left"+
			" it out, or the policy tranche-gang-jobs was not there when the Job was created", job, field)
	}
	if taken := s.gangs.NotOurs(); taken != "" {
		return conditions.GangsOfUser, taken
	}
	if s.backend.Version() == "" {
		return conditions.GangsKept, fmt.Sprintf("%s, whose PodGroups %s makes", countGangs(s.gangs.Gangs()), s.backend.Name())
	}
	return conditions.GangsKept, fmt.Sprintf("%s, each with a PodGroup of %s from when its stage is admitted", countGangs(s.gangs.Gangs()), s.backend.Version())
}

func countGangs(n int32) string {
	if n == 1 {
		return "1 gang"
	}
	return fmt.Sprintf("%d gangs", n)
}

func notServed(backend *gangobjects.Backend) string {
	if backend.Name() == string(configapi.GangProviderKube) {
		return "the API server has no PodGroups of scheduling.k8s.io that the manager knows; ask your administrator to turn on" +
			" the feature gate GenericWorkload and to serve scheduling.k8s.io/v1alpha2 (--runtime-config)"
	}
	return fmt.Sprintf("the API server has no PodGroups of %s; ask your administrator to install %s", backend.Wanted(), backend.Name())
}

// namelessJob returns the first Job of the attempt that should be in a gang and lacks a field that can be set only at creation, and the
// name of that field.
func (s *snapshot) namelessJob() (name, field string) {
	for _, job := range s.mine.jobs {
		index, ok := childjob.Index(job)
		if !ok || job.Labels[restartAttemptLabel] != attemptOf(s.jobSet) || name != "" && name < job.Name || s.isOfOtherScheduler(job) {
			continue
		}
		if lacks := s.gangs.Lacks(replicatedJobOf(job), index, &job.Spec.Template); lacks != "" {
			name, field = job.Name, lacks
		}
	}
	return name, field
}

// ensureGangs creates the objects of gangs, and updates those that have drifted. If the objects of one stage cannot be written, only that stage
// waits: other stages may have ended and must release their quota.
func (r *Reconciler) ensureGangs(ctx context.Context, s *snapshot, w *actions) error {
	for _, g := range w.gather {
		err := r.gatherStage(ctx, g)
		if err == nil {
			continue
		}
		w.release = slices.DeleteFunc(w.release, func(rel release) bool { return rel.stage == g.stage })
		if isRefusal(err) {
			w.reportGangsRefused(s, g.stage, err)
		} else {
			w.failed = errors.Join(w.failed, err)
		}
	}
	return nil
}

func (r *Reconciler) gatherStage(ctx context.Context, g gathering) error {
	for _, object := range g.missing {
		// The client writes the response into the object.
		if err := r.config.Client.Create(ctx, object.DeepCopy()); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	for _, mend := range g.amiss {
		key := client.ObjectKeyFromObject(mend.There)
		patch, err := mend.Patch()
		if err != nil {
			return fmt.Errorf("render %s %s: %w", mend.There.GetKind(), key, err)
		}
		if err := r.config.Client.Patch(ctx, mend.There.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("change %s %s: %w", mend.There.GetKind(), key, err)
		}
	}
	return nil
}

// isRefusal reports whether a write fails until a user or administrator changes something: it was rejected by a schema, an admission
// webhook or policy, or a ResourceQuota, or the API is no longer served.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || isUnserved(err)
}

// isUnserved reports whether objects could not be created because the API server does not serve their API, which it did when the manager
// started: the CRD was deleted, or the API server has another release. The manager restarts when it notices this (controllers/apiwatch).
func isUnserved(err error) bool { return apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) }

// reportGangsRefused reports that a stage waits for gang objects that the API server rejects.
func (w *actions) reportGangsRefused(s *snapshot, stage string, refusal error) {
	reason, help := conditions.GangsRefused, "mend what it names, or ask your administrator"
	if isUnserved(refusal) {
		reason, help = conditions.GangsNotServed, "ask your administrator to serve the API again"
	}
	why := fmt.Sprintf("stage %q starts no Jobs before the objects of its gangs are there, which the API server refuses; %s: %v", stage, help, refusal)
	w.complaints = append(w.complaints, why)
	told := apimeta.FindStatusCondition(w.conditions, conditions.GangScheduling)
	if told != nil && (told.Reason == conditions.GangsRefused || told.Reason == conditions.GangsNotServed) {
		return
	}
	others := slices.DeleteFunc(w.conditions, func(c metav1.Condition) bool { return c.Type == conditions.GangScheduling })
	w.conditions = conditions.WithGangs(s.jobSet, others, reason, why)
}

// deleteGangs deletes gang objects, except those that are already terminating. It does not wait for their deletion.
func (r *Reconciler) deleteGangs(ctx context.Context, _ *snapshot, w *actions) error {
	for _, object := range w.disperse {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		if err := r.config.Client.Delete(ctx, &unstructured.Unstructured{Object: object.Object}, client.Preconditions{UID: new(object.GetUID())}); client.IgnoreNotFound(err) != nil {
			w.failed = errors.Join(w.failed, fmt.Errorf("delete %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err))
		}
	}
	return nil
}
