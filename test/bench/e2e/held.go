package main

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	samples "github.com/tranche-dev/tranche/test/sample"
)

const (
	// heldJobSets is how many JobSets there are whose second stage waits, and heldReplicas how many Jobs that has.
	heldJobSets  = 10
	heldReplicas = 100
	// passEvery is how often a JobSet of one stage is submitted that passes them in the queue, so that why they wait changes all the time.
	passEvery   = 10 * time.Second
	passRunTime = 5 * time.Second
)

// measureHeld lets Jobs wait for quota, and counts the requests about them. The JobSet controller tries to resume each of them whenever it reconciles their JobSet,
// and an admission policy turns that into a write that changes nothing.
func measureHeld(ctx context.Context, o *options) (figures []figure, err error) {
	// For the launchers, the workers of one JobSet, and what passes.
	quota := fmt.Sprint(heldJobSets + 1 + heldReplicas + 2)
	s := &site{name: heldShape, isAudited: true, queues: cpuQueues(quota), nodes: cpuNodes(4)}
	err = s.run(ctx, o, func(ctx context.Context, r *run) (err error) {
		figures, err = holdJobs(ctx, r, o.heldFor)
		return err
	})
	return figures, err
}

// holdJobs submits the JobSets, waits until all Jobs are held, and observes them for some time.
func holdJobs(ctx context.Context, r *run, heldFor time.Duration) ([]figure, error) {
	for i := range heldJobSets + 1 { // the quota of the workers is that of the first
		if err := r.submit(ctx, heldJobSet(i)); err != nil {
			return nil, err
		}
	}
	if err := awaitHeld(ctx, r.world.Admin); err != nil {
		return nil, err
	}
	before, err := readUsage(r.apiserver)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for i := 0; time.Since(began) < heldFor; i++ {
		passing := queuedOf(chain{"depends-on", 1}.jobSet(fmt.Sprintf("passing-%03d", i), passRunTime))
		if err := r.submit(ctx, passing); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(passEvery):
		}
	}
	after, err := readUsage(r.apiserver)
	if err != nil {
		return nil, err
	}
	requests, err := countRequests(r.world.Plane.AuditLog(), began)
	if err != nil {
		return nil, err
	}
	return heldFigures(requests, heldFor, after.cpu-before.cpu), nil
}

// heldJobSet has a launcher that is admitted, and workers that are created when it is ready. Only the workers of one such JobSet fit.
func heldJobSet(i int) *jobsetapi.JobSet {
	forEver := map[string]string{controlplane.FakeRunTime: "24h"}
	launcher := samples.ReplicatedJob("launcher", 1, samples.Amounts("cpu", "1"), forEver)
	workers := samples.ReplicatedJob("workers", 1, samples.Amounts("cpu", "1"), forEver)
	workers.Replicas = heldReplicas
	workers.DependsOn = []jobset.DependsOn{{Name: launcher.Name, Status: jobset.DependencyReady}}
	return queuedOf(&jobsetapi.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("held-%02d", i)},
		Spec:       jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{launcher, workers}},
	})
}

// awaitHeld waits until the Jobs of all workers exist, and those of one JobSet may run.
func awaitHeld(ctx context.Context, admin client.Client) error {
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		var jobs batchv1.JobList
		err := admin.List(ctx, &jobs, client.MatchingLabels{apis.HoldLabel: apis.HoldValue})
		held := 0
		for i := range jobs.Items {
			if ptr.Deref(jobs.Items[i].Spec.Suspend, false) {
				held++
			}
		}
		return len(jobs.Items) == (heldJobSets+1)*(heldReplicas+1) && held == heldJobSets*heldReplicas, err
	})
	if err != nil {
		return fmt.Errorf("wait until all Jobs are held: %w", err)
	}
	return nil
}

// heldFigures reports how often each held Job was to be resumed in ten minutes, with the few times for Jobs that passed, and all requests that were counted, for
// each JobSet that waited.
func heldFigures(requests counts, heldFor time.Duration, server time.Duration) []figure {
	inTenMinutes := float64(10*time.Minute) / float64(heldFor)
	resumes := requests["jobset/jobs/update"] + requests["jobset/jobs/patch"]
	figures := []figure{
		{name: "resumes", value: inTenMinutes * resumes / (heldJobSets * heldReplicas), unit: "n/job", note: "in ten minutes"},
		{name: "apiserver/cpu", value: inTenMinutes * server.Seconds(), unit: "s", note: "in ten minutes"},
	}
	return append(figures, requests.figures("all", heldJobSets, "n/jobset")...)
}
