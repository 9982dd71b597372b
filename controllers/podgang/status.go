package podgang

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// keepStatus writes the state of the pods into the status of a PodGroup if it has changed, unless another client writes that status.
func (r *Reconciler) keepStatus(ctx context.Context, s *snapshot, _ *podgang.Step) error {
	if r.config.Status != configapi.PodGroupStatusManage || s.object == nil || len(podgroup.StatusFields(s.object.GetAPIVersion())) == 0 {
		return nil
	}
	before := statusOf(s.object)
	isEmpty := len(s.Gang.All()) == 0 && len(s.Workloads) == 0 && s.Gang.Queue == ""
	after := s.Gang.StatusAfter(before, time.Now())
	if after == before || isEmpty && before == (podgroup.Status{}) {
		return nil
	}
	// A write that was tried for the current version of the object is not repeated: another client writes its status, or its API rejects
	// it.
	attempt := attempt{s.object.GetResourceVersion(), after}
	attempt.status.Started = 0
	g := r.memo(s.Gang.Ref)
	if g.attempt == attempt {
		return nil
	}
	if err := r.writeStatus(ctx, s); err != nil {
		return err
	}
	g.attempt = attempt
	return nil
}

// An attempt is a write of a status to one version of an object.
type attempt struct {
	resourceVersion string
	status          podgroup.Status
}

// writeStatus computes the status again from a live read: a gang that has ended in the meantime stays ended.
func (r *Reconciler) writeStatus(ctx context.Context, s *snapshot) error {
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(s.object.GroupVersionKind())
	key := client.ObjectKeyFromObject(s.object)
	if err := r.live.Get(ctx, key, there); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read status of PodGroup %s: %w", key, err)
	}
	if there.GetUID() != s.object.GetUID() || isKeptElsewhere(there) {
		return nil
	}
	before := statusOf(there)
	status := s.Gang.StatusAfter(before, time.Now())
	if status == before {
		return nil
	}
	after := there.DeepCopy()
	if err := setStatus(after, status); err != nil {
		return fmt.Errorf("render status of PodGroup %s: %w", key, err)
	}
	change := patch.Locked(there, there.GetResourceVersion())
	var err error
	if r.statuses.Has(s.object.GroupVersionKind()) {
		err = r.client.Status().Patch(ctx, after, change, client.FieldOwner(apis.FieldManager))
	} else {
		err = r.client.Patch(ctx, after, change, client.FieldOwner(apis.FieldManager))
	}
	// If the API of a PodGroup no longer accepts it, no client can write to it, and its pods do not need the status.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("write status of PodGroup %s: %w", key, err)
	}
	return nil
}

// isKeptElsewhere reports whether another client has written a field of the status, usually the controller of a scheduler.
func isKeptElsewhere(object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		if entry.Manager == apis.FieldManager || entry.FieldsV1 == nil {
			return false
		}
		var fields struct {
			Status map[string]json.RawMessage `json:"f:status"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			return true
		}
		for field := range fields.Status {
			if strings.HasPrefix(field, "f:") {
				return true
			}
		}
		return false
	})
}

// statusOf reads the status of a PodGroup. A field of the wrong type counts as not set.
func statusOf(object *unstructured.Unstructured) podgroup.Status {
	var s podgroup.Status
	counts := s.Counts()
	for _, field := range podgroup.StatusFields(object.GetAPIVersion()) {
		switch field {
		case "phase":
			s.Phase, _, _ = unstructured.NestedString(object.Object, "status", field)
		case "scheduleStartTime":
			text, _, _ := unstructured.NestedString(object.Object, "status", field)
			if started, err := time.Parse(time.RFC3339, text); err == nil {
				s.Started = started.Unix()
			}
		default:
			*counts[field], _, _ = unstructured.NestedInt64(object.Object, "status", field)
		}
	}
	return s
}

// setStatus sets the fields of the status that Tranche keeps, and leaves the others unchanged.
func setStatus(object *unstructured.Unstructured, s podgroup.Status) error {
	counts := s.Counts()
	for _, field := range podgroup.StatusFields(object.GetAPIVersion()) {
		var value any
		switch {
		case field == "phase":
			value = s.Phase
		case field != "scheduleStartTime":
			value = *counts[field]
		case s.Started != 0:
			value = time.Unix(s.Started, 0).UTC().Format(time.RFC3339)
		default:
			continue
		}
		if err := unstructured.SetNestedField(object.Object, value, "status", field); err != nil {
			return err
		}
	}
	return nil
}
