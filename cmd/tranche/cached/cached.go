// Package cached makes objects take less memory before the cache of the manager keeps them.
package cached

import (
	"hash/maphash"
	"reflect"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

const (
	// maxShared is how many different lists are known at a time, and maxTexts how many different texts.
	maxShared = 4096
	maxTexts  = 1 << 16
)

// A Sharer lets objects share what is equal in many of them. Of a hundred thousand pending quota Workloads most equal another one in all that their pods ask
// for, wait for the same, and have the same queue. The Jobs of a ReplicatedJob have equal containers, and a JobSet has the same ones after a change of its status
// as before. Objects of a cache are not changed, so that they can share parts. A Sharer is safe for concurrent use.
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

// Transform is the transform of a cache: it removes the managed fields of an object, and lets a quota Workload, a JobSet or a Job share what equals a part of
// another one.
func (s *Sharer) Transform(object any) (any, error) {
	object, err := cache.TransformStripManagedFields()(object)
	if err != nil {
		return object, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o := object.(type) {
	case *kueue.Workload:
		o.Spec.PodSets = shared(s, o.Spec.PodSets, s.hashPodSets)
		o.Status.ResourceRequests = shared(s, o.Status.ResourceRequests, s.hashRequests)
		s.shareTexts(o)
	case *jobsetapi.JobSet:
		for i := range o.Spec.ReplicatedJobs {
			s.sharePod(&o.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec)
		}
	case *batchv1.Job:
		s.sharePod(&o.Spec.Template.Spec)
		s.shareMetadata(o)
	}
	return object, nil
}

// sharePod shares the containers of a pod, which are most of it.
func (s *Sharer) sharePod(pod *corev1.PodSpec) {
	pod.Containers = shared(s, pod.Containers, s.hashContainers)
	pod.InitContainers = shared(s, pod.InitContainers, s.hashContainers)
}

// shareMetadata shares what the labels and annotations of a Job, of its pods and of other Jobs have in common: the keys, and the values that occur in both.
func (s *Sharer) shareMetadata(job *batchv1.Job) {
	for _, all := range []map[string]string{job.Labels, job.Annotations, job.Spec.Template.Labels, job.Spec.Template.Annotations} {
		for key, value := range all {
			share(s, &key)
			if of, also := job.Labels[key]; also && of == value {
				value = of
			}
			all[key] = value
		}
	}
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

// hashPodSets returns a hash of what most often differs: names, counts and containers.
func (s *Sharer) hashPodSets(podSets []kueue.PodSet) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for i := range podSets {
		p := &podSets[i]
		writeStrings(&h, string(p.Name))
		maphash.WriteComparable(&h, p.Count)
		writeContainers(&h, p.Template.Spec.Containers)
	}
	return h.Sum64()
}

func (s *Sharer) hashContainers(containers []corev1.Container) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	writeContainers(&h, containers)
	return h.Sum64()
}

// writeContainers writes what most often differs: names, images, what is run, and requests.
func writeContainers(h *maphash.Hash, containers []corev1.Container) {
	for i := range containers {
		c := &containers[i]
		// The API server sets the policy in Jobs, and not in JobSets: otherwise each would take the place of the other.
		writeStrings(h, c.Name, c.Image, string(c.ImagePullPolicy))
		writeStrings(h, c.Command...)
		writeStrings(h, c.Args...)
		for k := range c.Env {
			writeStrings(h, c.Env[k].Name, c.Env[k].Value)
		}
		writeAmounts(h, c.Resources.Requests)
	}
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
