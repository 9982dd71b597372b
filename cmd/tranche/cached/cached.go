// Package cached makes objects take less memory before the cache of the manager keeps them.
package cached

import (
	"hash/maphash"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// maxShared is how many different lists are known at a time, and maxTexts how many different texts.
	maxShared = 4096
	maxTexts  = 1 << 16
)

// A Sharer lets quota Workloads share what is equal in many of them: of a hundred thousand pending ones most equal another one in all that their pods ask for,
// wait for the same, and have the same queue. Objects of a cache are not changed, so that they can share parts. A Sharer is safe for concurrent use.
type Sharer struct {
	seed maphash.Seed
	mu   sync.Mutex
	// known has lists by their type and a hash of a part of them.
	known *lru.Cache
	texts map[string]string
}

// NewSharer returns an empty Sharer.
func NewSharer() *Sharer {
	return &Sharer{seed: maphash.MakeSeed(), known: lru.New(maxShared), texts: map[string]string{}}
}

// Transform is the transform of a cache: it removes the managed fields of an object, and lets a quota Workload share what equals a part of another one.
func (s *Sharer) Transform(object any) (any, error) {
	object, err := cache.TransformStripManagedFields()(object)
	if w, isWorkload := object.(*kueue.Workload); err == nil && isWorkload {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.Spec.PodSets = shared(s, w.Spec.PodSets, s.hashPodSets)
		w.Status.ResourceRequests = shared(s, w.Status.ResourceRequests, s.hashRequests)
		s.shareTexts(w)
	}
	return object, err
}

// A listKey is the type of the elements of a list, and a hash of a part of it.
type listKey struct {
	of   reflect.Type
	hash uint64
}

// shared returns an equal list that others have already, or the list itself. It finds only the last one of those that differ in what is not hashed.
func shared[T any](s *Sharer, list []T, hash func([]T) uint64) []T {
	if len(list) == 0 {
		return list
	}
	key := listKey{reflect.TypeFor[T](), hash(list)}
	if known, ok := s.known.Get(key); ok {
		if same, is := known.([]T); is && reflect.DeepEqual(same, list) {
			return same
		}
	}
	s.known.Add(key, list)
	return list
}

// shareTexts shares the texts that are the same in many quota Workloads.
func (s *Sharer) shareTexts(w *kueue.Workload) {
	share(s, &w.Namespace)
	share(s, &w.Spec.QueueName)
	for _, all := range []map[string]string{w.Labels, w.Annotations} {
		for key, value := range all {
			share(s, &key)
			all[key] = value // replaces the key as well
		}
	}
	for i := range w.OwnerReferences {
		share(s, &w.OwnerReferences[i].APIVersion)
		share(s, &w.OwnerReferences[i].Kind)
	}
	for i := range w.Finalizers {
		share(s, &w.Finalizers[i])
	}
	if c := w.Spec.PriorityClassRef; c != nil {
		share(s, &c.Group)
		share(s, &c.Kind)
		share(s, &c.Name)
	}
	for i := range w.Status.Conditions {
		c := &w.Status.Conditions[i]
		share(s, &c.Type)
		share(s, &c.Status)
		share(s, &c.Reason)
		share(s, &c.Message)
	}
}

// share replaces a text by an equal one that others have already.
func share[T ~string](s *Sharer, text *T) {
	if same, ok := s.texts[string(*text)]; ok {
		*text = T(same)
		return
	}
	if len(s.texts) >= maxTexts {
		clear(s.texts)
	}
	s.texts[string(*text)] = string(*text)
}

// hashPodSets returns a hash of what most often differs: names, counts, images and requests.
func (s *Sharer) hashPodSets(podSets []kueue.PodSet) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for i := range podSets {
		p := &podSets[i]
		writeStrings(&h, string(p.Name))
		maphash.WriteComparable(&h, p.Count)
		for k := range p.Template.Spec.Containers {
			c := &p.Template.Spec.Containers[k]
			writeStrings(&h, c.Name, c.Image)
			writeAmounts(&h, c.Resources.Requests)
		}
	}
	return h.Sum64()
}

func (s *Sharer) hashRequests(all []kueue.PodSetRequest) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for i := range all {
		writeStrings(&h, string(all[i].Name))
		writeAmounts(&h, all[i].Resources)
	}
	return h.Sum64()
}

// writeAmounts writes a sum of amounts, which is the same in any order.
func writeAmounts(h *maphash.Hash, amounts corev1.ResourceList) {
	sum := int64(0)
	for name, amount := range amounts {
		sum += int64(len(name)+1) * amount.MilliValue()
	}
	maphash.WriteComparable(h, sum)
}

func writeStrings(h *maphash.Hash, texts ...string) {
	for _, text := range texts {
		_, _ = h.WriteString(text) // never fails
		_ = h.WriteByte(0)
	}
}
