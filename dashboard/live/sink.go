package live

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
)

// A sink hands the objects of a watch to the Model. It implements cache.ReflectorStore and keeps no objects.
type sink struct {
	feed      *Feed
	kind      *kind
	namespace string
	isSynced  bool
}

var _ cache.TransformingStore = (*sink)(nil)

// Add implements cache.ReflectorStore.
func (s *sink) Add(object any) error {
	return s.change(object, func(m *dashboard.Model, o client.Object) { m.Observe(o) })
}

// Update implements cache.ReflectorStore.
func (s *sink) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *sink) Delete(object any) error {
	return s.change(object, func(m *dashboard.Model, o client.Object) { m.Forget(o) })
}

// Replace implements cache.ReflectorStore.
func (s *sink) Replace(objects []any, _ string) error {
	current := make(map[types.NamespacedName]struct{}, len(objects))
	for _, object := range objects {
		err := s.change(object, func(m *dashboard.Model, o client.Object) {
			current[client.ObjectKeyFromObject(o)] = struct{}{}
			m.Observe(o)
		})
		if err != nil {
			return err
		}
	}
	s.feed.store.Use(func(m *dashboard.Model) {
		m.Retain(s.kind.object(), s.namespace, func(key types.NamespacedName) bool {
			_, isCurrent := current[key]
			return isCurrent
		})
	})
	if !s.isSynced {
		s.isSynced = true
		s.feed.sync(-1)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *sink) Resync() error { return nil }

// Transformer implements cache.TransformingStore: while a list is read, its objects are in memory without what the Model does not use.
func (s *sink) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		switch object := object.(type) {
		case *kueue.Workload:
			object.ManagedFields = nil
			for i := range object.Spec.PodSets {
				object.Spec.PodSets[i] = kueue.PodSet{Name: object.Spec.PodSets[i].Name, Count: object.Spec.PodSets[i].Count}
			}
		case *jobsetapi.JobSet:
			object.ManagedFields = nil
			object.Spec.ReplicatedJobs, object.Annotations = nil, withoutLarge(object.Annotations)
		case client.Object:
			object.SetManagedFields(nil)
		}
		return object, nil
	}
}

// withoutLarge removes annotations that are too large to matter for a state, such as those of kubectl and the timeline.
func withoutLarge(annotations map[string]string) map[string]string {
	const large = 256
	for key, value := range annotations {
		if len(value) > large {
			delete(annotations, key)
		}
	}
	return annotations
}

func (s *sink) change(object any, f func(m *dashboard.Model, o client.Object)) error {
	o, isObject := object.(client.Object)
	if !isObject {
		return fmt.Errorf("%T is no object", object)
	}
	s.feed.store.Use(func(m *dashboard.Model) { f(m, o) })
	return nil
}
