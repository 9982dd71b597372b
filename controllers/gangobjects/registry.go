package gangobjects

import (
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

// Registry has a Backend for each scheduler that may place gangs, and one for None.
type Registry struct {
	// Default is the Backend of the scheduler that the configuration names.
	Default *Backend
	// Patience is how long pods may be without a node before the manager reports why.
	Patience time.Duration

	all []*Backend
}

// New asks the API server once which objects it serves. A scheduler without them gets a Backend whose API is not served. The reader of the
// objects must be a cache, and the defaults of the configuration must be set.
func New(g *configapi.Gang, reader client.Reader, resources apiwatch.Lister) (*Registry, error) {
	r := &Registry{Patience: g.DiagnoseAfter.Duration, all: []*Backend{{API: schedulergang.API{Name: string(configapi.GangProviderNone)}}}}
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
		backend := &Backend{API: schedulergang.API{Name: string(scheduler.name), IsConfigured: true}, SchedulerName: g.SchedulerName(scheduler.name), reader: reader}
		for _, backend.provider = range scheduler.providers {
			if err := backend.ask(resources); err != nil {
				return nil, err
			}
			if backend.API.IsServed {
				break
			}
		}
		r.all = append(r.all, backend)
	}
	var err error
	r.Default, err = r.Of(string(g.Provider))
	return r, err
}

// ask sets the part of the API that depends on what the API server serves. A scheduler that creates all objects itself needs no version.
func (b *Backend) ask(resources apiwatch.Lister) error {
	kinds := b.provider.Kinds()
	if len(kinds) > 0 {
		b.API.WantedVersion = kinds[0].APIVersion
	}
	var err error
	if b.API.IsServed, err = serves(resources, kinds); b.API.IsServed {
		b.API.Version = b.API.WantedVersion
	}
	return err
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

// Kinds returns an empty object of each kind of gang object that is served, to be watched.
func (r *Registry) Kinds() []*unstructured.Unstructured {
	var kinds []*unstructured.Unstructured
	for _, backend := range r.all {
		if backend.API.IsServed {
			for _, kind := range backend.provider.Kinds() {
				kinds = append(kinds, empty(kind.TypeMeta))
			}
		}
	}
	return kinds
}

// Of returns the Backend of a scheduler. It is an error if there is no such scheduler.
func (r *Registry) Of(name string) (*Backend, error) {
	var names []string
	for _, backend := range r.all {
		if backend.API.Name == name {
			return backend, nil
		}
		names = append(names, backend.API.Name)
	}
	return nil, fmt.Errorf("%q must be one of %s", name, strings.Join(names, ", "))
}
