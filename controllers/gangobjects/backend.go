// Package gangobjects keeps the objects by which a scheduler knows the gangs of JobSets. It is no controller: it reads and compares for the
// controller of JobSets, which writes the changes in the order that the lifecycle of stages requires.
//
// It never changes objects that a user has created under a name that Tranche needs.
package gangobjects

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
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
