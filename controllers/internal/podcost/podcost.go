// Package podcost completes a pod template by what the cluster adds to its pods and quota must count: the defaults of LimitRanges, the overhead
// of RuntimeClasses, and the resources that are charged for devices.
package podcost

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/podresources"
)

// A Reader reads what the cluster adds to pods.
type Reader struct {
	Client client.Reader
	// Devices maps devices to the resources that are charged for them.
	Devices device.Mapping
}

// Limits returns the defaults that the LimitRanges of a namespace give to its pods.
func (r Reader) Limits(ctx context.Context, namespace string) (podresources.Limits, error) {
	var ranges corev1.LimitRangeList
	if err := r.Client.List(ctx, &ranges, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return podresources.Limits{}, fmt.Errorf("list LimitRanges of namespace %s: %w", namespace, err)
	}
	all := make([]*corev1.LimitRange, len(ranges.Items))
	for i := range ranges.Items {
		all[i] = &ranges.Items[i]
	}
	return podresources.Merge(all), nil
}

// Changes reports whether AddDefaults or ChargeDevices may change a pod template.
func Changes(pod *corev1.PodTemplateSpec, limits podresources.Limits) bool {
	return pod.Spec.RuntimeClassName != nil || device.IsCharged(pod) || len(pod.Spec.ResourceClaims) > 0 || limits.Effective(&pod.Spec, nil) != &pod.Spec
}

// AddDefaults adds to a pod the defaults of the LimitRanges of its namespace, and the overhead of its RuntimeClass.
func (r Reader) AddDefaults(ctx context.Context, pod *corev1.PodSpec, limits podresources.Limits) error {
	var class nodev1.RuntimeClass
	if pod.RuntimeClassName != nil {
		// If the RuntimeClass does not exist, the API server rejects the pods and reports why.
		err := r.Client.Get(ctx, types.NamespacedName{Name: *pod.RuntimeClassName}, &class)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read RuntimeClass %q: %w", *pod.RuntimeClassName, err)
		}
	}
	*pod = *limits.Effective(pod, ptr.Deref(class.Overhead, nodev1.Overhead{}).PodFixed)
	return nil
}

// ChargeDevices replaces the resource claims of a pod template by the resources that are charged for their devices, or returns why it cannot.
func (r Reader) ChargeDevices(ctx context.Context, namespace string, pod *corev1.PodTemplateSpec) (*device.Problem, error) {
	device.Forget(pod)
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil, nil //nolint:nilnil // there is no problem
	}
	templates := map[string]device.Template{}
	for i := range pod.Spec.ResourceClaims {
		name := ptr.Deref(pod.Spec.ResourceClaims[i].ResourceClaimTemplateName, "")
		if name == "" || len(r.Devices) == 0 {
			continue
		}
		var template resourcev1.ResourceClaimTemplate
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &template)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read ResourceClaimTemplate %q: %w", name, err)
		}
		templates[name] = device.Template{UID: template.UID, Spec: template.Spec.Spec}
	}
	return r.Devices.Charge(pod, templates), nil
}
