// Package patch writes to objects that other clients write to as well. Each write names the UID of the object that it was computed from, so
// that it cannot change a later object of the same name.
package patch

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// IfSameUID returns a merge patch that the API server rejects if another object has taken the name, such as the Job of a later restart attempt.
func IfSameUID(before client.Object) client.Patch { return Locked(before, "") }

// Locked returns a merge patch that is also rejected if another client has written to the object since it had the version.
func Locked(before client.Object, resourceVersion string) client.Patch {
	return merge{client.MergeFrom(before), metav1.ObjectMeta{UID: before.GetUID(), ResourceVersion: resourceVersion}}
}

type merge struct {
	client.Patch
	preconditions metav1.ObjectMeta
}

func (p merge) Data(after client.Object) ([]byte, error) {
	data, err := p.Patch.Data(after)
	if err != nil {
		return nil, err
	}
	preconditions, err := json.Marshal(&metav1.PartialObjectMetadata{ObjectMeta: p.preconditions})
	if err != nil {
		return nil, err
	}
	return jsonpatch.MergeMergePatches(data, preconditions)
}

// Conditions is a part of a status: exactly the conditions of one field manager.
type Conditions struct {
	Conditions []metav1.Condition `json:"conditions"`
}

// ApplyStatus writes fields of the status of an object, a pointer to a struct, by server-side apply.
func ApplyStatus(ctx context.Context, c client.Client, object client.Object, owner client.FieldOwner, fields any) error {
	patch, err := render(c, object, fields)
	if err != nil {
		return err
	}
	return c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), owner, client.ForceOwnership)
}

func render(c client.Client, object client.Object, fields any) (*unstructured.Unstructured, error) {
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		return nil, err
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(fields)
	if err != nil {
		return nil, err
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	patch.SetGroupVersionKind(kind)
	patch.SetNamespace(object.GetNamespace())
	patch.SetName(object.GetName())
	patch.SetUID(object.GetUID())
	return patch, nil
}

// A Status is the part of the status of a quota Workload that one field manager owns.
type Status struct {
	Part  kueue.WorkloadStatus
	Owner client.FieldOwner
	// ResourceVersion, unless it is empty, is the version that the Workload must still have. A Workload with AdmissionChecks must always have
	// its version: the status repeats their states, and the controller of a check may have written another state.
	ResourceVersion string
}

func (s *Status) resourceVersion(workload *kueue.Workload) string {
	if len(s.Part.AdmissionChecks) > 0 {
		return workload.ResourceVersion
	}
	return s.ResourceVersion
}

// ApplyWorkloadStatus writes a part of the status of a quota Workload by server-side apply, and returns the Workload from the response. Its
// errors wrap those of the API server.
func ApplyWorkloadStatus(ctx context.Context, c client.Client, workload *kueue.Workload, status Status) (*kueue.Workload, error) {
	key := client.ObjectKeyFromObject(workload)
	object, err := render(c, workload, &status.Part)
	if err != nil {
		return nil, fmt.Errorf("render status of quota Workload %s: %w", key, err)
	}
	object.SetResourceVersion(status.resourceVersion(workload))
	if err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), status.Owner, client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("write status of quota Workload %s: %w", key, err)
	}
	var written kueue.Workload
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &written); err != nil {
		return nil, fmt.Errorf("read the response about quota Workload %s: %w", key, err)
	}
	return &written, nil
}

// RemoveFinalizer removes the finalizer from a quota Workload, Tranche's or Kueue's, if it has one. It does nothing if the Workload has disappeared.
func RemoveFinalizer(ctx context.Context, c client.Client, workload *kueue.Workload) error {
	after := workload.DeepCopy()
	isOurs := controllerutil.RemoveFinalizer(after, apis.QuotaInUseFinalizer)
	if !controllerutil.RemoveFinalizer(after, kueue.ResourceInUseFinalizerName) && !isOurs {
		return nil
	}
	if err := c.Patch(ctx, after, IfSameUID(workload)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove finalizer of quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
	}
	return nil
}
