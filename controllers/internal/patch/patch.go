// Package patch writes to objects that other clients write to as well. Each write names the UID of the object that it was computed from, so
// that it cannot change a later object of the same name.
package patch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/conditions"
)

// IfSameUID returns a merge patch that the API server rejects if another object has taken the name, such as the Job of a later restart attempt.
func IfSameUID(before client.Object) client.Patch { return Locked(before, "") }

// Locked returns a merge patch that is also rejected if another client has written to the object since it had the version.
func Locked(before client.Object, resourceVersion string) client.Patch {
	return merge{client.MergeFrom(before), before, resourceVersion}
}

type merge struct {
	client.Patch
	before          client.Object
	resourceVersion string
}

func (p merge) Data(after client.Object) ([]byte, error) {
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

// A Status is the part of the status of a quota Workload that one field manager owns.
type Status struct {
	Part  kueue.WorkloadStatus
	Owner client.FieldOwner
	// ResourceVersion, unless it is empty, is the version that the Workload must still have.
	ResourceVersion string
}

// ApplyStatus writes a part of the status of a quota Workload by server-side apply, and returns the Workload from the response. Its errors
// wrap those of the API server.
func ApplyStatus(ctx context.Context, c client.Client, workload *kueue.Workload, status Status) (*kueue.Workload, error) {
	key := client.ObjectKeyFromObject(workload)
	object, err := conditions.Patch(workload, status.Part, status.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("render status of quota Workload %s: %w", key, err)
	}
	if err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), status.Owner, client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("write status of quota Workload %s: %w", key, err)
	}
	var written kueue.Workload
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &written); err != nil {
		return nil, fmt.Errorf("read the response about quota Workload %s: %w", key, err)
	}
	return &written, nil
}

// RemoveFinalizer removes Kueue's finalizer from a quota Workload, if it has it. It does nothing if the Workload has disappeared.
func RemoveFinalizer(ctx context.Context, c client.Client, workload *kueue.Workload) error {
	isPin := func(finalizer string) bool { return finalizer == kueue.ResourceInUseFinalizerName }
	if !slices.ContainsFunc(workload.Finalizers, isPin) {
		return nil
	}
	after := workload.DeepCopy()
	after.Finalizers = slices.DeleteFunc(after.Finalizers, isPin)
	if err := c.Patch(ctx, after, IfSameUID(workload)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove finalizer of quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
	}
	return nil
}
