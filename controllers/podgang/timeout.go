package podgang

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
)

// noteTimeout marks the pods of a gang that did not start in time, before the gang releases its quota: afterwards no other record shows
// that they have waited. If a pod or PodGroup cannot be marked, for example because of a webhook, it is left unchanged, and the gang still
// releases its quota.
func (r *Reconciler) noteTimeout(ctx context.Context, s *snapshot, step *podgang.Step) error {
	err := r.writer.Each(ctx, len(step.TimeOut), func(i int) error { return r.setTimeout(ctx, step.TimeOut[i], "true") })
	switch {
	case err != nil:
		return err
	case step.TimeOutObject:
		return r.setTimeout(ctx, s.object, "true")
	case step.ClearObject:
		return r.setTimeout(ctx, s.object, "")
	}
	return nil
}

// setTimeout sets the annotation of an object, or removes it if the value is empty.
func (r *Reconciler) setTimeout(ctx context.Context, object client.Object, value string) error {
	after, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %T", object)
	}
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[apis.KoordinatorTimeoutAnnotation] = value; value == "" {
		delete(annotations, apis.KoordinatorTimeoutAnnotation)
	}
	after.SetAnnotations(annotations)
	err := r.client.Patch(ctx, after, patch.IfSameUID(object))
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("note on %T %s whether its gang has timed out: %w", object, client.ObjectKeyFromObject(object), err)
	case client.IgnoreNotFound(err) != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Noting whether a gang has timed out", "object", client.ObjectKeyFromObject(object))
	}
	return nil
}
