package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	samples "github.com/tranche-dev/tranche/test/sample"
)

// handoverShape is the name of the benchmark of the time between two stages while many JobSets are in flight: from when the Job of a stage is complete
// until that of the next may run, and until the first pod of that exists.
const handoverShape = "handover"

// handoverStages is how many stages each JobSet has. No stage waits for quota.
const handoverStages = 4

// A handoverRun is one of the two runs of the same JobSets.
type handoverRun struct {
	name     string
	isQueued bool
	handover []handover
	requests requestCounts
}

// measureHandover runs the JobSets in a queue, and then without one.
func measureHandover(ctx context.Context, o *options) ([]figure, error) {
	policy, err := writeAuditPolicy()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(policy)) //nolint:errcheck // it is in the directory of temporary files
	runs := []*handoverRun{{name: "queued", isQueued: true}, {name: "stock"}}
	s := &site{name: handoverShape, auditPolicy: policy, queues: cpuQueues("1000"), nodes: []controlplane.NodePool{
		{Name: "cpu", Count: 4, Allocatable: samples.Amounts("cpu", "64", "memory", "256Gi")},
	}}
	err = s.run(ctx, o, func(ctx context.Context, r *run) error {
		for _, ran := range runs {
			if err := ran.play(ctx, r, o); err != nil {
				return fmt.Errorf("run JobSets of the shape handover, %s: %w", ran.name, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return handoverFigures(runs[0], runs[1], o.inFlight), nil
}

// play submits the JobSets, waits until all of them have finished, deletes them, and counts the requests.
func (h *handoverRun) play(ctx context.Context, r *run, o *options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newHandoverFollower(h.name+"-", o.inFlight)
	if err := f.follow(ctx, r.world.Admin); err != nil {
		return err
	}
	began := time.Now()
	due := make([]time.Duration, o.inFlight)
	for i := range due {
		due[i] = o.stageTime * time.Duration(i) / time.Duration(o.inFlight)
	}
	stages, all := chain{"depends-on", handoverStages, 1}, []*jobsetapi.JobSet{}
	err := o.whenDue(ctx, due, func(i int) error {
		js := stages.jobSet(fmt.Sprintf("%s-%03d", h.name, i), o.stageTime)
		if h.isQueued {
			js = queuedOf(js)
		}
		all = append(all, js)
		if err := r.world.Admin.Create(ctx, js); err != nil {
			return fmt.Errorf("submit JobSet %s: %w", js.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := f.wait(ctx); err != nil {
		return err
	}
	if h.requests, err = countRequests(r.world.Plane.AuditLog(), began); err != nil {
		return err
	}
	h.handover = f.handovers()
	for _, js := range all {
		if err := r.world.Admin.Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return fmt.Errorf("delete JobSet %s: %w", js.Name, err)
		}
	}
	return awaitGone(ctx, r.world.Admin)
}

// awaitGone waits until no Job and no quota Workload is left, so that their deletion is not charged to the next run.
func awaitGone(ctx context.Context, admin client.Client) error {
	err := wait.PollUntilContextCancel(ctx, settleEvery, true, func(ctx context.Context) (bool, error) {
		var jobs batchv1.JobList
		var workloads kueue.WorkloadList
		err := errors.Join(admin.List(ctx, &jobs), admin.List(ctx, &workloads))
		return len(jobs.Items)+len(workloads.Items) == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait until the objects of the JobSets are gone: %w", err)
	}
	return nil
}

// stageBefore returns the stage before another one, and false for the first.
func stageBefore(key stageKey) (stageKey, bool) {
	for i := 1; i < handoverStages; i++ {
		if stageName(i) == key.stage {
			return stageKey{key.jobSet, stageName(i - 1)}, true
		}
	}
	return stageKey{}, false
}

var errWatchEnded = errors.New("the watch has ended, what came later was not observed")

// jobSetKey identifies the JobSet that an object of a stage belongs to.
func jobSetKey(object client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetLabels()[jobset.JobSetNameKey]}
}
