package forecast

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

var morning = time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC)

// answerBy returns an answer to a JobSet that starts after some time.
func answerBy(js *jobsetapi.JobSet, now time.Time, start time.Duration, position int) Answer {
	return Answer{JobSet: types.NamespacedName{Namespace: js.Namespace, Name: js.Name}, UID: js.UID, Expected: &jobsetstatus.ExpectedStart{
		Stage: "train", Certainty: jobsetstatus.StartBy, By: now.Add(start), Computed: now, ClusterQueue: "gpu", Position: position,
	}}
}

func jobSetNamed(name string) *jobsetapi.JobSet {
	return &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID("uid-" + name)}}
}

// write does what the controller of JobSets does: it writes what the Board says.
func write(b *Board, js *jobsetapi.JobSet, now time.Time) {
	js.Status.Conditions = nil
	if e := b.expectedStart(js, now); e != nil {
		js.Status.Conditions = []metav1.Condition{e.Condition(js)}
	}
}

// TestWritesAreBounded: there are never two writes to a JobSet within the interval, and none that changes position and wait by at most 10 %, whatever
// is predicted, however slowly the controller of JobSets writes, and with restarts that wait for an interval.
func TestWritesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const interval = time.Minute
		now, js := morning, jobSetNamed("a")
		b := newBoard(nil, interval, 10, metrics.New(metrics.Replica{}))
		var last time.Time
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "passes")) * time.Second)
			switch rapid.SampledFrom([]string{"predict", "predict", "publish", "publish", "write", "restart", "forget"}).Draw(t, "step") {
			case "predict":
				b.consider(answerBy(js, now, time.Duration(rapid.IntRange(0, 100).Draw(t, "minutes"))*time.Minute, rapid.IntRange(0, 40).Draw(t, "position")), js, now)
			case "publish":
				b.publish(now)
			case "write":
				before := jobsetstatus.ExpectedStartOf(js)
				write(b, js, now)
				e := jobsetstatus.ExpectedStartOf(js)
				if cmp.Equal(before, e) || e == nil {
					break
				}
				if !last.IsZero() && now.Sub(last) < interval {
					t.Fatalf("written after %s", now.Sub(last))
				}
				if before != nil {
					left := max(0, before.By.Sub(e.Computed))
					moved, overtaken := e.By.Sub(before.By).Abs(), max(e.Position-before.Position, before.Position-e.Position)
					if moved*10 <= left && overtaken*10 <= before.Position {
						t.Fatalf("%+v is written after %+v", e, before)
					}
				}
				last = now
				b.expectedStart(js, now) // the controller of JobSets observes its write
			case "restart":
				b, now = newBoard(nil, interval, 10, metrics.New(metrics.Replica{})), now.Add(interval)
			case "forget":
				b.forget(now, now.Add(-10*time.Minute))
				b.setCompleteSince(rapid.SampledFrom([]time.Time{{}, now.Add(-10 * time.Minute)}).Draw(t, "complete since"))
			}
		}
	})
}

// TestFirstStartFirst publishes the answers in the order in which the stages start, and those without a start by their positions.
func TestFirstStartFirst(t *testing.T) {
	b := newBoard(nil, time.Minute, 10, metrics.New(metrics.Replica{}))
	unknown := func(name string, position int) {
		a := answerBy(jobSetNamed(name), morning, 0, position)
		a.Expected.Certainty, a.Expected.By = jobsetstatus.StartUnknown, time.Time{}
		b.consider(a, jobSetNamed(name), morning)
	}
	unknown("sixth", 2)
	unknown("fifth", 1)
	for i, name := range []string{"fourth", "first", "third", "second"} {
		minutes := []int{40, 50, 30, 20}[i]
		b.consider(answerBy(jobSetNamed(name), morning, time.Duration(minutes)*time.Minute, 9-i), jobSetNamed(name), morning)
	}
	// A later prediction replaces the answer, or withdraws it.
	b.consider(answerBy(jobSetNamed("first"), morning, 5*time.Minute, 9), jobSetNamed("first"), morning)
	gone := jobSetNamed("gone")
	b.consider(answerBy(gone, morning, time.Minute, 9), gone, morning)
	gone.Status.Conditions = []metav1.Condition{answerBy(gone, morning, time.Hour, 9).Expected.Condition(gone)}
	b.consider(answerBy(gone, morning, time.Hour, 9), gone, morning)
	var got []string
	for {
		key, isNew := b.publish(morning)
		if !isNew {
			break
		}
		got = append(got, key.Name)
	}
	if want := []string{"first", "second", "third", "fourth", "fifth", "sixth"}; !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
}

// TestExpectedStartSurvives: the answer of a JobSet is its condition, except while a new one is about to be written.
func TestExpectedStartSurvives(t *testing.T) {
	b, js := newBoard(nil, time.Minute, 10, metrics.New(metrics.Replica{})), jobSetNamed("a")
	if got := b.expectedStart(js, morning); got != nil {
		t.Errorf("before the first prediction: %+v", got)
	}
	b.consider(answerBy(js, morning, time.Hour, 3), js, morning)
	if got := b.expectedStart(js, morning); got != nil {
		t.Errorf("before the publication: %+v", got)
	}
	b.publish(morning)
	if got := b.expectedStart(js, morning); got == nil || got.Position != 3 {
		t.Fatalf("published: %+v", got)
	}
	write(b, js, morning)
	if got := b.expectedStart(js, morning); got == nil || len(b.published) > 0 {
		t.Errorf("written: %+v, kept: %v", got, b.published)
	}
	// The stage is admitted, evicted, and waits again.
	js.Status.Conditions = nil
	if got := b.expectedStart(js, morning); got != nil {
		t.Errorf("waits again: %+v", got)
	}
	// The next one is never written, because the stage is admitted meanwhile.
	later := morning.Add(time.Minute)
	b.consider(answerBy(js, later, time.Hour, 2), js, later)
	b.publish(later)
	if got := b.expectedStart(js, later.Add(writtenWithin+1)); got != nil {
		t.Errorf("waits again after %s: %+v", writtenWithin, got)
	}
}

// TestPassedStartIsDropped: a start that has passed is removed when each part was predicted since and none has an answer.
func TestPassedStartIsDropped(t *testing.T) {
	const wait = time.Hour
	about := func(e *jobsetstatus.ExpectedStart) {
		e.Certainty, e.About, e.By = jobsetstatus.StartAbout, e.By, time.Time{}
	}
	unknown := func(e *jobsetstatus.ExpectedStart) { e.Certainty, e.By = jobsetstatus.StartUnknown, time.Time{} }
	passed, later := morning.Add(wait+time.Second), morning.Add(2*wait)
	for name, c := range map[string]struct {
		change                        func(e *jobsetstatus.ExpectedStart)
		now, since                    time.Time
		isIncomplete, isProposed, was bool
		want                          bool
	}{
		"passed":                          {now: passed, since: passed},
		"estimate passed":                 {change: about, now: passed, since: passed},
		"not passed":                      {now: morning.Add(wait), since: passed, want: true},
		"has no start":                    {change: unknown, now: passed, since: passed, want: true},
		"not all were predicted since":    {now: later, since: morning, want: true},
		"a part was never predicted":      {now: later, since: passed, isIncomplete: true, want: true},
		"another one is about to come":    {now: passed, since: passed, isProposed: true, want: true},
		"the last write was a moment ago": {now: passed, since: passed, was: true, want: true},
	} {
		b, js := newBoard(nil, time.Minute, 10, metrics.New(metrics.Replica{})), jobSetNamed("a")
		a := answerBy(js, morning, wait, 3)
		if c.change != nil {
			c.change(a.Expected)
		}
		js.Status.Conditions = []metav1.Condition{a.Expected.Condition(js)}
		if !c.isIncomplete {
			b.setCompleteSince(c.since)
		}
		if c.isProposed {
			b.consider(answerBy(js, passed, wait, 2), js, passed)
		}
		if c.was {
			b.at[js.UID] = c.now.Add(1 - b.interval)
		}
		if got := b.expectedStart(js, c.now); (got != nil) != c.want {
			t.Errorf("%s: %+v, want one: %t", name, got, c.want)
		}
	}
}

// TestSlowWrite: the interval begins when an answer is written, not when it is published.
func TestSlowWrite(t *testing.T) {
	b, js := newBoard(nil, time.Minute, 10, metrics.New(metrics.Replica{})), jobSetNamed("a")
	b.consider(answerBy(js, morning, time.Hour, 3), js, morning)
	b.publish(morning)
	written := morning.Add(25 * time.Second)
	write(b, js, written)
	b.expectedStart(js, written)
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{59 * time.Second, false}, {time.Minute, true}} {
		now := written.Add(c.after)
		b.consider(answerBy(js, now, 2*time.Hour, 3), js, now)
		if _, isNew := b.publish(now); isNew != c.want {
			t.Errorf("%s after the write another one: %t, want %t", c.after, isNew, c.want)
		}
	}
}

// TestForget: a Board keeps nothing about JobSets that no longer wait.
func TestForget(t *testing.T) {
	b := newBoard(nil, time.Minute, 10, metrics.New(metrics.Replica{}))
	for i := range 4 {
		js := jobSetNamed(fmt.Sprint(i))
		b.consider(answerBy(js, morning, time.Hour, i), js, morning)
	}
	b.publish(morning)
	b.forget(morning.Add(time.Hour), morning)
	if len(b.proposals) != 3 || len(b.published) != 0 || len(b.at) != 0 {
		t.Errorf("%d proposals of 3, %d published, %d times", len(b.proposals), len(b.published), len(b.at))
	}
	b.forget(morning.Add(time.Hour), morning.Add(time.Second))
	if len(b.proposals) != 0 || b.order.Len() != 0 {
		t.Errorf("%d proposals, want none", len(b.proposals))
	}
}

// TestRate publishes as many answers per second as configured.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(nil, time.Minute, 4, metrics.New(metrics.Replica{}))
		for i := range 9 {
			js := jobSetNamed(fmt.Sprint(i))
			b.consider(answerBy(js, time.Now(), time.Hour, i), js, time.Now())
		}
		b.propose(t.Context(), nil, time.Now())
		go b.Start(t.Context()) //nolint:errcheck // it returns none
		began := time.Now()
		for range 9 {
			<-b.Changes()
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("9 answers took %s, want 2s", took)
		}
	})
}
