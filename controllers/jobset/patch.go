package jobset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// uidPatch is a merge patch that names the UID of the object it was made for. The API server refuses it if another object has
// taken the name, such as the Job of a later restart attempt, and, where resourceVersion is not empty, if it has changed since.
type uidPatch struct {
	client.Patch
	before          client.Object
	resourceVersion string
}

// Data renders the patch.
func (p uidPatch) Data(after client.Object) ([]byte, error) {
	data, err := p.Patch.Data(after)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("read merge patch of %s: %w", client.ObjectKeyFromObject(p.before), err)
	}
	metadata, ok := fields["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		fields["metadata"] = metadata
	}
	metadata["uid"] = string(p.before.GetUID())
	if p.resourceVersion != "" {
		metadata["resourceVersion"] = p.resourceVersion
	}
	return json.Marshal(fields)
}

// patchTries is how often a patch is tried while somebody else writes to the object.
const patchTries = 5

// patchIfSame makes of an object what it should be if its spec is still what was read: a Job or JobSet that has grown since must not
// start. What others write to its status, which is often the case just when it is to start, does not matter.
func (r *Reconciler) patchIfSame(ctx context.Context, before, after client.Object) error {
	version := before.GetResourceVersion()
	for try := 1; ; try++ {
		conflict := r.config.Client.Patch(ctx, after, lockedPatchOf(before, version))
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
