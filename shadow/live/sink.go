package live

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/snapshot"
)

// A sink hands the objects of a watch to the Recorder. It implements cache.ReflectorStore and keeps only the names of the objects.
type sink struct {
	feed     *Feed
	kind     *snapshot.Kind
	names    map[string]snapshot.Object
	isSynced bool
}

var _ cache.TransformingStore = (*sink)(nil)

// Add implements cache.ReflectorStore.
func (s *sink) Add(object any) error {
	return s.change(object, func(o snapshot.Object) {
		s.names[keyOf(o)] = s.named(o)
		s.feed.recorder.Observe(o, time.Now())
	})
}

// Update implements cache.ReflectorStore.
func (s *sink) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *sink) Delete(object any) error {
	return s.change(object, func(o snapshot.Object) {
		delete(s.names, keyOf(o))
		s.feed.recorder.Observe(o, time.Now()) // the last state is that at the deletion
		s.feed.recorder.Gone(o, time.Now())
	})
}

// Replace implements cache.ReflectorStore.
func (s *sink) Replace(objects []any, _ string) error {
	current := map[string]snapshot.Object{}
	for _, object := range objects {
		err := s.change(object, func(o snapshot.Object) {
			current[keyOf(o)] = s.named(o)
			s.feed.recorder.Observe(o, time.Now())
		})
		if err != nil {
			return err
		}
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for key, gone := range s.names {
		if now := current[key]; now == nil || now.GetUID() != gone.GetUID() {
			s.feed.recorder.Gone(gone, time.Now())
		}
	}
	s.names = current
	if !s.isSynced {
		s.isSynced = true
		if s.feed.unsynced--; s.feed.unsynced == 0 {
			close(s.feed.synced)
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *sink) Resync() error { return nil }

// Transformer implements cache.TransformingStore: while a list is read, its objects are in memory without what does not decide admission.
func (s *sink) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if o, isObject := object.(snapshot.Object); isObject {
			return snapshot.ReducedObject(s.kind, o), nil
		}
		return object, nil
	}
}

func (s *sink) change(object any, f func(snapshot.Object)) error {
	o, isObject := object.(snapshot.Object)
	if !isObject {
		return fmt.Errorf("%T is no object", object)
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	f(o)
	return nil
}

func keyOf(o snapshot.Object) string { return client.ObjectKeyFromObject(o).String() }

// named returns an object of the kind that has only its name and UID.
func (s *sink) named(o snapshot.Object) snapshot.Object {
	named := snapshot.NewObject(s.kind)
	named.SetNamespace(o.GetNamespace())
	named.SetName(o.GetName())
	named.SetUID(o.GetUID())
	return named
}
