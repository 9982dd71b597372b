package stagesafety

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// A feed passes objects from the goroutine of the engine, which must not block, to a controller.
type feed struct {
	changes chan event.GenericEvent
	wake    chan struct{}

	mu sync.Mutex
	// noted are the objects that have no event yet.
	noted []client.Object
}

func newFeed() *feed {
	return &feed{changes: make(chan event.GenericEvent), wake: make(chan struct{}, 1)}
}

func (f *feed) note(object client.Object) {
	f.mu.Lock()
	f.noted = append(f.noted, object)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Start sends events until the context ends.
func (f *feed) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		f.mu.Lock()
		noted := f.noted
		f.noted = nil
		f.mu.Unlock()
		for _, object := range noted {
			select {
			case <-ctx.Done():
				return nil
			case f.changes <- event.GenericEvent{Object: object}:
			}
		}
	}
}
