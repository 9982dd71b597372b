package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/test/bench/e2e/account"
	"github.com/tranche-dev/tranche/test/bench/e2e/lab"
	"github.com/tranche-dev/tranche/test/bench/mixed"
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
	stages   map[stageKey]stageTimes
	lists    []client.ObjectList // of what is watched
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
		changed: func(types.NamespacedName) {}, began: time.Now(), sights: map[types.NamespacedName]*sight{}, stages: map[stageKey]stageTimes{},
		lists:    []client.ObjectList{&jobsetapi.JobSetList{}, &kueue.WorkloadList{}, &corev1.PodList{}},
		expected: expected, done: make(chan struct{}),
	}
}

// play submits JobSets when they are due, or everything at once, and waits until all of them have finished and no longer hold quota.
func (f *follower) play(ctx context.Context, r *run, o *options, all []mixed.Submission, submit func(*mixed.Submission) error) error {
	if err := f.follow(ctx, r.world.Admin); err != nil {
		return err
	}
	began := time.Now()
	for i := range all {
		if !o.atOnce {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(began.Add(all[i].After))):
			}
		}
		if err := submit(&all[i]); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return f.unfinished(ctx.Err())
	case <-f.done:
		return nil
	}
}

// follow watches until the context ends.
func (f *follower) follow(ctx context.Context, c client.WithWatch) error {
	for _, list := range f.lists {
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
	if js, ok := object.(*jobsetapi.JobSet); ok && js.Status.TerminalState == string(jobset.JobSetFailed) {
		f.problems = append(f.problems, fmt.Errorf("JobSet %s has failed", key))
	}
	f.noteStage(object, now.Sub(f.began))
	f.book.See(now.Sub(f.began), key.String(), s.state())
	if !f.isDone && f.book.Over() == f.expected {
		f.isDone = true
		close(f.done)
	}
	return key, true
}

// A stageKey identifies a stage of a JobSet.
type stageKey struct {
	jobSet types.NamespacedName
	stage  string
}

// A stageTimes is when changes of a stage were observed for the first time. Times that were not observed are 0.
type stageTimes struct {
	// Of its quota Workload: the stage was open, quota was reserved, it was admitted, its pods were ready, and it had finished.
	opened, reserved, admitted, ready, finished time.Duration
	// Of its only Job and the pods of that: the Job existed, might run, had a pod, and was complete.
	created, released, pod, complete time.Duration
}

// A change is when something was observed, and whether it has happened.
type change struct {
	at          *time.Duration
	hasHappened bool
}

// noteStage notes when a stage changes. mu is held.
func (f *follower) noteStage(object client.Object, now time.Duration) {
	key := stageKey{types.NamespacedName{Namespace: object.GetNamespace(), Name: jobSetOf(object)}, stageOf(object)}
	if key.stage == "" {
		return
	}
	st := f.stages[key]
	for _, change := range st.changes(object) {
		if *change.at == 0 && change.hasHappened {
			*change.at = now
		}
	}
	f.stages[key] = st
}

// changes returns what an object of the stage shows.
func (st *stageTimes) changes(object client.Object) []change {
	switch object := object.(type) {
	case *kueue.Workload:
		is := func(condition string) bool { return apimeta.IsStatusConditionTrue(object.Status.Conditions, condition) }
		return []change{
			{&st.opened, object.Annotations[apis.AdmissionGatedByAnnotation] == ""},
			{&st.reserved, is(kueue.WorkloadQuotaReserved)},
			{&st.admitted, is(kueue.WorkloadAdmitted)},
			{&st.ready, is(kueue.WorkloadPodsReady)},
			{&st.finished, is(kueue.WorkloadFinished)},
		}
	case *batchv1.Job:
		isComplete := slices.ContainsFunc(object.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
		})
		return []change{{&st.created, true}, {&st.released, !ptr.Deref(object.Spec.Suspend, false)}, {&st.complete, isComplete}}
	}
	return []change{{&st.pod, true}}
}

// stageOf is the name of the stage that an object belongs to: that of its only ReplicatedJob. It is empty for a JobSet and the quota Workload of a whole one.
func stageOf(object client.Object) string {
	return cmp.Or(object.GetLabels()[apis.StageLabel], object.GetLabels()[jobset.ReplicatedJobNameKey])
}

// jobSetOf is the name of the JobSet that an object belongs to. A quota Workload of a whole JobSet has its name.
func jobSetOf(object client.Object) string {
	return cmp.Or(object.GetLabels()[jobset.JobSetNameKey], object.GetLabels()[apis.JobSetLabel], object.GetName())
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
		is := func(condition string) bool { return apimeta.IsStatusConditionTrue(w.Status.Conditions, condition) }
		isGated := w.Annotations[apis.AdmissionGatedByAnnotation] != ""
		state.Admitted = state.Admitted || is(kueue.WorkloadAdmitted)
		state.Waits = state.Waits || !isGated && !is(kueue.WorkloadFinished) && !is(kueue.WorkloadQuotaReserved)
		for _, charged := range ledger.Charged(w) {
			state.Held += charged[lab.GPU] / 1000
		}
	}
	for _, pod := range s.pods {
		if pod.Status.Phase == corev1.PodRunning {
			state.Used += new(ledger.Rules).AcceleratorsOf(&pod.Spec)[lab.GPU] / 1000
		}
	}
	return state
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

// report keeps an error for the end.
func (f *follower) report(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problems = append(f.problems, err)
}
