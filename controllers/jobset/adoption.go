package jobset

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// readTarget reads where a JobSet is charged that ran when Tranche was installed, and returns its plan: all of its Jobs are one stage. Such a JobSet
// that cannot be adopted is refused.
func (r *Reconciler) readTarget(ctx context.Context, s *jobsetstate.Snapshot, plan *stageplan.Plan) (*stageplan.Plan, error) {
	if r.config.Safety != nil || !jobsetstate.IsForeign(s.JobSet) {
		return plan, nil
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
	if s.Refusal = stages.NotResumable(s); s.Refusal == "" {
		s.Refusal = missing
	}
	return whole, nil
}

// admitWorkload admits the quota Workload of a JobSet that ran when Tranche was installed. The quota Workload must not have changed.
func (r *Reconciler) admitWorkload(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	written, err := r.writer.Admission(ctx, w.AdmitWorkload.Workload, workloadstatus.Admitted(w.AdmitWorkload.Workload, w.AdmitWorkload.Admission, s.Now))
	if written != nil {
		events.JobSetAdopted(string(w.AdmitWorkload.Admission.ClusterQueue)).EmitAbout(r.config.Recorder, s.JobSet, written)
	}
	return err
}

// stop suspends a JobSet that ran when Tranche was installed, because its quota Workload is evicted.
func (r *Reconciler) stop(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	after := s.JobSet.DeepCopy()
	after.Spec.Suspend = new(true)
	if err := r.config.Client.Patch(ctx, after, patch.IfSameUID(s.JobSet)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("suspend JobSet %s: %w", s.Key, err)
	}
	events.AdoptedStopped(w.Stop).Emit(r.config.Recorder, s.JobSet)
	return nil
}

// markJobs labels Jobs of a JobSet that ran when Tranche was installed.
func (r *Reconciler) markJobs(ctx context.Context, _ *jobsetstate.Snapshot, w *stages.Step) error {
	for _, job := range w.MarkJobs {
		after := job.DeepCopy()
		metav1.SetMetaDataLabel(&after.ObjectMeta, apis.HoldLabel, apis.HoldAdopted)
		if err := r.config.Client.Patch(ctx, after, patch.IfSameUID(job)); client.IgnoreNotFound(err) != nil {
			return stages.Independent(fmt.Errorf("label Job %s: %w", client.ObjectKeyFromObject(job), err))
		}
	}
	return nil
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
		return r.writer.DeleteAll(ctx, []*kueue.Workload{&existing})
	}
	after := existing.DeepCopy()
	for key, value := range wanted.Labels {
		metav1.SetMetaDataLabel(&after.ObjectMeta, key, value)
	}
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.AttemptAnnotation, wanted.Annotations[apis.AttemptAnnotation])
	return r.writer.Change(ctx, &existing, after)
}
