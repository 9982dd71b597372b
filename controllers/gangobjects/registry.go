package gangobjects

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// A Config configures the schedulers.
type Config struct {
	// Gang names the scheduler that places gangs by default, and configures each of them.
	Gang *configapi.Gang
	// Reader reads the objects of gangs. It must be a cache.
	Reader client.Reader
	// Resources lists the resources that the API server serves.
	Resources apiwatch.Lister
}

func (c *Config) validate() error {
	if c.Gang == nil || c.Resources == nil {
		return errors.New("gangobjects.Config: Gang and Resources are required")
	}
	return nil
}

// Registry has a Backend for each scheduler that may place gangs. The zero Registry places none.
type Registry struct {
	config configapi.Gang
	all    []*Backend
}

// New asks the API server once which objects it serves. A scheduler without them gets a Backend that is not Served.
func New(config Config) (*Registry, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	g := config.Gang
	r := &Registry{config: *g}
	for _, scheduler := range []struct {
		name configapi.GangProvider
		// providers implement different versions of one API. The newest is the first.
		providers []schedulergang.Provider
	}{
		{configapi.GangProviderKube, []schedulergang.Provider{schedulergang.Kube{Version: schedulergang.V1beta1}, schedulergang.Kube{Version: schedulergang.V1alpha2}}},
		{configapi.GangProviderCoscheduling, []schedulergang.Provider{
			schedulergang.Coscheduling{SchedulerName: g.Coscheduling.SchedulerName, TimeoutSeconds: g.Coscheduling.TimeoutSeconds},
		}},
		{configapi.GangProviderVolcano, []schedulergang.Provider{schedulergang.Volcano{SchedulerName: g.Volcano.SchedulerName, Queue: g.Volcano.Queue}}},
		{configapi.GangProviderKoordinator, []schedulergang.Provider{schedulergang.Koordinator{
			SchedulerName: g.Koordinator.SchedulerName, Mode: schedulergang.KoordinatorMode(g.Koordinator.Mode), TimeoutSeconds: g.Koordinator.TimeoutSeconds,
		}}},
		{configapi.GangProviderKAI, []schedulergang.Provider{schedulergang.KAI{SchedulerName: g.KAI.SchedulerName, Queue: g.KAI.Queue}}},
	} {
		backend := &Backend{name: scheduler.name, reader: config.Reader}
		for _, backend.provider = range scheduler.providers {
			var err error
			if backend.served, err = serves(config.Resources, backend.provider.Kinds()); err != nil {
				return nil, err
			}
			if backend.served {
				backend.kinds = backend.provider.Kinds()
				break
			}
		}
		r.all = append(r.all, backend)
	}
	return r, nil
}

func serves(resources apiwatch.Lister, kinds []schedulergang.Kind) (bool, error) {
	for _, kind := range kinds {
		isServed, err := apiwatch.Serves(resources, kind.APIVersion, func(r metav1.APIResource) bool {
			return r.Kind == kind.Kind && !strings.Contains(r.Name, "/")
		})
		if err != nil || !isServed {
			return false, err
		}
	}
	return true, nil
}

// Kinds returns an empty object of each kind of gang object, to be watched.
func (r *Registry) Kinds() []*unstructured.Unstructured {
	var kinds []*unstructured.Unstructured
	if r != nil {
		for _, backend := range r.all {
			for _, kind := range backend.kinds {
				kinds = append(kinds, empty(kind.TypeMeta))
			}
		}
	}
	return kinds
}

// Default returns the Backend of the scheduler that the configuration names, or nil if it names none.
func (r *Registry) Default() *Backend {
	if r == nil {
		return nil
	}
	backend, _ := r.Of(string(r.config.Provider))
	return backend
}

// Of returns the Backend of a scheduler, nil for None. It is an error if there is no such scheduler.
func (r *Registry) Of(name string) (*Backend, error) {
	names := []string{string(configapi.GangProviderNone)}
	if name == names[0] {
		return nil, nil //nolint:nilnil // the nil Backend keeps none
	}
	for _, backend := range r.all {
		if backend.Name() == name {
			return backend, nil
		}
		names = append(names, backend.Name())
	}
	return nil, fmt.Errorf("%q must be one of %s", name, strings.Join(names, ", "))
}

// Patience returns how long pods may be without a node before the manager reports why.
func (r *Registry) Patience() time.Duration {
	if r == nil || r.config.DiagnoseAfter == nil {
		return 0
	}
	return r.config.DiagnoseAfter.Duration
}

// SchedulerName returns the schedulerName of pods that a Backend's scheduler places, or "" if they keep their own.
func (r *Registry) SchedulerName(backend *Backend) string {
	if backend == nil {
		return ""
	}
	return r.config.SchedulerName(backend.name)
}
