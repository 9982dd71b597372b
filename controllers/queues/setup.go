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

	ctrl "sigs.k8s.io/controller-runtime"

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
