package simulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/snapshot"
)

// interrupted is a context that ends when it was asked often enough.
type interrupted struct{ after *int }

// Deadline implements context.Context.
func (*interrupted) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Done implements context.Context.
func (*interrupted) Done() <-chan struct{} { return nil }

// Value implements context.Context.
func (*interrupted) Value(any) any { return nil }

// Err implements context.Context.
func (c *interrupted) Err() error {
	if *c.after--; *c.after < 0 {
		return context.Canceled
	}
	return nil
}

// firstAgree compares a prediction with those of the first quota Workloads of each queue, part by part, and with some that are interrupted.
func firstAgree(t *rapid.T, s *snapshot.Snapshot, p *Prediction, d *Durations, text string) {
	want := map[admission.StageKey]Start{}
	var keys []admission.StageKey
	for _, start := range p.Starts {
		want[start.Workload] = start
		keys = append(keys, start.Workload)
	}
	inspected, err := Inspect(s, keys...)
	if err != nil {
		t.Fatal(err)
	}
	first, patience := rapid.IntRange(1, 4).Draw(t, "first"), rapid.SampledFrom([]int{1, 10, 100, 1000, 1e9}).Draw(t, "patience")
	for _, part := range Parts(s) {
		got, err := ForecastFirst(&interrupted{after: &patience}, part, d, First{keys, first, p.Until})
		if err != nil {
			t.Fatal(err)
		}
		if (got.Interrupted != nil) != (patience < 0) || got.Interrupted != nil && !errors.Is(got.Interrupted, context.Canceled) {
			t.Fatalf("interrupted: %v with patience for %d\n%s", got.Interrupted, patience, text)
		}
		for _, start := range got.Starts {
			before, isQueued := inspected.before[start.Workload]
			if start.ClusterQueue != before.ClusterQueue || start.Position != before.InClusterQueue || start.IsBeyond != (isQueued && start.Position >= first) {
				if got.Interrupted == nil || start.ClusterQueue != "" {
					t.Fatalf("%+v, want the position of %+v\n%s", start, before, text)
				}
			}
			expected := want[start.Workload]
			delete(want, start.Workload)
			if start.IsBeyond || got.Interrupted != nil && start.By.IsZero() {
				continue
			}
			start.ClusterQueue, start.Position = "", 0
			if diff := gocmp.Diff(expected, start); diff != "" {
				t.Fatalf("-of all +of the first\n%s\n%s", diff, text)
			}
		}
	}
	if len(want) > 0 {
		t.Fatalf("in no part: %v\n%s", want, text)
	}
}

// TestExplanationsAreInterrupted: a simulation without anything to happen ends at once, and its context bounds how long it explains what waits.
func TestExplanationsAreInterrupted(t *testing.T) {
	text := "# story\nqueue ml gpu=4\nsubmit a queue=ml pods=gpu:4\n"
	const pending = 20
	for i := range pending {
		text += fmt.Sprintf("submit b%02d queue=ml pods=gpu:4 at=1m\n", i)
	}
	s := started(t, text)
	if err := s.runUntil(5 * time.Minute); err != nil {
		t.Fatal(err)
	}
	taken := snapshotOf(s)
	first := First{PendingStages(taken, func(admission.StageKey) bool { return true }), pending, s.Beginning().Add(time.Hour)}
	explained := map[int]bool{}
	for patience := 1; ; patience++ {
		left := patience
		p, err := ForecastFirst(&interrupted{after: &left}, taken, &Durations{}, first)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i := range p.Starts {
			if p.Starts[i].Waits != "" {
				n++
			}
		}
		explained[n] = true
		if p.Interrupted == nil {
			break
		}
		if !errors.Is(p.Interrupted, context.Canceled) {
			t.Fatal(p.Interrupted)
		}
	}
	if len(explained) != pending+1 {
		t.Errorf("it ended after %d numbers of explanations, want each from 0 to %d", len(explained), pending)
	}
}

// TestParts: trees of Cohorts are parts, unless a JobSet or a quota Workload connects them.
func TestParts(t *testing.T) {
	// Each has x in queue a, y in queue c, and lost, a copy of x whose queue does not exist.
	const text = "# story\ncohort lab\nqueue a cohort=lab gpu=1\nqueue b gpu=1\nqueue c cohort=lab gpu=1\nsubmit x queue=a pods=gpu:1\nsubmit y queue=c pods=gpu:1\n"
	for name, c := range map[string]struct {
		change func(x, y, lost *kueue.Workload)
		// want has the ClusterQueues and quota Workloads of each part.
		want [][]string
		// tree is that with more than one quota Workload.
		tree string
	}{
		"a tree and a queue": {
			want: [][]string{{"a", "c", "x", "y"}, {"b"}, {"a", "b", "c", "lost"}}, tree: "Cohort lab",
		},
		"a JobSet in a tree and in no queue": {
			change: func(x, _, lost *kueue.Workload) {
				x.Labels, lost.Labels = map[string]string{apis.JobUIDLabel: "uid"}, map[string]string{apis.JobUIDLabel: "uid"}
			},
			want: [][]string{{"a", "c", "lost", "x", "y"}, {"b"}, {"a", "b", "c"}}, tree: "Cohort lab",
		},
		"quota of another tree": {
			change: func(x, _, _ *kueue.Workload) { x.Spec.QueueName = "b" }, // it holds quota in a
			want:   [][]string{{"a", "b", "c", "x", "y"}, {"a", "b", "c", "lost"}}, tree: "ClusterQueue b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, text)
			if err := s.runUntil(time.Minute); err != nil {
				t.Fatal(err)
			}
			taken := snapshotOf(s)
			x, y := taken.Workloads[0].DeepCopy(), taken.Workloads[1].DeepCopy()
			lost := x.DeepCopy()
			lost.Name, lost.UID, lost.Spec.QueueName, lost.Status = "lost", "lost", "nowhere", kueue.WorkloadStatus{}
			if c.change != nil {
				c.change(x, y, lost)
			}
			taken.Workloads = []*kueue.Workload{x, y, lost}
			var got [][]string
			for _, part := range Parts(taken) {
				var names []string
				for _, q := range part.ClusterQueues {
					names = append(names, q.Name)
				}
				for _, w := range part.Workloads {
					names = append(names, w.Name)
				}
				slices.Sort(names)
				got = append(got, names)
			}
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			beyond := "the tree of " + c.tree + " has 2 quota Workloads, more than 1 (--most): no simulated answer"
			if err := (Bound{1, "--most"}).Check(taken); err == nil || err.Error() != beyond {
				t.Errorf("%v, want %s", err, beyond)
			}
			y.Status.Conditions = append(y.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue})
			if err := (Bound{1, "--most"}).Check(taken); err != nil {
				t.Errorf("one has finished: %v", err)
			}
		})
	}
}

// TestPartsOfJobSets: a JobSet is in the part of its queue, and in the last one if there is none. Its Jobs are where it is, also if it has no quota
// Workload.
func TestPartsOfJobSets(t *testing.T) {
	s := started(t, "# story\nqueue a gpu=1\nqueue b gpu=1\nsubmit x queue=a stages=p(gpu=1)\nsubmit y queue=b stages=p(gpu=1)\nsubmit z queue=b stages=p(gpu=1)\n")
	if err := s.runUntil(time.Minute); err != nil {
		t.Fatal(err)
	}
	taken := snapshotOf(s)
	taken.Workloads = slices.DeleteFunc(taken.Workloads, func(w *kueue.Workload) bool { return w.Labels[apis.JobSetLabel] != "x" })
	taken.JobSets[2] = taken.JobSets[2].DeepCopy()
	taken.JobSets[2].Labels[apis.QueueLabel] = "nowhere"
	var got [][]string
	for _, part := range Parts(taken) {
		var names []string
		for _, js := range part.JobSets {
			names = append(names, js.Name)
		}
		for _, job := range part.Jobs {
			names = append(names, job.Name)
		}
		got = append(got, names)
	}
	want := [][]string{{"x", "x-p-0"}, {"y", "y-p-0"}, {"z", "z-p-0"}}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
