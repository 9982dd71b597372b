package gangobjects

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	shapes "github.com/tranche-dev/tranche/lifecycle/schedulergang"
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
		return errors.New("gang.Config: Gang and Resources are required")
	}
	return nil
}

// Keepers has a Keeper for each scheduler that may place gangs. The zero Keepers places none.
type Keepers struct {
	config configapi.Gang
	all    []*Keeper
}

// New asks the API server once which objects it serves. A scheduler without them gets a Keeper that is not Served.
func New(config Config) (*Keepers, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	g := config.Gang
	k := &Keepers{config: *g}
	for _, scheduler := range []struct {
		name configapi.GangProvider
		// providers implement different versions of one API. The newest is the first.
		providers []shapes.Provider
	}{
		{configapi.GangProviderKube, []shapes.Provider{shapes.Kube{Version: shapes.V1beta1}, shapes.Kube{Version: shapes.V1alpha2}}},
		{configapi.GangProviderCoscheduling, []shapes.Provider{
			shapes.Coscheduling{SchedulerName: g.Coscheduling.SchedulerName, TimeoutSeconds: g.Coscheduling.TimeoutSeconds},
		}},
		{configapi.GangProviderVolcano, []shapes.Provider{shapes.Volcano{SchedulerName: g.Volcano.SchedulerName, Queue: g.Volcano.Queue}}},
		{configapi.GangProviderKoordinator, []shapes.Provider{shapes.Koordinator{
			SchedulerName: g.Koordinator.SchedulerName, Mode: shapes.KoordinatorMode(g.Koordinator.Mode), TimeoutSeconds: g.Koordinator.TimeoutSeconds,
		}}},
		{configapi.GangProviderKAI, []shapes.Provider{shapes.KAI{SchedulerName: g.KAI.SchedulerName, Queue: g.KAI.Queue}}},
	} {
		keeper := &Keeper{name: scheduler.name, reader: config.Reader}
		for _, keeper.provider = range scheduler.providers {
			var err error
			if keeper.served, err = serves(config.Resources, keeper.provider.Kinds()); err != nil {
				return nil, err
			}
			if keeper.served {
				keeper.kinds = keeper.provider.Kinds()
				break
			}
		}
		k.all = append(k.all, keeper)
	}
	return k, nil
}

func serves(resources apiwatch.Lister, kinds []shapes.Kind) (bool, error) {
	for _, kind := range kinds {
		list, err := resources.ServerResourcesForGroupVersion(kind.APIVersion)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("ask the API server for %s: %w", kind.APIVersion, err)
		}
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind && !strings.Contains(r.Name, "/") }) {
			return false, nil
		}
	}
	return true, nil
}

// Kinds returns an empty object of each kind of gang object, to be watched.
func (k *Keepers) Kinds() []*unstructured.Unstructured {
	var kinds []*unstructured.Unstructured
	if k != nil {
		for _, keeper := range k.all {
			for _, kind := range keeper.kinds {
				kinds = append(kinds, empty(kind.TypeMeta))
			}
		}
	}
	return kinds
}

// Default returns the Keeper of the scheduler that the configuration names, or nil if it names none.
func (k *Keepers) Default() *Keeper {
	if k == nil {
		return nil
	}
	keeper, _ := k.Of(string(k.config.Provider))
	return keeper
}

// Of returns the Keeper of a scheduler, nil for None. It is an error if there is no such scheduler.
func (k *Keepers) Of(name string) (*Keeper, error) {
	names := []string{string(configapi.GangProviderNone)}
	if name == names[0] {
		return nil, nil //nolint:nilnil // the nil Keeper keeps none
	}
	for _, keeper := range k.all {
		if keeper.Name() == name {
			return keeper, nil
		}
		names = append(names, keeper.Name())
	}
	return nil, fmt.Errorf("%q must be one of %s", name, strings.Join(names, ", "))
}

// Patience returns how long pods may be without a node before the manager reports why.
func (k *Keepers) Patience() time.Duration {
	if k == nil || k.config.DiagnoseAfter == nil {
		return 0
	}
	return k.config.DiagnoseAfter.Duration
}

// SchedulerName returns the schedulerName of pods that a Keeper's scheduler places, or "" if they keep their own.
func (k *Keepers) SchedulerName(keeper *Keeper) string {
	if keeper == nil {
		return ""
	}
	return k.config.SchedulerName(keeper.name)
}
