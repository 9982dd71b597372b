package barrier

import (
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// errBusy is returned when the maximum number of pods already waits.
var errBusy = errors.New("too many pods wait for a response of this replica of the manager, retry")

// A NoticeStore has the notices of all groups, as this process reads them from the ConfigMaps, and wakes requests that wait for a notice to
// change.
type NoticeStore struct {
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

// NewNoticeStore returns a NoticeStore on which at most room pods may wait at a time, half of them in one namespace.
func NewNoticeStore(room int) *NoticeStore {
	return &NoticeStore{groups: map[types.NamespacedName]*posted{}, room: room, inNamespace: map[string]int{}}
}

// Post sets or replaces the notice of a group.
func (n *NoticeStore) Post(group types.NamespacedName, notice Notice) {
	n.replace(group, &posted{notice: notice, changed: make(chan struct{})})
}

// replace sets, replaces or removes what is posted for a group, and wakes the requests that wait for it to change.
func (n *NoticeStore) replace(group types.NamespacedName, now *posted) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.groups[group]; old != nil {
		close(old.changed)
	}
	if n.groups[group] = now; now == nil {
		delete(n.groups, group)
	}
}

// read returns the notice of a group, and a channel that is closed when the notice changes. A notice without a token does not count.
func (n *NoticeStore) read(group types.NamespacedName) (notice Notice, changed <-chan struct{}, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.groups[group]
	if p == nil || p.notice.Token == "" {
		return Notice{}, nil, false
	}
	return p.notice, p.changed, true
}

// enter takes one of the places to wait, and returns a function that frees it, or errBusy.
func (n *NoticeStore) enter(namespace string) (leave func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting >= n.room || n.inNamespace[namespace] >= (n.room+1)/2 {
		return nil, errBusy
	}
	n.waiting++
	n.inNamespace[namespace]++
	return func() { n.leave(namespace) }, nil
}

func (n *NoticeStore) leave(namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting--
	if n.inNamespace[namespace]--; n.inNamespace[namespace] == 0 {
		delete(n.inNamespace, namespace)
	}
}

// Observe sets the notice of the group that a ConfigMap belongs to, if it belongs to one.
func (n *NoticeStore) Observe(configMap *corev1.ConfigMap) {
	if group, ok := groupOf(configMap); ok {
		n.Post(group, ReadNotice(func(key string) string { return configMap.Data[key] }))
	}
}

// Remove removes the notice of the group that a deleted ConfigMap belongs to, if it belongs to one.
func (n *NoticeStore) Remove(configMap *corev1.ConfigMap) {
	if group, ok := groupOf(configMap); ok {
		n.replace(group, nil)
	}
}
