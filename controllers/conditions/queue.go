package conditions

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// Active returns the condition Active of a queue with these conditions.
func Active(old []metav1.Condition, generation int64, activity admission.Activity) metav1.Condition {
	c := metav1.Condition{
		Type: kueue.ClusterQueueActive, Status: activity.Status, Reason: activity.Reason, Message: activity.Message,
		ObservedGeneration: generation, LastTransitionTime: metav1.Now(),
	}
	if known := apimeta.FindStatusCondition(old, c.Type); known != nil && known.Status == c.Status {
		c.LastTransitionTime = known.LastTransitionTime
	}
	return c
}

// QueuePatch returns the server-side apply patch that sets the status of a ClusterQueue or LocalQueue.
func QueuePatch(queue client.Object, kind string, status any) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, fmt.Errorf("render status of %s %s: %w", kind, client.ObjectKeyFromObject(queue), err)
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	patch.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind(kind))
	patch.SetNamespace(queue.GetNamespace())
	patch.SetName(queue.GetName())
	patch.SetUID(queue.GetUID())
	return patch, nil
}
