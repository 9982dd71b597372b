package groupstart

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// write lets the group start, if it may, and reports its state.
func (r *Reconciler) write(ctx context.Context, s *snapshot, w *actions) (ctrl.Result, error) {
	err := r.post(ctx, s, w)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // a conflict is retried with the back-off of the queue
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		w.refuse(s, err)
	case err != nil:
		return ctrl.Result{}, err
	case w.releases:
		events.GroupReleased(s.groupCounts.pods).Emit(r.recorder, s.jobSet)
		if !s.groupCounts.since.IsZero() {
			r.config.Metrics.GroupReleased(time.Since(s.groupCounts.since))
		}
	}
	if err := r.report(ctx, s, w); err != nil {
		return ctrl.Result{}, err
	}
	if key := client.ObjectKeyFromObject(s.jobSet); w.waits {
		r.config.Metrics.GroupWaits(key)
	} else {
		r.config.Metrics.GroupWaitsNot(key)
	}
	if w.retries {
		return ctrl.Result{RequeueAfter: retryAfter}, nil
	}
	return ctrl.Result{}, nil
}

// post writes the ConfigMap of the group, unless it has changed since it was read, so that no other client's change is lost.
func (r *Reconciler) post(ctx context.Context, s *snapshot, w *actions) error {
	if w.configMap == nil {
		return nil
	}
	if w.configMap.Data[barrier.KeyToken] == "" {
		w.configMap.Data[barrier.KeyToken] = rand.Text()
	}
	if s.configMap == nil {
		if err := r.client.Create(ctx, w.configMap); err != nil {
			return fmt.Errorf("create ConfigMap %s: %w", client.ObjectKeyFromObject(w.configMap), err)
		}
		return nil
	}
	after := s.configMap.DeepCopy()
	after.Data = w.configMap.Data
	metav1.SetMetaDataLabel(&after.ObjectMeta, apis.JobSetLabel, s.jobSet.Name)
	if err := r.client.Update(ctx, after); err != nil {
		return fmt.Errorf("update ConfigMap %s: %w", client.ObjectKeyFromObject(after), err)
	}
	return nil
}

// report writes the condition of the JobSet if it has changed, and emits an Event if something went wrong.
func (r *Reconciler) report(ctx context.Context, s *snapshot, w *actions) error {
	reported := apimeta.FindStatusCondition(s.jobSet.Status.Conditions, jobsetstatus.GroupScheduling)
	if reported != nil && equality.Semantic.DeepEqual(*reported, w.condition) {
		return nil
	}
	fields := &patch.Conditions{Conditions: []metav1.Condition{w.condition}}
	err := patch.ApplyStatus(ctx, r.client, s.jobSet, client.FieldOwner(apis.GroupStartFieldManager), fields)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write condition of JobSet %s: %w", client.ObjectKeyFromObject(s.jobSet), err)
	}
	if reported != nil && reported.Reason == w.condition.Reason {
		return nil
	}
	switch w.condition.Reason {
	case jobsetstatus.GroupReleased, jobsetstatus.GroupWaiting:
	case jobsetstatus.GroupTimedOut:
		r.config.Metrics.GroupTimedOut()
		events.GroupTimedOut(s.groupCounts.started, s.groupCounts.pods).Emit(r.recorder, s.jobSet)
	default:
		events.GroupNotKept(w.condition.Message).Emit(r.recorder, s.jobSet)
	}
	return nil
}
