package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/bench/e2e/ledger"
	"github.com/tranche-dev/tranche/test/bench/mixed"
)

// handoverStages is how many stages each JobSet has. No stage waits for quota.
const handoverStages = 4

// A handoverRun is one of the two runs of the same JobSets.
type handoverRun struct {
	name     string
	isQueued bool
	// handovers is how many were observed, and parts how long each part of them took, sorted, by its name.
	handovers int
	parts     map[string][]time.Duration
	requests  counts
}

// measureHandover runs many JobSets at once in a queue, and then without one: what happens from when the Job of a stage is complete until that of the next may
// run and has its first pod.
func measureHandover(ctx context.Context, o *options) ([]figure, error) {
	runs := []*handoverRun{{name: "queued", isQueued: true}, {name: "stock"}}
	s := &site{name: handoverShape, isAudited: true, queues: cpuQueues("1000"), nodes: cpuNodes(4)}
	err := s.run(ctx, o, func(ctx context.Context, r *run) error {
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
	f := newFollower(o.inFlight)
	f.lists = append(f.lists, &batchv1.JobList{})
	began, all := time.Now(), make([]mixed.Submission, o.inFlight)
	for i := range all {
		js := chain{"depends-on", handoverStages}.jobSet(fmt.Sprintf("%s-%03d", h.name, i), o.stageTime)
		if h.isQueued {
			js = queuedOf(js)
		}
		all[i] = mixed.Submission{After: o.stageTime * time.Duration(i) / time.Duration(o.inFlight), JobSet: js}
	}
	err := f.play(ctx, r, o, all, func(s *mixed.Submission) error { return r.submit(ctx, s.JobSet) })
	if err != nil {
		return err
	}
	if h.requests, err = countRequests(r.world.Plane.AuditLog(), began); err != nil {
		return err
	}
	if err := h.measure(f); err != nil {
		return err
	}
	for i := range all {
		js := all[i].JobSet
		if err := r.world.Admin.Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return fmt.Errorf("delete JobSet %s: %w", js.Name, err)
		}
	}
	return awaitGone(ctx, r.world.Admin)
}

// awaitGone waits until no JobSet, no Job and no quota Workload is left, so that they are not counted in the next run.
func awaitGone(ctx context.Context, admin client.Client) error {
	err := wait.PollUntilContextCancel(ctx, settleEvery, true, func(ctx context.Context) (bool, error) {
		var jobSets jobsetapi.JobSetList
		var jobs batchv1.JobList
		var workloads kueue.WorkloadList
		err := errors.Join(admin.List(ctx, &jobSets), admin.List(ctx, &jobs), admin.List(ctx, &workloads))
		return len(jobSets.Items)+len(jobs.Items)+len(workloads.Items) == 0, err
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

// handoverParts are the parts of a handover, in the order of the report.
var handoverParts = []struct {
	name string
	of   func(*stageTimes) time.Duration
}{
	{"job-created", func(st *stageTimes) time.Duration { return st.created }},
	{"stage-open", func(st *stageTimes) time.Duration { return st.opened }},
	{"admitted", func(st *stageTimes) time.Duration { return st.admitted }},
	{"released", func(st *stageTimes) time.Duration { return st.released }},
	{"pod", func(st *stageTimes) time.Duration { return st.pod }},
}

// measure takes how long the parts of all handovers took from when the Job of the stage before was complete. A JobSet without a queue does not have all parts.
// Times are those at which events arrived: those in objects are whole seconds.
func (h *handoverRun) measure(f *follower) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.parts = map[string][]time.Duration{}
	for key, st := range f.stages {
		before, ok := stageBefore(key)
		if !ok || f.stages[before].complete == 0 {
			continue
		}
		h.handovers++
		for _, part := range handoverParts {
			if at := part.of(&st); at != 0 {
				h.parts[part.name] = append(h.parts[part.name], at-f.stages[before].complete)
			}
		}
	}
	for _, times := range h.parts {
		slices.Sort(times)
	}
	return errors.Join(f.problems...)
}

// handoverFigures reports how long the parts of the handovers took in a queue and without one, and the requests for each stage.
func handoverFigures(queued, stock *handoverRun, inFlight int) []figure {
	var figures []figure
	for _, part := range handoverParts {
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", 0.5}, {"p99", 0.99}} {
			name, with, without := part.name+"/"+q.name, ledger.Quantile(queued.parts[part.name], q.at), ledger.Quantile(stock.parts[part.name], q.at)
			figures = append(figures, millis("queued/"+name, with))
			if without > 0 {
				figures = append(figures, millis("stock/"+name, without), ratio("ratio/"+name, float64(with), float64(without), "queued by stock"))
			}
		}
	}
	missing := 2*inFlight*(handoverStages-1) - queued.handovers - stock.handovers
	figures = append(figures, count("unfinished", missing, "handovers that were not observed"))
	for _, ran := range []*handoverRun{queued, stock} {
		figures = append(figures, ran.requests.figures(ran.name, inFlight*handoverStages, "n/stage")...)
	}
	return figures
}
