package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
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

	// changed has the JobSets about which something has changed.
	changed *workqueue.Typed[types.NamespacedName]
	tending sync.WaitGroup
}

func newWholeRunner(ctx context.Context, admin client.Client, a *api, f *follower) *wholeRunner {
	r := &wholeRunner{admin: admin, api: a, follower: f, changed: workqueue.NewTyped[types.NamespacedName]()}
	f.changed = r.changed.Add
	for range parallelism {
		r.tending.Go(func() { r.tend(ctx) })
	}
	return r
}

// stop returns when no write is in progress.
func (r *wholeRunner) stop() {
	r.changed.ShutDown()
	r.tending.Wait()
}

// submit creates a JobSet with its quota Workload.
func (r *wholeRunner) submit(ctx context.Context, js *jobsetapi.JobSet) error {
	js.Spec.Suspend = new(true)
	if err := createAll(ctx, r.admin, []client.Object{js}); err != nil {
		return err
	}
	return r.api.create(ctx, lab.Whole(js))
}

func (r *wholeRunner) tend(ctx context.Context) {
	for {
		key, isOver := r.changed.Get()
		if isOver {
			return
		}
		js, w := r.follower.last(key)
		if js != nil && w != nil && ctx.Err() == nil {
			// A write in progress may complete.
			if err := r.act(context.WithoutCancel(ctx), js, w); err != nil && !apierrors.IsConflict(err) {
				r.follower.report(err)
			}
		}
		r.changed.Done(key)
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
