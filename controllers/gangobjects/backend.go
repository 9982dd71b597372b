// Package gangobjects keeps the objects by which a scheduler knows the gangs of JobSets. It is no controller: it reads and compares for the
// controller of JobSets, which writes the changes in the order that the lifecycle of stages requires.
//
// It never changes objects that a user has created under a name that Tranche needs.
package gangobjects

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// A Backend reads and compares the gang objects of one scheduler. The Backend of None keeps none.
type Backend struct {
	// API describes the scheduler.
	API schedulergang.API
	// SchedulerName is the schedulerName of the pods that the scheduler places, or "" if they keep their own.
	SchedulerName string

	reader   client.Reader
	provider schedulergang.Provider
}

func empty(kind metav1.TypeMeta) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind.GroupVersionKind())
	return object
}

// Read compares what a JobSet asks for with the existing objects. It returns nil if the JobSet asks for no gangs, if the JobSet controller
// keeps the objects of its gangs itself (spec.scheduling), or if no objects can be kept. It returns a refusal if the JobSet asks for
// something impossible, which only its user can fix.
func (b *Backend) Read(ctx context.Context, js *jobsetapi.JobSet, plan *stageplan.Plan) (state *schedulergang.State, refusal string, err error) {
	if !b.API.IsServed || js.Spec.Scheduling != nil {
		return nil, "", nil
	}
	gangSet, err := schedulergang.New(js, plan, b.provider)
	if err != nil {
		return nil, err.Error(), nil //nolint:nilerr // a retry would not help
	}
	if len(gangSet.PodGroupTemplates)+len(gangSet.UserGangs) == 0 {
		return nil, "", nil
	}
	if state, err = schedulergang.NewState(gangSet, b.provider, len(plan.Stages)); err != nil {
		return nil, "", err
	}
	return state, "", b.readObjects(ctx, state)
}

// readObjects reads the objects of the JobSet, other objects with names that it needs, and the objects that its pod templates name.
func (b *Backend) readObjects(ctx context.Context, state *schedulergang.State) error {
	if err := b.listObjects(ctx, state); err != nil {
		return err
	}
	namespace := state.GangSet.JobSet.Namespace
	for _, object := range state.Unobserved() {
		if err := b.readObject(ctx, object.GetKind(), client.ObjectKey{Namespace: namespace, Name: object.GetName()}, state.Observe); err != nil {
			return err
		}
	}
	for _, userGang := range state.GangSet.UserGangs {
		if err := b.readObject(ctx, schedulergang.PodGroupKind, client.ObjectKey{Namespace: namespace, Name: userGang.Name}, state.ObserveUserGang); err != nil {
			return err
		}
	}
	return nil
}

// listObjects reads the objects of the JobSet, including those of earlier attempts.
func (b *Backend) listObjects(ctx context.Context, state *schedulergang.State) error {
	for _, kind := range b.provider.Kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind+"List"))
		err := b.reader.List(ctx, list, client.InNamespace(state.GangSet.JobSet.Namespace), client.MatchingLabels{apis.JobSetLabel: state.GangSet.JobSet.Name})
		if err != nil {
			return fmt.Errorf("list %ss of JobSet %q: %w", kind.Kind, state.GangSet.JobSet, err)
		}
		for i := range list.Items {
			if object := &list.Items[i]; state.IsOurs(object) {
				state.Observe(object)
			}
		}
	}
	return nil
}

// readObject calls observe with an object, if it exists.
func (b *Backend) readObject(ctx context.Context, kind string, key client.ObjectKey, observe func(*unstructured.Unstructured)) error {
	found := empty(metav1.TypeMeta{APIVersion: b.API.Version, Kind: kind})
	err := b.reader.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s %q: %w", kind, key.Name, err)
	}
	observe(found)
	return nil
}

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

// ask sets the part of the API that depends on what the API server serves.
func (b *Backend) ask(resources apiwatch.Lister) error {
	kinds := b.provider.Kinds()
	b.API.WantedVersion = kinds[0].APIVersion
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
