package jobset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// start resumes the JobSet and records that from now on a suspension is requested by the user. For a JobSet without a queue, the Event of
// the pause has announced that it is resumed.
func (r *Reconciler) start(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	after := s.JobSet.DeepCopy()
	after.Spec.Suspend = new(false)
	if s.IsUnqueued {
		delete(after.Annotations, apis.PausedAnnotation)
	} else {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.StartedAnnotation, "true")
	}
	if err := r.patchIfSame(ctx, s.JobSet, after); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("resume JobSet %s: %w", s.Key, err)
	}
	return nil
}

// pause suspends the JobSet, and records that the user did not request this suspension.
func (r *Reconciler) pause(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	after := s.JobSet.DeepCopy()
	after.Spec.Suspend = new(true)
	if s.IsUnqueued {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.PausedAnnotation, "true")
	}
	delete(after.Annotations, apis.StartedAnnotation)
	if err := r.patchIfSame(ctx, s.JobSet, after); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("pause JobSet %s: %w", s.Key, err)
	}
	events.JobSetPaused(w.Pause).Emit(r.config.Recorder, s.JobSet)
	return nil
}

// setScheduler writes the scheduler into the pod templates of a suspended JobSet.
func (r *Reconciler) setScheduler(ctx context.Context, s *jobsetstate.Snapshot, _ *stages.Step) error {
	return r.annotatePods(ctx, s, jobsetstate.GangMembers(s.JobSet), map[string]string{
		apis.GangProviderAnnotation: s.Scheduler.Name, apis.GangSchedulerAnnotation: s.Scheduler.SchedulerName,
	})
}

// annotatePods annotates the pod templates of ReplicatedJobs of a suspended JobSet. A merge patch would have to repeat all ReplicatedJobs, including
// fields that this version does not know.
func (r *Reconciler) annotatePods(ctx context.Context, s *jobsetstate.Snapshot, replicatedJobs []int, additional map[string]string) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	operations := []operation{{"test", "/metadata/uid", s.JobSet.UID}, {"test", "/metadata/generation", s.JobSet.Generation}}
	for _, i := range replicatedJobs {
		template := jobsetstate.PodTemplateOf(s.JobSet, i)
		annotations := maps.Clone(template.Annotations)
		if annotations == nil {
			annotations = map[string]string{}
		}
		maps.Copy(annotations, additional)
		path := fmt.Sprintf("/spec/replicatedJobs/%d/template/spec/template/metadata", i)
		if len(template.Labels)+len(template.Annotations) == 0 {
			operations = append(operations, operation{"add", path, map[string]any{"annotations": annotations}})
		} else {
			operations = append(operations, operation{"add", path + "/annotations", annotations})
		}
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("render annotations for the pods of JobSet %s: %w", s.Key, err)
	}
	err = r.config.Client.Patch(ctx, s.JobSet.DeepCopy(), client.RawPatch(types.JSONPatchType, patch))
	return apply.IgnoreNotFound(err, "annotate the pod templates of JobSet %s", s.Key)
}

// recordRules records startupPolicy.rules on a JobSet that was created when the admission policies did not do that yet.
func recordRules(ctx context.Context, r *Reconciler, s *jobsetstate.Snapshot) error {
	if s.JobSet == nil || s.Plan == nil || s.JobSet.Annotations[apis.StartupRulesAnnotation] != "" {
		return nil
	}
	record := stageplan.RulesRecord(&s.JobSet.Spec)
	if record == "" {
		return nil
	}
	after := s.JobSet.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.StartupRulesAnnotation, record)
	err := r.config.Client.Patch(ctx, after, patch.IfSameUID(s.JobSet))
	return apply.IgnoreNotFound(err, "record the rules of JobSet %s", s.Key)
}

// recordFinished records on the JobSet the stages that have succeeded, before the stages that wait for them are released.
func (r *Reconciler) recordFinished(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	value, err := json.Marshal(apis.FinishedStages{Attempt: s.JobSet.Status.Restarts, Stages: w.RecordFinished})
	if err != nil {
		return fmt.Errorf("render the finished stages of JobSet %s: %w", s.Key, err)
	}
	after := s.JobSet.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.FinishedStagesAnnotation, string(value))
	if err := r.patchIfSame(ctx, s.JobSet, after); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("note the finished stages of JobSet %s: %w", s.Key, err)
	}
	before := jobsetstate.FinishedStages(s.JobSet)
	for _, stage := range w.RecordFinished {
		if !slices.Contains(before, stage) {
			events.StageFinished(stage, workloadstatus.StageSucceeded(stage).Message).EmitAbout(r.config.Recorder, s.JobSet, s.FirstJobOf(stage))
		}
	}
	return nil
}

// recordTimes writes the timeline. If the API server does not answer, the JobSet is requeued, so that the next steps do not overwrite or delete
// times that are not noted. If the API server rejects the write, quota is released nevertheless: the user of a JobSet can make the write
// impossible, for instance by annotations that leave no room.
func (r *Reconciler) recordTimes(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	err := r.recordTimesOn(ctx, s.JobSet, s, w, client.MergeFromWithOptions(s.JobSet, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		err = r.recordTimesOnLatest(ctx, s, w)
	}
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return ctx.Err()
	case apply.IsTransient(err):
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Times of stages are missing in the timeline", "cause", err.Error())
	return nil
}

// recordTimesOnLatest writes the timeline of a JobSet that other clients write to at the same time. It reads the JobSet past the cache. Only the
// manager writes the timeline, so the write needs no resource version: the API server merges it with the other writes.
func (r *Reconciler) recordTimesOnLatest(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	var js jobsetapi.JobSet
	if err := r.reader.Get(ctx, s.Key, &js); err != nil {
		return fmt.Errorf("read JobSet %s: %w", s.Key, err)
	}
	if js.UID != s.JobSet.UID {
		return nil
	}
	return r.recordTimesOn(ctx, &js, s, w, patch.IfSameUID(&js))
}

// recordTimesOn patches the timeline of a JobSet. The timeline repeats what was noted before, so the JobSet must not be older than the last write.
func (r *Reconciler) recordTimesOn(ctx context.Context, js *jobsetapi.JobSet, s *jobsetstate.Snapshot, w *stages.Step, change client.Patch) error {
	after, waited, err := w.RecordTimesOn(js, s.Plan, time.Now())
	if err != nil {
		return fmt.Errorf("render timeline of JobSet %s: %w", s.Key, err)
	}
	if err := r.config.Client.Patch(ctx, after, change); err != nil {
		return fmt.Errorf("note times of JobSet %s: %w", s.Key, err)
	}
	for i, h := range w.EndedHolds {
		r.config.Metrics.WaitedForStage(h.Workload, waited[i])
	}
	return nil
}
