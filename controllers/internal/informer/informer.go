// Package informer calls functions for the changes of typed objects in the cache, in the order in which the API server reports them. It is
// for consumers that must not miss or reorder a change: a work queue would merge changes, and let an older one overtake a newer one.
package informer

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Handler has the functions for objects of one kind. They must not block. A function that is nil is not called.
type Handler[T client.Object] struct {
	// Added is called for each object that exists when the watch begins, and for each new one.
	Added func(T)
	// Changed is called with two successive observations of an object.
	Changed func(before, after T)
	// Deleted is called with the last observation of an object that no longer exists.
	Deleted func(T)
}

// Watch calls the functions of a Handler for the objects of one kind, until the cache stops. It returns a function that reports whether the
// Handler has got all objects that existed when the watch began.
func Watch[T client.Object](ctx context.Context, c cache.Informers, kind T, h Handler[T]) (toolscache.InformerSynced, error) {
	informer, err := c.GetInformer(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { call(h.Added, object) },
		UpdateFunc: func(before, after any) {
			if was, ok := before.(T); ok && h.Changed != nil {
				call(func(is T) { h.Changed(was, is) }, after)
			}
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			call(h.Deleted, object)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	return registration.HasSynced, nil
}

// All returns the objects of one kind in the cache, in any order. They still belong to the cache and must not be changed. A list, also without deep copies,
// would copy the struct of each: 68 MiB for a hundred thousand quota Workloads.
func All[T client.Object](ctx context.Context, c cache.Informers, kind T) ([]T, error) {
	informer, err := c.GetInformer(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("read %T from the cache: %w", kind, err)
	}
	stored, ok := informer.(interface{ GetStore() toolscache.Store })
	if !ok {
		return nil, fmt.Errorf("read %T from the cache: %T has no store", kind, informer)
	}
	objects := stored.GetStore().List()
	all := make([]T, 0, len(objects))
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			all = append(all, typed)
		}
	}
	return all, nil
}

func call[T client.Object](f func(T), object any) {
	if typed, ok := object.(T); ok && f != nil {
		f(typed)
	}
}
