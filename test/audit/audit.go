// Package audit watches a cluster from outside, as a suspicious admin would, and checks the invariants that Tranche promises:
//
//   - I1: whenever a quota Workload reserves quota, what its ClusterQueue has reserved stays within the nominal quota;
//   - I2 and section 4 of the design: every pod of a queued JobSet lives only while a quota Workload of its stage holds quota.
//
// It orders what it sees by resource version, which the API server hands out in one sequence for all kinds, so it does not depend
// on how fast its watches are.
package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// An Auditor follows a cluster until its context ends. Its methods may be called from any goroutine.
type Auditor struct {
	client client.WithWatch

	mu       sync.Mutex
	progress map[string]uint64
	queues   map[string]*kueue.ClusterQueue
	holders  map[types.UID]*holder
	pods     map[types.UID]*life
	found    []string
	advanced chan struct{}
}

// A holder is one quota Workload.
type holder struct {
	name, jobSet string
	podSets      []string
	held         []span
	usage        map[flavorResource]resource.Quantity
	queue        string
}

// A life is one pod of a queued JobSet.
type life struct {
	name, jobSet, replicatedJob string
	span                        span
}

// A span is from the first resource version at which something was so to the first at which it was not. To is 0 while it lasts.
type span struct{ from, to uint64 }

func (s span) covers(other span) bool {
	return s.from <= other.from && (s.to == 0 || other.to != 0 && other.to <= s.to)
}

type flavorResource struct{ flavor, resource string }

// Start begins to audit. The client's scheme must know Kueue's API.
func Start(ctx context.Context, c client.WithWatch) (*Auditor, error) {
	a := &Auditor{
		client: c, progress: map[string]uint64{}, queues: map[string]*kueue.ClusterQueue{},
		holders: map[types.UID]*holder{}, pods: map[types.UID]*life{}, advanced: make(chan struct{}, 1),
	}
	for _, kind := range kinds() {
		if err := a.follow(ctx, kind); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// kinds are what the auditor follows. Queues come first, so that limits are known before anything is charged to them.
func kinds() []client.ObjectList {
	return []client.ObjectList{&kueue.ClusterQueueList{}, &kueue.WorkloadList{}, &corev1.PodList{}}
}

// follow lists one kind and watches it from there.
func (a *Auditor) follow(ctx context.Context, list client.ObjectList) error {
	if err := a.client.List(ctx, list); err != nil {
		return fmt.Errorf("list %T to audit it: %w", list, err)
	}
	kind := fmt.Sprintf("%T", list)
	a.mu.Lock()
	a.progress[kind] = version(list.GetResourceVersion())
	a.mu.Unlock()
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return a.client.Watch(ctx, list.DeepCopyObject().(client.ObjectList), &client.ListOptions{Raw: &options})
	}}
	items, err := itemsOf(list)
	if err != nil {
		return err
	}
	for _, object := range items {
		a.see(kind, watch.Event{Type: watch.Added, Object: object})
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), source)
	if err != nil {
		return fmt.Errorf("watch %T to audit it: %w", list, err)
	}
	go func() {
		for event := range watcher.ResultChan() {
			a.see(kind, event)
		}
	}()
	return nil
}

func itemsOf(list client.ObjectList) ([]runtime.Object, error) {
	var items []runtime.Object
	err := eachItem(list, func(object runtime.Object) { items = append(items, object) })
	return items, err
}

// see takes one event in.
func (a *Auditor) see(kind string, event watch.Event) {
	object, ok := event.Object.(client.Object)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at := version(object.GetResourceVersion())
	a.progress[kind] = max(a.progress[kind], at)
	gone := event.Type == watch.Deleted
	switch o := object.(type) {
	case *kueue.ClusterQueue:
		a.queues[o.Name] = o
	case *kueue.Workload:
		a.seeWorkload(o, at, holds(o) && !gone)
	case *corev1.Pod:
		l := a.lifeOf(o, at)
		if over := gone || o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed; over && l.span.to == 0 {
			l.span.to = at
		}
	}
	select {
	case a.advanced <- struct{}{}:
	default:
	}
}

func holds(w *kueue.Workload) bool {
	return w.Status.Admission != nil && isTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) && !isTrue(w.Status.Conditions, kueue.WorkloadFinished)
}

func isTrue(conditions []metav1.Condition, conditionType string) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == conditionType && c.Status == metav1.ConditionTrue
	})
}

func (a *Auditor) seeWorkload(w *kueue.Workload, at uint64, held bool) {
	h := a.holders[w.UID]
	if h == nil {
		h = &holder{name: w.Namespace + "/" + w.Name, jobSet: w.Labels[apis.JobUIDLabel]}
		for _, podSet := range w.Spec.PodSets {
			h.podSets = append(h.podSets, string(podSet.Name))
		}
		a.holders[w.UID] = h
	}
	last := len(h.held) - 1
	wasHeld := last >= 0 && h.held[last].to == 0
	switch {
	case held && !wasHeld:
		h.held = append(h.held, span{from: at})
		h.queue, h.usage = string(w.Status.Admission.ClusterQueue), usageOf(w)
		a.checkQuota(h, at)
	case !held && wasHeld:
		h.held[last].to = at
		h.usage = nil
	}
}

func usageOf(w *kueue.Workload) map[flavorResource]resource.Quantity {
	usage := map[flavorResource]resource.Quantity{}
	for _, assignment := range w.Status.Admission.PodSetAssignments {
		for name, flavor := range assignment.Flavors {
			key := flavorResource{string(flavor), string(name)}
			sum := usage[key]
			sum.Add(assignment.ResourceUsage[name])
			usage[key] = sum
		}
	}
	return usage
}

// checkQuota checks I1 for the queue of a quota Workload that has just reserved.
func (a *Auditor) checkQuota(newcomer *holder, at uint64) {
	limits := map[flavorResource]resource.Quantity{}
	if queue := a.queues[newcomer.queue]; queue != nil {
		for _, group := range queue.Spec.ResourceGroups {
			for _, flavor := range group.Flavors {
				for _, quota := range flavor.Resources {
					limits[flavorResource{string(flavor.Name), string(quota.Name)}] = quota.NominalQuota
				}
			}
		}
	}
	for key := range newcomer.usage {
		var sum resource.Quantity
		for _, h := range a.holders {
			if h.queue == newcomer.queue {
				sum.Add(h.usage[key])
			}
		}
		if limit := limits[key]; sum.Cmp(limit) > 0 {
			a.found = append(a.found, fmt.Sprintf("I1: at %d, with %s, ClusterQueue %s has reserved %s of %s %s",
				at, newcomer.name, newcomer.queue, sum.String(), limit.String(), key))
		}
	}
}

// lifeOf returns what is known of a pod. Those that belong to no JobSet are not kept.
func (a *Auditor) lifeOf(pod *corev1.Pod, at uint64) *life {
	if l := a.pods[pod.UID]; l != nil {
		return l
	}
	l := &life{
		name: pod.Namespace + "/" + pod.Name, jobSet: pod.Labels[jobset.JobSetUIDKey],
		replicatedJob: pod.Labels[jobset.ReplicatedJobNameKey], span: span{from: at},
	}
	if l.jobSet != "" {
		a.pods[pod.UID] = l
	}
	return l
}

// Violations waits until everything that had happened when it was called has been seen, and returns what was wrong with it. Pods
// of JobSets that have no quota Workload are not Tranche's matter.
func (a *Auditor) Violations(ctx context.Context) ([]string, error) {
	for _, list := range kinds() {
		if err := a.client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %T to audit it: %w", list, err)
		}
		newest := uint64(0)
		err := eachItem(list, func(object runtime.Object) {
			newest = max(newest, version(object.(client.Object).GetResourceVersion()))
		})
		if err != nil {
			return nil, err
		}
		if err := a.waitFor(ctx, fmt.Sprintf("%T", list), newest); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return append(slices.Clone(a.found), a.strays()...), nil
}

func (a *Auditor) waitFor(ctx context.Context, kind string, at uint64) error {
	for {
		a.mu.Lock()
		reached := a.progress[kind] >= at
		a.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-a.advanced:
		case <-ctx.Done():
			return fmt.Errorf("wait for the audit of %s: %w", kind, ctx.Err())
		}
	}
}

// strays are the pods that lived while their stage held no quota.
func (a *Auditor) strays() []string {
	byJobSet := map[string][]*holder{}
	for _, h := range a.holders {
		byJobSet[h.jobSet] = append(byJobSet[h.jobSet], h)
	}
	var found []string
	for _, uid := range slices.Sorted(maps.Keys(a.pods)) {
		l := a.pods[uid]
		holders, queued := byJobSet[l.jobSet]
		if !queued || slices.ContainsFunc(holders, func(h *holder) bool { return h.pays(l) }) {
			continue
		}
		found = append(found, fmt.Sprintf("I2: pod %s lived from %d to %d without quota of its stage", l.name, l.span.from, l.span.to))
	}
	return found
}

func (h *holder) pays(l *life) bool {
	return slices.Contains(h.podSets, l.replicatedJob) && slices.ContainsFunc(h.held, func(s span) bool { return s.covers(l.span) })
}

func (k flavorResource) String() string { return k.resource + " of flavor " + k.flavor }

func version(s string) uint64 {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

func eachItem(list client.ObjectList, f func(runtime.Object)) error {
	return apimeta.EachListItem(list, func(object runtime.Object) error {
		f(object)
		return nil
	})
}
