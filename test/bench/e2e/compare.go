package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/bench/e2e/account"
	"github.com/tranche-dev/tranche/test/bench/e2e/lab"
	"github.com/tranche-dev/tranche/test/bench/e2e/plot"
	"github.com/tranche-dev/tranche/test/bench/mixed"
)

// A way is how JobSets are admitted.
type way string

const (
	whole  way = "whole"
	staged way = "staged"
)

// findings are the results of the two runs.
type findings struct {
	comparison account.Comparison
	// timeline has the sums of Tranche's own timelines of the staged run.
	timeline timelineSums
	problems []error
}

// A timelineSums has the accelerator-seconds that were held, and were idle, according to the timelines of JobSets. missing is how many
// stages they do not contain yet, or not as finished.
type timelineSums struct {
	held, idle float64
	missing    int
}

// compareOnce runs the same JobSets both ways, each on a control plane of its own, and writes the results to files.
func compareOnce(ctx context.Context, o *options) ([]figure, error) {
	found := &findings{comparison: account.Comparison{Seed: o.seed, Quota: lab.Quota()}}
	runs := map[way]*account.Run{}
	for _, w := range []way{whole, staged} {
		fmt.Fprintf(os.Stderr, "bench-e2e: running %d JobSets: %s ...\n", o.jobSets, titleOf(w))
		ran, err := found.runWay(ctx, w, o)
		if err != nil {
			return nil, fmt.Errorf("run JobSets, %s: %w", w, err)
		}
		runs[w] = ran
	}
	found.comparison.Whole, found.comparison.Staged = runs[whole], runs[staged]
	if err := writeComparison(&found.comparison, o.out); err != nil {
		return nil, err
	}
	if _, err := os.Stdout.WriteString(summary(&found.comparison) + "\n"); err != nil {
		return nil, fmt.Errorf("print the comparison: %w", err)
	}
	return comparisonFigures(found), nil
}

// runWay starts a control plane and runs all JobSets in one way.
func (found *findings) runWay(ctx context.Context, how way, o *options) (ran *account.Run, err error) {
	s := &site{name: string(how), nodes: lab.NodePools(), queues: objectsOf(lab.Queues())}
	err = s.run(ctx, o, func(ctx context.Context, r *run) error {
		ran, err = found.submitAll(ctx, r, how, o)
		return err
	})
	return ran, err
}

// submitAll submits the JobSets when they are due, and waits until all of them have finished.
func (found *findings) submitAll(ctx context.Context, r *run, how way, o *options) (*account.Run, error) {
	submissions := lab.Draw(o.seed, o.jobSets)
	f := newFollower(len(submissions))
	submit, settle := r.submitStaged, func() {}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		settle()
	}()
	if how == whole {
		runner := newWholeRunner(ctx, r.world.Admin, r.api, f)
		submit, settle = runner.submit, runner.stop
	}
	if err := f.play(ctx, r, o, submissions, func(s *mixed.Submission) error { return submit(ctx, fated(s)) }); err != nil {
		return nil, err
	}
	if how == staged {
		if err := f.awaitTimelines(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	found.problems = append(found.problems, f.problems...)
	if how == staged {
		found.timeline = f.timelines()
	}
	return f.book.Run(), nil
}

// awaitTimelines waits until the timelines of all JobSets contain all their stages: the manager writes one after a stage has finished.
func (f *follower) awaitTimelines(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, settleEvery, settleTimeout, true, func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.timelines().missing == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait until all timelines are complete: %w", err)
	}
	return nil
}

// submitStaged submits a JobSet to its queue. The manager does the rest.
func (r *run) submitStaged(ctx context.Context, js *jobsetapi.JobSet) error {
	lab.Queued(js)
	return r.submit(ctx, js)
}

// unfinished describes what the unfinished JobSets wait for.
func (f *follower) unfinished(cause error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	problems := append([]error{fmt.Errorf("%d of %d JobSets have finished: %w", f.book.Over(), f.expected, cause)}, f.problems...)
	var late []error
	for key, s := range f.sights {
		for _, w := range s.workloads {
			reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
			if reserved != nil && !apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
				late = append(late, fmt.Errorf("JobSet %s, quota Workload %s: %s", key, client.ObjectKeyFromObject(w), reserved.Message))
			}
		}
	}
	slices.SortFunc(late, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(append(problems, late...)...)
}

// timelines sums up the timelines. mu is held.
func (f *follower) timelines() timelineSums {
	var sums timelineSums
	for _, s := range f.sights {
		sums.add(s.jobSet.Annotations[apis.TimelineAnnotation], len(s.workloads))
	}
	return sums
}

// add sums up the timeline of a JobSet with so many stages.
func (t *timelineSums) add(text string, stages int) {
	var timeline apis.Timeline
	if err := json.Unmarshal([]byte(text), &timeline); err != nil {
		t.missing += stages
		return
	}
	for _, stage := range timeline.Stages {
		if stage.Finished != nil {
			stages--
		}
		t.held += float64(stage.Held[lab.GPU])
		t.idle += float64(stage.Idle[lab.GPU])
	}
	t.missing += stages
}

// writeComparison writes PATH.json with everything that was measured, and PATH.svg, which is drawn from it.
func writeComparison(c *account.Comparison, path string) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("render the comparison: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	for name, content := range map[string][]byte{path + ".json": append(data, '\n'), path + ".svg": plot.SVG(chartOf(c))} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return fmt.Errorf("write the comparison: %w", err)
		}
	}
	return nil
}
