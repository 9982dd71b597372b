package engine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
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
	synced, err := informer.Watch(ctx, mgr.GetCache(), kind, informer.Handler[T]{
		Added: func(object T) { r.Observe(source.Observed(object)) },
		Changed: func(before, after T) {
			if source.Differs == nil || source.Differs(before, after) {
				r.Observe(source.Observed(after))
			}
		},
		Deleted: func(object T) { r.Observe(source.Gone(object)) },
	})
	if err != nil {
		return err
	}
	r.AddSource(synced)
	return nil
}
