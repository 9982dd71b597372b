package jobset

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

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
