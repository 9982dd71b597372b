package snapshot

import (
	"iter"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KindOf returns the kind of an object, by its type, or nil if no kind of a snapshot has it.
func KindOf(object Object) *Kind {
	for _, kind := range Kinds() {
		if kind.has(object) {
			return kind
		}
	}
	return nil
}

// KindNamed returns the kind of a resource with its group, such as "workloads.kueue.x-k8s.io", or nil.
func KindNamed(resource schema.GroupResource) *Kind {
	for _, kind := range Kinds() {
		if kind.FullResource() == resource.String() {
			return kind
		}
	}
	return nil
}

// Reduced returns a copy of an object with the fields that decide admission. The copy shares memory with the object.
func Reduced[T Object](object T) T {
	return KindOf(object).reduce(object).(T) //nolint:forcetypeassert // reduce keeps the type
}

// ReducedObject does the same for an object of a kind.
func ReducedObject(kind *Kind, object Object) Object { return kind.reduce(object) }

// Objects returns the objects of the kind in a snapshot.
func (k *Kind) Objects(s *Snapshot) iter.Seq[Object] { return k.all(s) }

// Find returns the object of a name, or nil.
func (k *Kind) Find(s *Snapshot, namespace, name string) Object {
	for object := range k.all(s) {
		if object.GetNamespace() == namespace && object.GetName() == name {
			return object
		}
	}
	return nil
}

// With returns a snapshot that also has an object, which replaces that of its name. The snapshots share their other objects.
func (k *Kind) With(s *Snapshot, object Object) *Snapshot {
	after := k.Without(s, object.GetNamespace(), object.GetName())
	k.add(after, object)
	k.sort(after)
	return after
}

// Without returns a snapshot without an object. The snapshots share their other objects.
func (k *Kind) Without(s *Snapshot, namespace, name string) *Snapshot {
	after := *s
	k.clear(&after)
	for object := range k.all(s) {
		if object.GetNamespace() != namespace || object.GetName() != name {
			k.add(&after, object)
		}
	}
	return &after
}
