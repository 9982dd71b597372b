package version

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// maxTombstones bounds the number of tombstones. The answer to a write can come that many deletions late.
const maxTombstones = 4096

// Tombstones are the tombstones of deleted quota Workloads and JobSets, so that a late answer to a write, or a late plan, does not recreate them.
type Tombstones struct {
	buried map[types.UID]struct{}
	order  []types.UID
	next   int
}

// Insert adds a tombstone.
func (t *Tombstones) Insert(uid types.UID) {
	if _, known := t.buried[uid]; known || uid == "" {
		return
	}
	t.buried[uid] = struct{}{}
	if len(t.order) < maxTombstones {
		t.order = append(t.order, uid)
		return
	}
	delete(t.buried, t.order[t.next])
	t.order[t.next] = uid
	t.next = (t.next + 1) % maxTombstones
}

// Remove removes a tombstone.
func (t *Tombstones) Remove(uid types.UID) {
	if !t.Has(uid) {
		return
	}
	delete(t.buried, uid)
	// Clear its slot: otherwise the slot would later remove a new tombstone of the same UID.
	t.order[slices.Index(t.order, uid)] = ""
}

// Has reports whether an object has a tombstone.
func (t *Tombstones) Has(uid types.UID) bool {
	_, ok := t.buried[uid]
	return ok
}

// NewGraves returns the tombstones of an Engine that has observed no deletion.
func NewGraves() Tombstones { return Tombstones{buried: map[types.UID]struct{}{}} }
