package barrier

import (
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// errBusy is returned when the maximum number of pods already waits.
var errBusy = errors.New("too many pods wait for an answer")

// A Board has the notices of all groups, as this process reads them from the ConfigMaps, and wakes requests that wait for a notice to
// change.
type Board struct {
	mu     sync.Mutex
	groups map[types.NamespacedName]*posted
	// waiting is how many requests wait, in all groups; room is the maximum, and at most half of it may wait in one namespace.
	waiting, room int
	// inNamespace is how many requests wait in each namespace.
	inNamespace map[string]int
}

// posted is the notice of one group.
type posted struct {
	notice Notice
	// changed is closed when the notice is replaced or removed.
	changed chan struct{}
}

// NewBoard returns a Board on which at most room pods may wait at a time, half of them in one namespace.
func NewBoard(room int) *Board {
	return &Board{groups: map[types.NamespacedName]*posted{}, room: room, inNamespace: map[string]int{}}
}

// Post sets or replaces the notice of a group.
func (b *Board) Post(group types.NamespacedName, notice Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake(group)
	b.groups[group] = &posted{notice: notice, changed: make(chan struct{})}
}

// TakeDown removes the notice of a group.
func (b *Board) TakeDown(group types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake(group)
	delete(b.groups, group)
}

// wake notifies requests that wait for a group that its notice has been replaced. The lock must be held.
func (b *Board) wake(group types.NamespacedName) {
	if old := b.groups[group]; old != nil {
		close(old.changed)
	}
}

// read returns the notice of a group, and a channel that is closed when the notice changes. A notice without a token does not count.
func (b *Board) read(group types.NamespacedName) (notice Notice, changed <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.groups[group]
	if p == nil || p.notice.Token == "" {
		return Notice{}, nil, false
	}
	return p.notice, p.changed, true
}

// enter takes one of the places to wait, and returns a function that frees it, or errBusy.
func (b *Board) enter(namespace string) (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting >= b.room || b.inNamespace[namespace] >= (b.room+1)/2 {
		return nil, errBusy
	}
	b.waiting++
	b.inNamespace[namespace]++
	return func() { b.leave(namespace) }, nil
}

func (b *Board) leave(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting--
	if b.inNamespace[namespace]--; b.inNamespace[namespace] == 0 {
		delete(b.inNamespace, namespace)
	}
}

// Waiting returns how many pods wait.
func (b *Board) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

// Watch returns an event handler that keeps the Board up to date with an informer of ConfigMaps. It ignores ConfigMaps that belong to no
// group.
func (b *Board) Watch() cache.ResourceEventHandler {
	post := func(object any) {
		configMap, ok := object.(*corev1.ConfigMap)
		if !ok {
			return
		}
		if group, ok := groupOf(types.NamespacedName{Namespace: configMap.Namespace, Name: configMap.Name}); ok {
			b.Post(group, ReadNotice(func(key string) string { return configMap.Data[key] }))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    post,
		UpdateFunc: func(_, object any) { post(object) },
		DeleteFunc: func(object any) {
			name, err := cache.DeletionHandlingObjectToName(object)
			if err != nil {
				return
			}
			if group, ok := groupOf(types.NamespacedName{Namespace: name.Namespace, Name: name.Name}); ok {
				b.TakeDown(group)
			}
		},
	}
}
