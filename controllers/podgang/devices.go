package podgang

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// readDevices reads what the pods of a gang are charged for: their ResourceClaims, and whether the ResourceClaimTemplates exist from which
// these are created. Pods without resource claims need neither, and where no DeviceClass is mapped neither is read.
func (r *Reconciler) readDevices(ctx context.Context, namespace string, pods []*corev1.Pod) (*podgroup.Devices, error) {
	devices := &podgroup.Devices{Mapping: r.config.Devices, Claims: map[string]device.Claim{}, Templates: map[string]struct{}{}}
	names := map[string]struct{}{}
	for _, pod := range pods {
		for i := range pod.Spec.ResourceClaims {
			names[ptr.Deref(pod.Spec.ResourceClaims[i].ResourceClaimTemplateName, "")] = struct{}{}
		}
	}
	delete(names, "")
	if len(names) == 0 || len(r.config.Devices) == 0 {
		return devices, nil
	}
	var claims resourcev1.ResourceClaimList
	// The cache is enough: the spec of a ResourceClaim never changes, and an event will report a claim that the cache lacks.
	if err := r.client.List(ctx, &claims, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list ResourceClaims in namespace %q: %w", namespace, err)
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		devices.Claims[c.Name] = device.Claim{Controller: metav1.GetControllerOfNoCopy(c), Spec: c.Spec}
	}
	for name := range names {
		var template resourcev1.ResourceClaimTemplate
		err := r.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &template)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read ResourceClaimTemplate %q in namespace %q: %w", name, namespace, err)
		}
		if err == nil {
			devices.Templates[name] = struct{}{}
		}
	}
	return devices, nil
}

// StripClaim reduces a ResourceClaim in the cache to its requests and the pod it was created for.
func StripClaim(object any) (any, error) {
	claim, ok := object.(*resourcev1.ResourceClaim)
	if !ok {
		return object, nil
	}
	return &resourcev1.ResourceClaim{
		TypeMeta: claim.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion, OwnerReferences: claim.OwnerReferences,
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: claim.Spec.Devices.Requests}},
	}, nil
}

// gangOfClaim maps a ResourceClaim to the gang of its pod or of its PodGroup.
func (r *Reconciler) gangOfClaim(ctx context.Context, claim *resourcev1.ResourceClaim) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(claim)
	switch {
	case owner != nil && owner.Kind == "PodGroup" && strings.HasPrefix(owner.APIVersion, "scheduling.k8s.io/"):
		return []reconcile.Request{requestOf(podgroup.Ref{Kind: podgroup.Core, Namespace: claim.Namespace, Name: owner.Name})}
	case owner == nil || owner.Kind != "Pod":
		return nil
	}
	var pod corev1.Pod
	// An event will report a pod that the cache lacks.
	if err := r.pods.Get(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: owner.Name}, &pod); err != nil {
		return nil
	}
	return gangOfPod(ctx, &pod)
}

// gangsOfTemplate maps a ResourceClaimTemplate to the gangs of the pods that name it.
func (r *Reconciler) gangsOfTemplate(ctx context.Context, template *resourcev1.ResourceClaimTemplate) []reconcile.Request {
	var pods corev1.PodList
	if err := r.pods.List(ctx, &pods, client.InNamespace(template.Namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing pods of gangs", "because of", template.Name)
		return nil
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		if slices.ContainsFunc(pods.Items[i].Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool {
			return ptr.Deref(c.ResourceClaimTemplateName, "") == template.Name
		}) {
			requests = append(requests, gangOfPod(ctx, &pods.Items[i])...)
		}
	}
	return requests
}
