package jobset

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/childjob"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// This file writes the changes by which a JobSet loses its quota, because it is evicted or suspended by its user.

// evict marks the other stages of an evicted JobSet as evicted, too.
func (r *Reconciler) evict(ctx context.Context, s *snapshot, w *actions) error {
	for _, e := range w.evict {
		// The eviction increments its own counters and repeats what else the admission has written, so it must be based on the latest
		// object.
		written, err := r.apply(ctx, e.workload, workloadstatus.Evicted(e.workload, e.why, time.Now()), apis.AdmissionFieldManager, e.workload.ResourceVersion)
		if err != nil {
			return err
		}
		if written == nil {
			continue
		}
		r.config.Runner.Observe(admission.WorkloadObserved{Workload: written})
		events.Evicted(e.why.EventReason(), e.why.Message).Emit(r.config.Recorder, written)
		stage, held := written.Labels[apis.StageLabel], engine.Usage(e.workload.Status.Admission)
		events.StageEvicted(stage, held, e.why.Reason, e.why.Message).EmitAbout(r.config.Recorder, s.jobSet, e.workload)
	}
	return nil
}

// recreateJobs deletes Jobs without running pods, so that the JobSet controller recreates them.
func (r *Reconciler) recreateJobs(ctx context.Context, _ *snapshot, w *actions) error {
	return r.each(ctx, len(w.remake), func(i int) error {
		job := w.remake[i]
		err := r.config.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy("Background"))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Job %s, which has to start from its beginning: %w", client.ObjectKeyFromObject(job), err)
		}
		return nil
	})
}

// restore removes the fields that an admission has added to held Jobs.
func (r *Reconciler) restore(ctx context.Context, _ *snapshot, w *actions) error {
	return r.each(ctx, len(w.restore), func(i int) error {
		job := w.restore[i]
		if err := r.config.Client.Patch(ctx, childjob.Restored(job), patch.IfSameUID(job)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take the admission back from Job %s: %w", client.ObjectKeyFromObject(job), err)
		}
		return nil
	})
}

// releaseQuota releases the quota of suspended and evicted stages, and notifies the engine at once. The cache may not show yet that a Job was
// released or that a pod was created, so giveBack repeats the decision on live reads.
func (r *Reconciler) releaseQuota(ctx context.Context, s *snapshot, w *actions) error {
	if len(w.giveBack) == 0 {
		return nil
	}
	live, err := r.refresh(ctx, s)
	if err != nil {
		return err
	}
	w.lookAgain(live)
	kept := keptJobs(live)
	for _, workload := range desired(live).giveBack {
		status := workloadstatus.Suspended(workload, time.Now())
		told := events.StageSuspended(workload.Labels[apis.StageLabel])
		if quotaworkload.IsTrue(workload, kueue.WorkloadEvicted) {
			status = workloadstatus.QuotaReleased(workload, time.Now())
			stage := workload.Labels[apis.StageLabel]
			told = events.StageRequeued(stage, kept[stage], workloadstatus.EvictionOf(workload).Message)
			if growthNumber(workload) > 0 {
				told = events.GrowthRequeued(workload.Labels[apis.StageLabel], workloadstatus.EvictionOf(workload).Message)
			}
		}
		written, err := r.apply(ctx, workload, status, apis.AdmissionFieldManager, workload.ResourceVersion)
		if err != nil {
			return err
		}
		if written != nil {
			r.config.Runner.Observe(admission.WorkloadObserved{Workload: written})
			told.EmitAbout(r.config.Recorder, s.jobSet, workload)
		}
	}
	return nil
}

// keptJobs counts, for each stage, the succeeded Jobs that an eviction keeps.
func keptJobs(s *snapshot) map[string]int {
	counts := map[string]int{}
	if s.jobSet == nil || s.plan == nil {
		return counts
	}
	stages, _ := stagesOf(s)
	for i := range stages {
		for _, jobCounts := range stages[i].tallies {
			counts[stages[i].Name] += int(jobCounts.succeeded)
		}
	}
	return counts
}

// endsQuota reports whether quota Workloads are about to lose their quota for good, although their stages may not have succeeded: the
// JobSet has finished, was deleted or has shrunk, or a user has deleted the quota Workloads.
func (w *actions) endsQuota() bool {
	for _, p := range w.progress {
		if p.finished != nil && !p.succeeded && p.workload.Status.Admission != nil {
			return true
		}
	}
	return w.givesUpPods() || slices.ContainsFunc(slices.Concat(w.removeFinalizers, w.drop), func(workload *kueue.Workload) bool {
		return workload.Status.Admission != nil && !quotaworkload.IsTrue(workload, kueue.WorkloadFinished)
	})
}

// refresh reads the objects of the JobSet, and of earlier JobSets of its name, past the cache. In the cache, a Job that was just released
// can still look held.
func (r *Reconciler) refresh(ctx context.Context, s *snapshot) (*snapshot, error) {
	live := *s
	live.orphans = map[types.UID]ownedObjects{}
	for uid := range s.orphans {
		o, err := r.readLive(ctx, s.key, uid)
		if err != nil {
			return nil, err
		}
		live.orphans[uid] = o
	}
	if s.jobSet == nil {
		return &live, nil
	}
	var err error
	live.mine, err = r.readLive(ctx, s.key, s.jobSet.UID)
	return &live, err
}

// readLive reads the objects of the JobSet past the cache. It reads quota Workloads first, so that the state of the Jobs and pods is newer
// than that of their quota Workloads.
func (r *Reconciler) readLive(ctx context.Context, key types.NamespacedName, jobSet types.UID) (ownedObjects, error) {
	var o ownedObjects
	options := func(label string) []client.ListOption {
		return []client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabels{label: string(jobSet)}}
	}
	var workloads kueue.WorkloadList
	if err := r.reader.List(ctx, &workloads, options(apis.JobUIDLabel)...); err != nil {
		return o, fmt.Errorf("list quota Workloads of JobSet %s: %w", key, err)
	}
	var jobs batchv1.JobList
	if err := r.reader.List(ctx, &jobs, options(jobset.JobSetUIDKey)...); err != nil {
		return o, fmt.Errorf("list Jobs of JobSet %s: %w", key, err)
	}
	for i := range workloads.Items {
		o.workloads = append(o.workloads, &workloads.Items[i])
	}
	for i := range jobs.Items {
		if slices.Contains(jobSetOfJob(&jobs.Items[i]), string(jobSet)) {
			o.jobs = append(o.jobs, &jobs.Items[i])
		}
	}
	return o, r.readLivePods(ctx, key, jobSet, &o)
}

// readLivePods finds the pods of a JobSet by its UID and by its name, so that it also finds a pod that has lost one of these labels.
func (r *Reconciler) readLivePods(ctx context.Context, key types.NamespacedName, jobSet types.UID, o *ownedObjects) error {
	found := map[types.UID]bool{}
	var all []corev1.Pod
	for _, by := range []client.MatchingLabels{{jobset.JobSetUIDKey: string(jobSet)}, {jobset.JobSetNameKey: key.Name}} {
		var pods corev1.PodList
		if err := r.reader.List(ctx, &pods, client.InNamespace(key.Namespace), by); err != nil {
			return fmt.Errorf("list pods of JobSet %s: %w", key, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			_, watched := pod.Labels[jobset.JobSetUIDKey]
			pod.Labels = OriginalLabels(pod)
			if found[pod.UID] || !slices.Contains(jobSetOfPod(pod), string(jobSet)) {
				continue
			}
			found[pod.UID] = true
			o.unwatched = o.unwatched || !watched && isCharged(pod)
			all = append(all, *pod)
		}
	}
	return o.addPods(ctx, r.reader, all)
}

// lookAgain requests another reconcile if no watch reports the end of pods that use quota.
func (w *actions) lookAgain(s *snapshot) {
	unwatched := s.mine.unwatched
	for _, o := range s.orphans {
		unwatched = unwatched || o.unwatched
	}
	if unwatched && (w.requeueAfter == 0 || w.requeueAfter > unwatchedEvery) {
		w.requeueAfter = unwatchedEvery
	}
}
