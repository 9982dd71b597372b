package jobset

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/controllers/internal/patch"
)

// patchTries is how often a patch is tried while other clients write to the object.
const patchTries = 5

// patchIfSame patches an object if its spec has not changed since it was read: a Job or JobSet that has grown in the meantime must not
// start. Concurrent writes to its status, which are frequent when it is about to start, do not matter.
func (r *Reconciler) patchIfSame(ctx context.Context, before, after client.Object) error {
	version := before.GetResourceVersion()
	for try := 1; ; try++ {
		conflict := r.config.Client.Patch(ctx, after, patch.Locked(before, version))
		if !apierrors.IsConflict(conflict) || try == patchTries {
			return conflict
		}
		current, ok := before.DeepCopyObject().(client.Object)
		if !ok {
			return conflict
		}
		if err := r.reader.Get(ctx, client.ObjectKeyFromObject(before), current); err != nil {
			return errors.Join(conflict, err)
		}
		if current.GetUID() != before.GetUID() || current.GetGeneration() != before.GetGeneration() {
			return conflict
		}
		version = current.GetResourceVersion()
	}
}
