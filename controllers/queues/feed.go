package queues

import (
	"context"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// feed passes the objects of the queue API, and the labels of Namespaces, to the engine.
func feed(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner) error {
	return errors.Join(
		engine.Watch(ctx, mgr, runner, &corev1.Namespace{}, engine.Source[*corev1.Namespace]{
			Observed: func(n *corev1.Namespace) admission.Event {
				return admission.NamespaceObserved{Name: n.Name, Labels: n.Labels}
			},
			Differs: func(before, after *corev1.Namespace) bool { return !maps.Equal(before.Labels, after.Labels) },
			Gone:    func(n *corev1.Namespace) admission.Event { return admission.NamespaceGone{Name: n.Name} },
		}),
		engine.Watch(ctx, mgr, runner, &kueue.ResourceFlavor{}, engine.Source[*kueue.ResourceFlavor]{
			Observed: func(f *kueue.ResourceFlavor) admission.Event { return admission.FlavorObserved{Flavor: f} },
			Gone:     func(f *kueue.ResourceFlavor) admission.Event { return admission.FlavorGone{Name: f.Name} },
		}),
		engine.Watch(ctx, mgr, runner, &kueue.AdmissionCheck{}, engine.Source[*kueue.AdmissionCheck]{
			Observed: func(c *kueue.AdmissionCheck) admission.Event { return admission.CheckObserved{AdmissionCheck: c} },
			Gone:     func(c *kueue.AdmissionCheck) admission.Event { return admission.CheckGone{Name: c.Name} },
		}),
		engine.Watch(ctx, mgr, runner, &kueue.Cohort{}, engine.Source[*kueue.Cohort]{
			Observed: func(c *kueue.Cohort) admission.Event { return admission.CohortObserved{Cohort: c} },
			Differs: func(before, after *kueue.Cohort) bool {
				return before.UID != after.UID || before.Generation != after.Generation
			},
			Gone: func(c *kueue.Cohort) admission.Event { return admission.CohortGone{Name: c.Name} },
		}),
		engine.Watch(ctx, mgr, runner, &kueue.ClusterQueue{}, engine.Source[*kueue.ClusterQueue]{
			Observed: func(q *kueue.ClusterQueue) admission.Event {
				return admission.ClusterQueueObserved{ClusterQueue: q, IsUnprotected: lacksFinalizer(q)}
			},
			Gone: func(q *kueue.ClusterQueue) admission.Event { return admission.ClusterQueueGone{Name: q.Name} },
		}),
		engine.Watch(ctx, mgr, runner, &kueue.LocalQueue{}, engine.Source[*kueue.LocalQueue]{
			Observed: func(q *kueue.LocalQueue) admission.Event { return admission.LocalQueueObserved{LocalQueue: q} },
			Gone: func(q *kueue.LocalQueue) admission.Event {
				return admission.LocalQueueGone{Key: client.ObjectKeyFromObject(q)}
			},
		}),
	)
}

// feedPodRules passes to the engine the objects by which the API server completes and rejects pods: LimitRanges and RuntimeClasses; and, if
// any DeviceClass is mapped to a resource of quota, DeviceClasses that serve extended resources and ResourceClaimTemplates, which name the
// devices of pods.
func feedPodRules(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner, devices device.Mapping) error {
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
	)
	if err != nil || len(devices) == 0 {
		return err
	}
	return errors.Join(
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
		engine.Watch(ctx, mgr, runner, &resourcev1.DeviceClass{}, engine.Source[*resourcev1.DeviceClass]{
			Observed: func(c *resourcev1.DeviceClass) admission.Event {
				return admission.DeviceClassObserved{DeviceClass: c}
			},
			Differs: func(before, after *resourcev1.DeviceClass) bool {
				return before.UID != after.UID || !equality.Semantic.DeepEqual(before.Spec.ExtendedResourceName, after.Spec.ExtendedResourceName)
			},
			Gone: func(c *resourcev1.DeviceClass) admission.Event { return admission.DeviceClassGone{Name: c.Name} },
		}),
	)
}

func overheadOf(class *nodev1.RuntimeClass) corev1.ResourceList {
	if class.Overhead == nil {
		return nil
	}
	return class.Overhead.PodFixed
}
