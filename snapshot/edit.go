package snapshot

import (
	"iter"
	"slices"
)

// Clone returns a copy of a snapshot whose objects can be replaced. The objects themselves are shared.
func (s *Snapshot) Clone() *Snapshot {
	clone := *s
	for _, kind := range Kinds() {
		kind.clear(&clone)
		for object := range kind.all(s) {
			kind.add(&clone, object)
		}
	}
	return &clone
}

// Objects returns the objects of a kind.
func (s *Snapshot) Objects(kind *Kind) iter.Seq[Object] { return kind.all(s) }

// Put replaces the object of the same kind, namespace and name, or adds the object. The order of the objects stays.
func (s *Snapshot) Put(kind *Kind, object Object) {
	s.Remove(kind, object)
	kind.add(s, object)
	kind.sort(s)
}

// Remove removes the object of the same kind, namespace and name, if it exists.
func (s *Snapshot) Remove(kind *Kind, object Object) {
	kept := slices.Collect(kind.all(s))
	kind.clear(s)
	for _, other := range kept {
		if compareNames(other, object) != 0 {
			kind.add(s, other)
		}
	}
}

// Find returns the object of a kind with the namespace and name of another one, or nil.
func (s *Snapshot) Find(kind *Kind, like Object) Object {
	for object := range kind.all(s) {
		if compareNames(object, like) == 0 {
			return object
		}
	}
	return nil
}

// Reduce returns a copy of an object with the fields that decide admission. The copy shares memory with the object.
func (k *Kind) Reduce(object Object) Object { return k.reduce(object) }
