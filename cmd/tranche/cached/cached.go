// Package cached makes objects take less memory before the cache of the manager keeps them.
package cached

import (
	"hash/maphash"
	"reflect"
	"sync"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// maxShared is how many different lists of pod sets are known at a time.
const maxShared = 4096

// A Sharer lets quota Workloads share their pod sets, which are most of them: of a hundred thousand pending ones most equal another one in all that their
// pods ask for. Objects of a cache are not changed, so that they can share parts. A Sharer is safe for concurrent use.
type Sharer struct {
	seed maphash.Seed
	mu   sync.Mutex
	// known has lists of pod sets by a hash of a part of them.
	known *lru.Cache
}

// NewSharer returns an empty Sharer.
func NewSharer() *Sharer {
	return &Sharer{seed: maphash.MakeSeed(), known: lru.New(maxShared)}
}

// Transform is the transform of a cache: it removes the managed fields of an object, and lets a quota Workload share its pod sets.
func (s *Sharer) Transform(object any) (any, error) {
	object, err := cache.TransformStripManagedFields()(object)
	if w, isWorkload := object.(*kueue.Workload); err == nil && isWorkload {
		w.Spec.PodSets = s.shared(w.Spec.PodSets)
	}
	return object, err
}

// shared returns an equal list that others have already, or the list itself. It finds only the last one of those that differ in what is not hashed.
func (s *Sharer) shared(podSets []kueue.PodSet) []kueue.PodSet {
	if len(podSets) == 0 {
		return podSets
	}
	key := s.hash(podSets)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known.Get(key); ok {
		if same, is := known.([]kueue.PodSet); is && reflect.DeepEqual(same, podSets) {
			return same
		}
	}
	s.known.Add(key, podSets)
	return podSets
}

// hash returns a hash of what most often differs: names, counts, images and requests.
func (s *Sharer) hash(podSets []kueue.PodSet) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for i := range podSets {
		p := &podSets[i]
		writeStrings(&h, string(p.Name))
		maphash.WriteComparable(&h, p.Count)
		for k := range p.Template.Spec.Containers {
			c := &p.Template.Spec.Containers[k]
			writeStrings(&h, c.Name, c.Image)
			sum := int64(0)
			for name, amount := range c.Resources.Requests {
				// In any order.
				sum += int64(len(name)+1) * amount.MilliValue()
			}
			maphash.WriteComparable(&h, sum)
		}
	}
	return h.Sum64()
}

func writeStrings(h *maphash.Hash, texts ...string) {
	for _, text := range texts {
		_, _ = h.WriteString(text) // never fails
		_ = h.WriteByte(0)
	}
}
