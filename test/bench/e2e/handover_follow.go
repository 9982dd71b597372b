package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
)

// A handover is when the parts of one were observed, from the time at which the Job of the stage before was complete. Parts that a JobSet without a queue
// does not have are 0.
type handover struct {
	// created is the Job of the stage, opened and admitted its quota Workload, released the Job that may run, pod its first pod.
	created, opened, admitted, released, pod time.Duration
}

// stageMoments are the times at which the changes of one stage arrived for the first time.
type stageMoments struct {
	created, opened, admitted, released, pod, complete time.Time
}

// A handoverFollower watches Jobs, quota Workloads, pods and JobSets. It takes the times at which events arrive: those in objects are whole seconds.
type handoverFollower struct {
	// prefix is that of the names of its JobSets.
	prefix string

	mu       sync.Mutex
	stages   map[stageKey]*stageMoments
	ended    map[types.NamespacedName]bool
	expected int
	done     chan struct{}
	failed   chan error
}

// newHandoverFollower returns a follower that is done when so many JobSets have finished, whose names begin with a prefix.
func newHandoverFollower(prefix string, expected int) *handoverFollower {
	return &handoverFollower{
		prefix: prefix, stages: map[stageKey]*stageMoments{}, ended: map[types.NamespacedName]bool{}, expected: expected,
		done: make(chan struct{}), failed: make(chan error, 1),
	}
}

// follow watches until the context ends.
func (f *handoverFollower) follow(ctx context.Context, c client.WithWatch) error {
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &kueue.WorkloadList{}, &corev1.PodList{}, &jobsetapi.JobSetList{}} {
		watcher, err := c.Watch(ctx, list)
		if err != nil {
			return fmt.Errorf("watch %T: %w", list, err)
		}
		go func() {
			for event := range watcher.ResultChan() {
				f.see(event, time.Now())
			}
			if ctx.Err() == nil {
				f.fail(fmt.Errorf("watch %T: %w", list, errWatchEnded))
			}
		}()
	}
	return nil
}

// fail keeps the first error.
func (f *handoverFollower) fail(err error) {
	select {
	case f.failed <- err:
	default:
	}
}

// wait waits until all JobSets have finished.
func (f *handoverFollower) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for the JobSets: %w", ctx.Err())
	case err := <-f.failed:
		return err
	case <-f.done:
		return nil
	}
}

// see processes one event.
func (f *handoverFollower) see(event watch.Event, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if event.Type == watch.Deleted {
		return
	}
	switch object := event.Object.(type) {
	case *batchv1.Job:
		m := f.moments(stageKey{jobSetKey(object), object.Labels[jobset.ReplicatedJobNameKey]})
		note(now, []change{{&m.created, true}, {&m.released, !ptr.Deref(object.Spec.Suspend, false)}, {&m.complete, isComplete(object)}})
	case *corev1.Pod:
		m := f.moments(stageKey{jobSetKey(object), object.Labels[jobset.ReplicatedJobNameKey]})
		note(now, []change{{&m.pod, true}})
	case *kueue.Workload:
		m := f.moments(stageKey{types.NamespacedName{Namespace: object.Namespace, Name: object.Labels[apis.JobSetLabel]}, object.Labels[apis.StageLabel]})
		note(now, []change{
			{&m.opened, object.Annotations[apis.AdmissionGatedByAnnotation] == ""},
			{&m.admitted, apimeta.IsStatusConditionTrue(object.Status.Conditions, kueue.WorkloadAdmitted)},
		})
	case *jobsetapi.JobSet:
		f.end(object)
	default:
		f.fail(fmt.Errorf("watch: %v", event.Object))
	}
}

// end notes that a JobSet has ended. mu is held.
func (f *handoverFollower) end(js *jobsetapi.JobSet) {
	key := client.ObjectKeyFromObject(js)
	if js.Status.TerminalState == "" || f.ended[key] || !strings.HasPrefix(js.Name, f.prefix) {
		return
	}
	f.ended[key] = true
	if js.Status.TerminalState != string(jobset.JobSetCompleted) {
		f.fail(fmt.Errorf("JobSet %s: %s", key, js.Status.TerminalState))
	}
	if len(f.ended) == f.expected {
		close(f.done)
	}
}

// moments returns those of a stage. mu is held.
func (f *handoverFollower) moments(key stageKey) *stageMoments {
	m := f.stages[key]
	if m == nil {
		m = &stageMoments{}
		f.stages[key] = m
	}
	return m
}

// A change is a moment, and whether it has come.
type change struct {
	at          *time.Time
	hasHappened bool
}

// note notes the time of what has happened for the first time.
func note(now time.Time, changes []change) {
	for _, c := range changes {
		if c.hasHappened && c.at.IsZero() {
			*c.at = now
		}
	}
}

func isComplete(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}

// handovers returns those that were observed of its JobSets.
func (f *handoverFollower) handovers() []handover {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []handover
	for key, m := range f.stages {
		before, ok := stageBefore(key)
		if !ok || !strings.HasPrefix(key.jobSet.Name, f.prefix) || f.stages[before] == nil || f.stages[before].complete.IsZero() {
			continue
		}
		from := f.stages[before].complete
		all = append(all, handover{
			created: after(m.created, from), opened: after(m.opened, from), admitted: after(m.admitted, from),
			released: after(m.released, from), pod: after(m.pod, from),
		})
	}
	return all
}

// after returns how much later something was observed, or 0 if it was not.
func after(at, from time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return at.Sub(from)
}
