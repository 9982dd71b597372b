package detail

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Fixed reads objects that do not change, those of a snapshot. It has no lists.
type Fixed struct {
	// Scheme has the kinds of the objects.
	Scheme  *runtime.Scheme
	Objects []client.Object
}

// Get implements client.Reader.
func (f *Fixed) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind, err := apiutil.GVKForObject(into, f.Scheme)
	if err != nil {
		return err
	}
	for _, object := range f.Objects {
		if client.ObjectKeyFromObject(object) != key {
			continue
		}
		if of, err := apiutil.GVKForObject(object, f.Scheme); err != nil || of != kind {
			continue
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return err
		}
		if plain, isPlain := into.(*unstructured.Unstructured); isPlain {
			plain.Object = fields
			plain.SetGroupVersionKind(kind)
			return nil
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(fields, into)
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name)
}

// List implements client.Reader. It returns an error, because a snapshot has no pods and no Events.
func (f *Fixed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(list, f.Scheme)
	if err != nil {
		return err
	}
	refused := apierrors.NewMethodNotSupported(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, "list")
	refused.ErrStatus.Message = "a snapshot has none"
	return refused
}
