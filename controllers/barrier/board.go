package barrier

import (
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// errBusy says that no more pods can wait here.
var errBusy = errors.New("too many pods wait for an answer")

// A Board has the notices of all groups, as the ConfigMaps are seen by this process, and wakes those who wait for one to change.
type Board struct {
	mu     sync.Mutex
	groups map[types.NamespacedName]*posted
	// waiting is how many wait, in all groups; room is how many may, half of them in one namespace.
	waiting, room int
	// inNamespace is how many wait in each namespace.
	inNamespace map[string]int
}

// posted is the notice of one group.
type posted struct {
	notice Notice
	// changed is closed when the notice is replaced or taken down.
	changed chan struct{}
}

// NewBoard returns a Board before which so many pods may wait at a time, half of them in one namespace.
func NewBoard(room int) *Board {
	return &Board{groups: map[types.NamespacedName]*posted{}, room: room, inNamespace: map[string]int{}}
}

// Post puts the notice of a group up, in place of the one before.
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

// wake tells who waits for a group that its notice is not the last one any more. The lock must be held.
func (b *Board) wake(group types.NamespacedName) {
	if old := b.groups[group]; old != nil {
		close(old.changed)
	}
}

// read returns the notice of a group and what is closed when that changes. There is none without a token.
func (b *Board) read(group types.NamespacedName) (notice Notice, changed <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.groups[group]
	if p == nil || p.notice.Token == "" {
		return Notice{}, nil, false
	}
	return p.notice, p.changed, true
}

// enter takes a place before the Board, to be left again, or returns errBusy.
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

// Waiting is how many pods wait.
func (b *Board) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

// Watch keeps the Board what an informer of ConfigMaps sees. Those that are no group's do not matter.
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
