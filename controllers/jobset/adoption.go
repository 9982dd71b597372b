package jobset

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/lifecycle/workloadname"
)

// readTarget reads where a JobSet is charged that ran when Tranche was installed, and returns its plan: all of its Jobs are one stage. Such a JobSet
// that cannot be adopted is refused.
func (r *Reconciler) readTarget(ctx context.Context, s *jobsetstate.Snapshot, plan *stageplan.Plan) (*stageplan.Plan, error) {
	if r.config.Safety != nil || !jobsetstate.IsForeign(s.JobSet) {
		return plan, readStarted(ctx, r, s)
	}
	since, err := apply.PoliciesSince(ctx, r.reader, apis.HoldJobSetsBinding)
	if err != nil {
		return nil, err
	}
	whole, err := stageplan.Whole(plan)
	if err != nil || !adoption.IsOlder(s.JobSet, since) {
		return plan, nil //nolint:nilerr // it is refused as not held
	}
	queue := types.NamespacedName{Namespace: s.Key.Namespace, Name: string(jobsetstate.QueueOf(s.JobSet))}
	target, missing, err := apply.AdoptionTarget(ctx, r.config.Client, "JobSet", queue, r.config.Charges)
	if err != nil {
		return nil, err
	}
	s.Target = target
	if jobsetstate.IsWaiting(s.JobSet) {
		s.Refusal = jobsetstate.MisuseOfSuspended(s.JobSet)
	} else {
		s.Refusal = missing
	}
	return whole, nil
}

// readStarted reads where the Jobs are charged that were started while no admission policy was in force. They carry the label that holds them since the
// policies of an earlier installation.
func readStarted(ctx context.Context, r *Reconciler, s *jobsetstate.Snapshot) error {
	running := jobsetstate.RunningUnpaid(s)
	if r.config.Safety != nil || s.IsUnqueued || len(running) == 0 {
		return nil
	}
	since, err := apply.PoliciesSince(ctx, r.reader, apis.HoldJobSetsBinding)
	if err != nil {
		return err
	}
	started := map[string]bool{}
	for _, job := range running {
		if adoption.StartedOlder(job, since) {
			started[job.Name] = true
		}
	}
	if len(started) == 0 {
		return nil
	}
	queue := types.NamespacedName{Namespace: s.Key.Namespace, Name: string(jobsetstate.QueueOf(s.JobSet))}
	target, missing, err := apply.AdoptionTarget(ctx, r.config.Client, "JobSet", queue, r.config.Charges)
	if err != nil {
		return err
	}
	s.StartedTarget, s.StartedBefore = target, started
	if s.Refusal == "" {
		s.Refusal = missing
	}
	return nil
}

// noteStarted records that from now on a suspension is requested by the user.
func noteStarted(ctx context.Context, c client.Client, s *jobsetstate.Snapshot) error {
	after := s.JobSet.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.StartedAnnotation, "true")
	err := c.Patch(ctx, after, patch.IfSameUID(s.JobSet))
	return apply.IgnoreNotFound(err, "note that JobSet %s runs", s.Key)
}

// stop suspends a JobSet that ran when Tranche was installed, because its quota Workload is evicted.
func (r *Reconciler) stop(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	after := s.JobSet.DeepCopy()
	after.Spec.Suspend = new(true)
	if w.Stop.Requeues {
		delete(after.Annotations, apis.StartedAnnotation)
	} else {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.StartedAnnotation, "true")
	}
	if err := r.config.Client.Patch(ctx, after, patch.IfSameUID(s.JobSet)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("suspend JobSet %s: %w", s.Key, err)
	}
	stopped := events.AdoptedStopped(w.Stop.Why)
	if w.Stop.Requeues {
		stopped = events.AdoptedRequeued(w.Stop.Why)
	}
	stopped.Emit(r.config.Recorder, s.JobSet)
	return nil
}

// markJobs lets the admission policies guard Jobs that were released before, or by an earlier version of the manager.
func (r *Reconciler) markJobs(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	return stages.Independent(r.writer.Each(ctx, len(w.MarkJobs), func(i int) error {
		job := w.MarkJobs[i]
		if err := r.config.Client.Patch(ctx, jobsetstate.Guarded(s, job), patch.IfSameUID(job)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("let the admission policies guard Job %s: %w", client.ObjectKeyFromObject(job), err)
		}
		return nil
	}))
}

// markTemplates marks the pod templates of a JobSet that is suspended since before Tranche was installed. Before that it deletes the Workload that Kueue
// has made for the JobSet: it would ask for the quota of all stages.
func (r *Reconciler) markTemplates(ctx context.Context, s *jobsetstate.Snapshot, _ *stages.Step) error {
	owner := workloadname.Owner{Kind: "JobSet", Group: jobset.GroupVersion.Group, Name: s.JobSet.Name, UID: s.JobSet.UID}
	if err := dropForeign(ctx, r, s, workloadname.Of(owner, "")); err != nil {
		return err
	}
	all := make([]int, len(s.JobSet.Spec.ReplicatedJobs))
	for i := range all {
		all[i] = i
	}
	return r.annotatePods(ctx, s, all, map[string]string{apis.HeldAnnotation: "true"})
}

// dropForeign deletes a quota Workload of a JobSet that the manager has not made, if it exists.
func dropForeign(ctx context.Context, r *Reconciler, s *jobsetstate.Snapshot, name string) error {
	var existing kueue.Workload
	err := r.reader.Get(ctx, types.NamespacedName{Namespace: s.Key.Namespace, Name: name}, &existing)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read quota Workload %s of JobSet %s: %w", name, s.Key, err)
	}
	if !metav1.IsControlledBy(&existing, s.JobSet) || existing.Labels[apis.JobSetLabel] != "" {
		return nil
	}
	return r.writer.Delete(ctx, &existing)
}

// takeOver makes the Workload that Kueue has made for a JobSet its quota Workload, if it is for the same pods, and otherwise deletes it.
func (r *Reconciler) takeOver(ctx context.Context, s *jobsetstate.Snapshot, wanted *kueue.Workload) error {
	var existing kueue.Workload
	err := r.reader.Get(ctx, client.ObjectKeyFromObject(wanted), &existing)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read quota Workload %s, which exists: %w", client.ObjectKeyFromObject(wanted), err)
	case !metav1.IsControlledBy(&existing, s.JobSet) || existing.Labels[apis.JobSetLabel] != "":
		return nil
	case !adoption.IsForSamePods(&existing, wanted):
		return r.writer.Delete(ctx, &existing)
	}
	after := existing.DeepCopy()
	for key, value := range wanted.Labels {
		metav1.SetMetaDataLabel(&after.ObjectMeta, key, value)
	}
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.AttemptAnnotation, wanted.Annotations[apis.AttemptAnnotation])
	return r.writer.Change(ctx, &existing, after)
}
