package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/bench/e2e/lab"
)

// reclaimManager is the field manager of status.reclaimablePods.
const reclaimManager = "kueue-reclaimable-pods"

// A wholeRunner does the work of Kueue's JobSet integration: it asks for quota for all of a JobSet at once, resumes the JobSet when that is
// admitted, releases quota as Jobs succeed, and the rest when the JobSet has finished. The manager decides which JobSet is admitted; the
// JobSet controller decides in which order its Jobs start.
type wholeRunner struct {
	admin    client.Client
	api      *api
	follower *follower

	mu      sync.Mutex
	signals map[types.NamespacedName]chan struct{}
	tending sync.WaitGroup
}

func newWholeRunner(ctx context.Context, admin client.Client, a *api, f *follower) *wholeRunner {
	r := &wholeRunner{admin: admin, api: a, follower: f, signals: map[types.NamespacedName]chan struct{}{}}
	f.changed = func(key types.NamespacedName) { r.changed(ctx, key) }
	return r
}

// submit creates a JobSet with its quota Workload.
func (r *wholeRunner) submit(ctx context.Context, js *jobsetapi.JobSet) error {
	lab.Suspended(js)
	if err := r.admin.Create(ctx, js); err != nil {
		return fmt.Errorf("submit JobSet %s: %w", js.Name, err)
	}
	return r.api.create(ctx, lab.Whole(js))
}

// changed wakes the goroutine of a JobSet, which then reads the current state.
func (r *wholeRunner) changed(ctx context.Context, key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	signal := r.signals[key]
	if signal == nil {
		signal = make(chan struct{}, 1)
		r.signals[key] = signal
		r.tending.Go(func() { r.tend(ctx, key, signal) })
	}
	select {
	case signal <- struct{}{}:
	default: // it has not read the state yet
	}
}

func (r *wholeRunner) tend(ctx context.Context, key types.NamespacedName, signal <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signal:
		}
		js, w := r.follower.last(key)
		if js == nil || w == nil {
			continue
		}
		// A write in progress may complete.
		if err := r.act(context.WithoutCancel(ctx), js, w); err != nil && !apierrors.IsConflict(err) {
			r.follower.report(err)
		}
	}
}

// act does the due work. Work that was done but not observed yet may be repeated, which changes nothing.
func (r *wholeRunner) act(ctx context.Context, js *jobsetapi.JobSet, w *kueue.Workload) error {
	key := client.ObjectKeyFromObject(w)
	isAdmitted := apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted)
	switch {
	case !isAdmitted || apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished):
		return nil
	case ptr.Deref(js.Spec.Suspend, false):
		resumed := js.DeepCopy()
		lab.Resume(resumed, w.Status.Admission)
		if err := r.admin.Patch(ctx, resumed, client.MergeFrom(js)); err != nil {
			return fmt.Errorf("resume JobSet %s: %w", key, err)
		}
		return nil
	case js.Status.TerminalState != "":
		return r.api.apply(ctx, key, "", finishManager, outcome())
	}
	reclaimable := lab.Reclaimable(js)
	if slices.Equal(reclaimable, w.Status.ReclaimablePods) {
		return nil
	}
	return r.api.apply(ctx, key, "", reclaimManager, &kueue.WorkloadStatus{ReclaimablePods: reclaimable})
}
