// Package podrules feeds the engine the objects by which the API server completes and rejects pods: LimitRanges, RuntimeClasses, and
// DeviceClasses that serve extended resources; and ResourceClaimTemplates, which name the devices of pods.
package podrules

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// SetupWithManager starts to watch LimitRanges, RuntimeClasses and ResourceClaimTemplates, and DeviceClasses if any is mapped to a resource of
// quota.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner, devices device.Mapping) error {
	err := errors.Join(
		engine.Watch(ctx, mgr, runner, &corev1.LimitRange{}, engine.Source[*corev1.LimitRange]{
			Observed: func(r *corev1.LimitRange) admission.Event { return admission.LimitRangeObserved{LimitRange: r} },
			Gone: func(r *corev1.LimitRange) admission.Event {
				return admission.LimitRangeGone{Key: client.ObjectKeyFromObject(r)}
			},
		}),
		engine.Watch(ctx, mgr, runner, &nodev1.RuntimeClass{}, engine.Source[*nodev1.RuntimeClass]{
			Observed: func(c *nodev1.RuntimeClass) admission.Event {
				return admission.RuntimeClassObserved{Name: c.Name, Overhead: overheadOf(c)}
			},
			Gone: func(c *nodev1.RuntimeClass) admission.Event { return admission.RuntimeClassGone{Name: c.Name} },
		}),
		engine.Watch(ctx, mgr, runner, &resourcev1.ResourceClaimTemplate{}, engine.Source[*resourcev1.ResourceClaimTemplate]{
			Observed: func(t *resourcev1.ResourceClaimTemplate) admission.Event {
				return admission.ClaimTemplateObserved{Template: t}
			},
			// The spec never changes.
			Differs: func(before, after *resourcev1.ResourceClaimTemplate) bool { return before.UID != after.UID },
			Gone: func(t *resourcev1.ResourceClaimTemplate) admission.Event {
				return admission.ClaimTemplateGone{Key: client.ObjectKeyFromObject(t)}
			},
		}),
	)
	if err != nil || len(devices) == 0 {
		return err
	}
	return engine.Watch(ctx, mgr, runner, &resourcev1.DeviceClass{}, engine.Source[*resourcev1.DeviceClass]{
		Observed: func(c *resourcev1.DeviceClass) admission.Event { return admission.DeviceClassObserved{DeviceClass: c} },
		Differs: func(before, after *resourcev1.DeviceClass) bool {
			return before.UID != after.UID || !equality.Semantic.DeepEqual(before.Spec.ExtendedResourceName, after.Spec.ExtendedResourceName)
		},
		Gone: func(c *resourcev1.DeviceClass) admission.Event { return admission.DeviceClassGone{Name: c.Name} },
	})
}

func overheadOf(class *nodev1.RuntimeClass) corev1.ResourceList {
	if class.Overhead == nil {
		return nil
	}
	return class.Overhead.PodFixed
}
