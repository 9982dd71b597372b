// Package unopened records which owners have stages that must not open before something changes.
package unopened

import "maps"

// A Registry has these owners, and the topics of which each one wakes them. Its zero value is empty.
type Registry[O, T comparable] struct {
	topics map[O]map[T]struct{}
	owners map[T]map[O]struct{}
	woken  map[O]struct{}
}

// Keep makes the topics wake an owner, besides those that do so already.
func (r *Registry[O, T]) Keep(owner O, topics ...T) {
	if r.topics == nil {
		r.topics, r.owners, r.woken = map[O]map[T]struct{}{}, map[T]map[O]struct{}{}, map[O]struct{}{}
	}
	if r.topics[owner] == nil {
		r.topics[owner] = map[T]struct{}{}
	}
	for _, topic := range topics {
		if r.owners[topic] == nil {
			r.owners[topic] = map[O]struct{}{}
		}
		r.topics[owner][topic], r.owners[topic][owner] = struct{}{}, struct{}{}
	}
}

// Keeps reports whether an owner waits for a topic.
func (r *Registry[O, T]) Keeps(owner O) bool { return r.topics[owner] != nil }

// Wake wakes the owners that wait for a topic.
func (r *Registry[O, T]) Wake(topic T) {
	for owner := range r.owners[topic] {
		r.WakeOwner(owner)
	}
}

// WakeAll wakes all owners.
func (r *Registry[O, T]) WakeAll() {
	for owner := range r.topics {
		r.WakeOwner(owner)
	}
}

// WakeOwner wakes an owner if it waits for any topic. It waits for none then.
func (r *Registry[O, T]) WakeOwner(owner O) {
	if _, waits := r.topics[owner]; waits {
		r.drop(owner)
		r.woken[owner] = struct{}{}
	}
}

// Forget removes an owner that no longer exists.
func (r *Registry[O, T]) Forget(owner O) {
	r.drop(owner)
	delete(r.woken, owner)
}

func (r *Registry[O, T]) drop(owner O) {
	for topic := range r.topics[owner] {
		delete(r.owners[topic], owner)
		if len(r.owners[topic]) == 0 {
			delete(r.owners, topic)
		}
	}
	delete(r.topics, owner)
}

// Woken returns the owners that were woken since the last call, in any order.
func (r *Registry[O, T]) Woken() map[O]struct{} {
	woken := maps.Clone(r.woken)
	clear(r.woken)
	return woken
}
