package engine

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission"
)

// A Source turns objects of one kind into observations.
type Source[T client.Object] struct {
	// Observed is called for each object that exists or has changed. It may return nil if there is nothing to observe.
	Observed func(T) admission.Event
	// Differs, if it is set, reports whether a change matters to the engine.
	Differs func(before, after T) bool
	// Gone is called for each object that no longer exists.
	Gone func(T) admission.Event
}

// Watch feeds the objects of one kind to the runner, in the order in which the API server reports them. It goes straight from the informer
// to the engine: a work queue would let an older observation overtake a newer one.
func Watch[T client.Object](ctx context.Context, mgr ctrl.Manager, r *Runner, kind T, source Source[T]) error {
	informer, err := mgr.GetCache().GetInformer(ctx, kind)
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { observe(r, object, source.Observed) },
		UpdateFunc: func(before, after any) {
			if source.differs(before, after) {
				observe(r, after, source.Observed)
			}
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			observe(r, object, source.Gone)
		},
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	r.AddSource(registration.HasSynced)
	return nil
}

func (s *Source[T]) differs(before, after any) bool {
	old, wasTyped := before.(T)
	current, isTyped := after.(T)
	return s.Differs == nil || !wasTyped || !isTyped || s.Differs(old, current)
}

func observe[T client.Object](r *Runner, object any, f func(T) admission.Event) {
	if typed, ok := object.(T); ok {
		if event := f(typed); event != nil {
			r.Observe(event)
		}
	}
}
