// Package queues watches the objects of administrators on which admission depends.
//
// It feeds each of them to the engine as an observation: ResourceFlavors, AdmissionChecks, Cohorts, ClusterQueues, LocalQueues, the labels of
// Namespaces, and the objects by which the API server completes and rejects pods. What the engine makes of them is written back:
//
//	ClusterQueue, LocalQueue, Cohort                  status, owned by the field manager of the manager
//	ClusterQueue, ResourceFlavor, AdmissionCheck      Kueue's finalizer, while the object is in use
//	quota Workload                                    spec.priority, if its WorkloadPriorityClass has another value
//
// The controllers of JobSets and of gangs of pods write the priority of their own quota Workloads, and also choose the class.
package queues

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/device"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// A Config configures the controllers of this package.
type Config struct {
	// Runner owns the admission engine.
	Runner *engine.Runner
	// Devices maps the devices that pods claim to the resources that are charged for them.
	Devices device.Mapping
	// Workers is how many objects of each kind are reconciled at the same time. Its defaults must be set.
	Workers configapi.Workers
}

func (c *Config) validate() error {
	if c.Runner == nil {
		return errors.New("queues.Config: Runner is required")
	}
	w := &c.Workers
	if w.ResourceFlavor == nil || w.AdmissionCheck == nil || w.ClusterQueue == nil || w.LocalQueue == nil {
		return errors.New("queues.Config: the defaults of Workers are not set")
	}
	return nil
}

// SetupWithManager starts to feed the engine, and to write status, finalizers and priorities.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if err := config.validate(); err != nil {
		return err
	}
	return errors.Join(
		feed(ctx, mgr, config.Runner),
		feedPodRules(ctx, mgr, config.Runner, config.Devices),
		setUpFlavors(ctx, mgr, *config.Workers.ResourceFlavor),
		setUpChecks(ctx, mgr, *config.Workers.AdmissionCheck),
		setUpClusterQueues(mgr, config.Runner, *config.Workers.ClusterQueue),
		setUpLocalQueues(mgr, config.Runner, *config.Workers.LocalQueue),
		setUpCohorts(mgr, config.Runner),
		setUpPriorityClasses(ctx, mgr),
	)
}

// FeedWithManager starts to feed the engine, and writes nothing: another engine writes status, finalizers and priorities.
func FeedWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if config.Runner == nil {
		return errors.New("queues.Config: Runner is required")
	}
	return errors.Join(feed(ctx, mgr, config.Runner), feedPodRules(ctx, mgr, config.Runner, config.Devices))
}

// feed passes the objects of the queue API, and the labels of Namespaces, to the engine.
func feed(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner) error {
	return errors.Join(
		engine.Watch(ctx, mgr, runner,
			func(n *corev1.Namespace) admission.Event {
				return admission.NamespaceObserved{Name: n.Name, Labels: n.Labels}
			},
			func(n *corev1.Namespace) admission.Event { return admission.NamespaceGone{Name: n.Name} }),
		engine.Watch(ctx, mgr, runner,
			func(f *kueue.ResourceFlavor) admission.Event { return admission.FlavorObserved{Flavor: f} },
			func(f *kueue.ResourceFlavor) admission.Event { return admission.FlavorGone{Name: f.Name} }),
		engine.Watch(ctx, mgr, runner,
			func(c *kueue.AdmissionCheck) admission.Event { return admission.CheckObserved{AdmissionCheck: c} },
			func(c *kueue.AdmissionCheck) admission.Event { return admission.CheckGone{Name: c.Name} }),
		engine.Watch(ctx, mgr, runner,
			func(c *kueue.Cohort) admission.Event { return admission.CohortObserved{Cohort: c} },
			func(c *kueue.Cohort) admission.Event { return admission.CohortGone{Name: c.Name} }),
		engine.Watch(ctx, mgr, runner,
			func(q *kueue.ClusterQueue) admission.Event {
				return admission.ClusterQueueObserved{ClusterQueue: q, IsUnprotected: lacksFinalizer(q)}
			},
			func(q *kueue.ClusterQueue) admission.Event { return admission.ClusterQueueGone{Name: q.Name} }),
		engine.Watch(ctx, mgr, runner,
			func(q *kueue.LocalQueue) admission.Event { return admission.LocalQueueObserved{LocalQueue: q} },
			func(q *kueue.LocalQueue) admission.Event {
				return admission.LocalQueueGone{Key: client.ObjectKeyFromObject(q)}
			}),
	)
}

// feedPodRules passes to the engine the objects by which the API server completes and rejects pods: LimitRanges and RuntimeClasses; and, if
// any DeviceClass is mapped to a resource of quota, DeviceClasses that serve extended resources and ResourceClaimTemplates, which name the
// devices of pods.
func feedPodRules(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner, devices device.Mapping) error {
	err := errors.Join(
		engine.Watch(ctx, mgr, runner,
			func(r *corev1.LimitRange) admission.Event { return admission.LimitRangeObserved{LimitRange: r} },
			func(r *corev1.LimitRange) admission.Event {
				return admission.LimitRangeGone{Key: client.ObjectKeyFromObject(r)}
			}),
		engine.Watch(ctx, mgr, runner,
			func(c *nodev1.RuntimeClass) admission.Event {
				return admission.RuntimeClassObserved{Name: c.Name, Overhead: ptr.Deref(c.Overhead, nodev1.Overhead{}).PodFixed}
			},
			func(c *nodev1.RuntimeClass) admission.Event { return admission.RuntimeClassGone{Name: c.Name} }),
	)
	if err != nil || len(devices) == 0 {
		return err
	}
	return errors.Join(
		engine.Watch(ctx, mgr, runner,
			func(t *resourcev1.ResourceClaimTemplate) admission.Event {
				return admission.ClaimTemplateObserved{Template: t}
			},
			func(t *resourcev1.ResourceClaimTemplate) admission.Event {
				return admission.ClaimTemplateGone{Key: client.ObjectKeyFromObject(t)}
			}),
		engine.Watch(ctx, mgr, runner,
			func(c *resourcev1.DeviceClass) admission.Event { return admission.DeviceClassObserved{DeviceClass: c} },
			func(c *resourcev1.DeviceClass) admission.Event { return admission.DeviceClassGone{Name: c.Name} }),
	)
}
