package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/bench/e2e/account"
	"github.com/tranche-dev/tranche/test/bench/e2e/lab"
)

// A follower watches JobSets with their quota Workloads and pods, and records in a book the quota that they hold, use and wait for, at the
// time of each event.
type follower struct {
	// changed is called after each change, with the key of the JobSet.
	changed func(types.NamespacedName)

	mu       sync.Mutex
	began    time.Time
	book     account.Book
	sights   map[types.NamespacedName]*sight
	stages   map[types.UID]*stageTimes
	expected int
	done     chan struct{}
	isDone   bool
	problems []error
}

// A sight is the last observed state of a JobSet.
type sight struct {
	jobSet    *jobsetapi.JobSet
	workloads map[types.UID]*kueue.Workload
	pods      map[types.UID]*corev1.Pod
}

// newFollower returns a follower that is done when so many JobSets have finished and no longer hold quota.
func newFollower(expected int) *follower {
	return &follower{
		changed: func(types.NamespacedName) {}, began: time.Now(), sights: map[types.NamespacedName]*sight{}, stages: map[types.UID]*stageTimes{},
		expected: expected, done: make(chan struct{}),
	}
}

// follow watches until the context ends.
func (f *follower) follow(ctx context.Context, c client.WithWatch) error {
	for _, list := range []client.ObjectList{&jobsetapi.JobSetList{}, &kueue.WorkloadList{}, &corev1.PodList{}} {
		watcher, err := c.Watch(ctx, list)
		if err != nil {
			return fmt.Errorf("watch %T: %w", list, err)
		}
		go func() {
			for event := range watcher.ResultChan() {
				if key, ok := f.see(event, time.Now()); ok {
					f.changed(key)
				}
			}
			if ctx.Err() == nil {
				f.report(fmt.Errorf("watch %T: it has ended, what came later was not counted", list))
			}
		}()
	}
	return nil
}

// see processes one event, and returns the key of its JobSet.
func (f *follower) see(event watch.Event, now time.Time) (types.NamespacedName, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	object, ok := event.Object.(client.Object)
	if !ok {
		f.problems = append(f.problems, fmt.Errorf("watch: %v", event.Object))
		return types.NamespacedName{}, false
	}
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: jobSetOf(object)}
	s := f.sights[key]
	if s == nil {
		s = &sight{workloads: map[types.UID]*kueue.Workload{}, pods: map[types.UID]*corev1.Pod{}}
		f.sights[key] = s
	}
	s.take(object, event.Type)
	f.noteStage(object, now.Sub(f.began))
	f.book.See(now.Sub(f.began), key.String(), s.state())
	if !f.isDone && f.book.Over() == f.expected {
		f.isDone = true
		close(f.done)
	}
	return key, true
}

// A stageTimes is when changes of the quota Workload of a stage were observed for the first time: the stage was open, its quota was reserved, its pods were
// ready, and it had finished. Times that were not observed are 0.
type stageTimes struct {
	jobSet                            types.NamespacedName
	stage                             string
	opened, reserved, ready, finished time.Duration
}

// noteStage notes when a stage changes. mu is held.
func (f *follower) noteStage(object client.Object, now time.Duration) {
	w, ok := object.(*kueue.Workload)
	if !ok || w.Labels[apis.StageLabel] == "" {
		return
	}
	st := f.stages[w.UID]
	if st == nil {
		st = &stageTimes{jobSet: types.NamespacedName{Namespace: w.Namespace, Name: w.Labels[apis.JobSetLabel]}, stage: w.Labels[apis.StageLabel]}
		f.stages[w.UID] = st
	}
	is := func(condition string) bool { return apimeta.IsStatusConditionTrue(w.Status.Conditions, condition) }
	for _, change := range []struct {
		at          *time.Duration
		hasHappened bool
	}{
		{&st.opened, w.Annotations[apis.AdmissionGatedByAnnotation] == ""},
		{&st.reserved, is(kueue.WorkloadQuotaReserved)},
		{&st.ready, is(kueue.WorkloadPodsReady)},
		{&st.finished, is(kueue.WorkloadFinished)},
	} {
		if *change.at == 0 && change.hasHappened {
			*change.at = now
		}
	}
}

// jobSetOf is the name of the JobSet that an object belongs to. A quota Workload of a whole JobSet has its name.
func jobSetOf(object client.Object) string {
	switch object := object.(type) {
	case *corev1.Pod:
		return object.Labels[jobset.JobSetNameKey]
	case *kueue.Workload:
		if name := object.Labels[apis.JobSetLabel]; name != "" {
			return name
		}
	}
	return object.GetName()
}

func (s *sight) take(object client.Object, what watch.EventType) {
	isGone := what == watch.Deleted
	switch object := object.(type) {
	case *jobsetapi.JobSet:
		s.jobSet = object
	case *kueue.Workload:
		if s.workloads[object.UID] = object; isGone {
			delete(s.workloads, object.UID)
		}
	case *corev1.Pod:
		if s.pods[object.UID] = object; isGone {
			delete(s.pods, object.UID)
		}
	}
}

func (s *sight) state() account.State {
	state := account.State{Finished: s.jobSet != nil && s.jobSet.Status.TerminalState != ""}
	for _, w := range s.workloads {
		state.Admitted = state.Admitted || apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted)
		switch {
		case apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished):
		case apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved):
			state.Held += gpusOf(w)
		case w.Annotations[apis.AdmissionGatedByAnnotation] == "":
			state.Waits = true
		}
	}
	for _, pod := range s.pods {
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for i := range pod.Spec.Containers {
			state.Used += pod.Spec.Containers[i].Resources.Requests.Name(lab.GPU, "").Value()
		}
	}
	return state
}

// gpusOf returns how many accelerators a quota Workload is charged: those that it was admitted with, without those of reclaimable pods.
func gpusOf(w *kueue.Workload) int64 {
	if w.Status.Admission == nil {
		return 0
	}
	reclaimable := map[kueue.PodSetReference]int64{}
	for _, pods := range w.Status.ReclaimablePods {
		reclaimable[pods.Name] = int64(pods.Count)
	}
	var sum int64
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		if a.Count == nil || *a.Count == 0 {
			continue
		}
		count := int64(*a.Count)
		sum += a.ResourceUsage.Name(lab.GPU, "").Value() / count * max(count-reclaimable[a.Name], 0)
	}
	return sum
}

// last returns the JobSet and its only quota Workload as they were last seen, or nil.
func (f *follower) last(key types.NamespacedName) (*jobsetapi.JobSet, *kueue.Workload) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.sights[key].workloads {
		return f.sights[key].jobSet, w
	}
	return f.sights[key].jobSet, nil
}

// wait waits until all JobSets have finished and no longer hold quota.
func (f *follower) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return f.unfinished(ctx.Err())
	case <-f.done:
		return nil
	}
}

// report keeps an error for the end.
func (f *follower) report(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problems = append(f.problems, err)
}
