package shadow_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/shadow/auditlog"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/kueueday"
)

var begin = time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)

// pipeline prepares on one GPU for 10 minutes and trains on 3 for 20 minutes. Pods are ready after one minute.
func pipeline(name string, at time.Duration) kueueday.Job {
	return kueueday.Job{Name: name, At: at, Stages: []kueueday.Stage{
		{Name: "prepare", Pods: 1, Ready: time.Minute, Run: 10 * time.Minute}, {Name: "train", Pods: 3, Ready: time.Minute, Run: 20 * time.Minute},
	}}
}

// TestPipelines compares two pipelines on 4 GPUs with a calculation by hand: as a whole, the second one starts when the first one has ended.
func TestPipelines(t *testing.T) {
	day := &kueueday.Day{Begin: begin, GPUs: 4, Jobs: []kueueday.Job{pipeline("a", 0), pipeline("b", time.Minute)}}
	for name, r := range map[string]*shadow.Report{"audit log": ofLog(t, day), "snapshot": ofSnapshot(t, day), "watch": ofWrites(t, day, 0), "watch from within a second": lateBy(t, day, 400*time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			want := []shadow.Resource{{
				Name: kueueday.GPU, Held: 2 * 100 * 60, Used: 2 * (9 + 3*19) * 60, HeldWhole: 2 * 100 * 60, HeldStaged: 2 * 70 * 60, Saved: 2 * 30 * 60,
				Idle: map[shadow.Cause]float64{shadow.LaterStage: 2 * 30 * 60, shadow.NotReady: 2 * (1 + 3) * 60, shadow.NotStarted: 0, shadow.Ended: 0},
			}}
			if name == "watch from within a second" { // readiness is observed late, once for each of 8 pods
				want[0].Used, want[0].Idle[shadow.NotReady] = want[0].Used-8*0.4, want[0].Idle[shadow.NotReady]+8*0.4
			}
			if name == "snapshot" { // it does not show when pods were ready
				want[0].Used, want[0].Idle[shadow.NotReady] = 2*70*60, 0
			}
			near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })
			if diff := cmp.Diff(want, r.Resources, near); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if want := (shadow.Comparison{Compared: 2, Earlier: 1, EarlierSeconds: 29 * 60, MostSeconds: 29 * 60}); r.Starts != want {
				t.Errorf("starts %+v, want %+v", r.Starts, want)
			}
			if want := (shadow.Comparison{Compared: 2, Earlier: 1, EarlierSeconds: 10 * 60, MostSeconds: 10 * 60}); r.Finishes != want {
				t.Errorf("finishes %+v, want %+v", r.Finishes, want)
			}
			if want := (shadow.Error{Compared: 2, HeldRatio: 1}); r.Error != want {
				t.Errorf("error %+v, want %+v", r.Error, want)
			}
			if r.JobSets != (shadow.Counts{Total: 2, Staged: 2, Finished: 2}) || len(r.LeftOut)+len(r.Unsafe)+len(r.InactiveQueues) > 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// end is after everything has finished.
func end(day *kueueday.Day) time.Time {
	last := time.Duration(0)
	for _, p := range day.Play() {
		last = max(last, p.Finished, p.At)
	}
	return day.Begin.Add(last)
}

func ofLog(tb testing.TB, day *kueueday.Day) *shadow.Report {
	tb.Helper()
	var log bytes.Buffer
	if err := day.AuditLog(&log, "RequestResponse"); err != nil {
		tb.Fatal(err)
	}
	content, err := auditlog.Read("audit.log", &log, nil, 0)
	if err != nil || len(content.Gaps) > 0 {
		tb.Fatal(err, content)
	}
	return report(tb, content.Recorder, content.To)
}

func ofSnapshot(tb testing.TB, day *kueueday.Day) *shadow.Report {
	tb.Helper()
	s := day.Snapshot(end(day))
	r, err := shadow.RecordOf(s)
	if err != nil {
		tb.Fatal(err)
	}
	return report(tb, r, s.TakenAt)
}

// lateBy reports on what is observed from shortly after the begin.
func lateBy(tb testing.TB, day *kueueday.Day, late time.Duration) *shadow.Report {
	tb.Helper()
	r := shadow.NewRecorder(day.Begin.Add(late), day.Queues(), 0)
	for _, w := range day.Writes() {
		r.Observe(w.Object, w.At.Add(late))
	}
	return report(tb, r, end(day))
}

// ofWrites reports on objects that are observed when they are written.
func ofWrites(tb testing.TB, day *kueueday.Day, limit int) *shadow.Report {
	tb.Helper()
	r := shadow.NewRecorder(day.Begin, day.Queues(), limit)
	for _, w := range day.Writes() {
		r.Observe(w.Object, w.At)
	}
	return report(tb, r, end(day))
}

func report(tb testing.TB, r *shadow.Recorder, to time.Time) *shadow.Report {
	tb.Helper()
	got, err := r.Report(to, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

// TestReplayEqualsWhatHappened compares the replay as a whole with a model of Kueue that shares no code with it: each JobSet starts in the same second,
// and all hold the same.
func TestReplayEqualsWhatHappened(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		day := randomDay(t)
		r := shadow.NewRecorder(day.Begin, day.Queues(), 0)
		for _, w := range day.Writes() {
			r.Observe(w.Object, w.At)
		}
		got, err := r.Report(end(day), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Error.MaxSeconds > 0 || got.Error.Missing > 0 || got.Error.Compared != got.JobSets.Finished {
			t.Fatalf("error of the replay: %+v of %+v", got.Error, got.JobSets)
		}
		for _, x := range got.Resources {
			if math.Abs(x.Held-x.HeldWhole) > 1e-6 {
				t.Fatalf("%s: %g held, %g in the replay", x.Name, x.Held, x.HeldWhole)
			}
		}
	})
}

// TestLateObservation begins to observe in the middle of a day: the replay goes on as the cluster did.
func TestLateObservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		day := randomDay(t)
		to := end(day).Add(time.Second)
		from := begin.Add(time.Duration(rapid.IntRange(1, max(1, int(to.Sub(begin).Seconds()))).Draw(t, "from")) * time.Second)
		r := shadow.NewRecorder(from, nil, 0)
		s := day.Snapshot(from)
		for _, kind := range snapshot.Kinds() {
			for o := range kind.Objects(s) {
				r.Observe(o, from)
			}
		}
		for _, w := range day.Writes() {
			if w.At.After(from) {
				r.Observe(w.Object, w.At)
			}
		}
		got, err := r.Report(to, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Error.MaxSeconds > 0 || got.Error.Missing > 0 {
			t.Fatalf("error of the replay from %s: %+v", from.Sub(begin), got.Error)
		}
		for _, x := range got.Resources {
			if math.Abs(x.Held-x.HeldWhole) > 1e-6 {
				t.Fatalf("%s: %g held, %g in the replay from %s", x.Name, x.Held, x.HeldWhole, from.Sub(begin))
			}
		}
	})
}

// TestUnsafe submits two JobSets that keep 2 servers while 6 workers run, on 9 GPUs: with 5 left, the second one's servers could lead to a deadlock
// once the quota is no longer reserved for the workers of the first one, whose servers are not ready in time.
func TestUnsafe(t *testing.T) {
	servers := func(name string, at time.Duration) kueueday.Job {
		return kueueday.Job{Name: name, At: at, Stages: []kueueday.Stage{
			{Name: "servers", Pods: 2, Ready: 10 * time.Minute, Run: 30 * time.Minute}, {Name: "workers", Pods: 6, Run: 20 * time.Minute, AfterReady: true},
		}}
	}
	r := ofWrites(t, &kueueday.Day{Begin: begin, GPUs: 9, Jobs: []kueueday.Job{servers("a", 0), servers("b", time.Minute)}}, 0)
	if diff := cmp.Diff([]string{"team/b/servers"}, r.Unsafe); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestFolded keeps few JobSets: the others count in the sums, and those that are left are replayed as they happened.
func TestFolded(t *testing.T) {
	day := kueueday.Recorded()
	all, few := ofWrites(t, day, 0), ofWrites(t, day, 10)
	if few.Folded.JobSets < 20 || few.JobSets != (shadow.Counts{Total: 36, Staged: few.JobSets.Staged, Finished: 36}) {
		t.Errorf("%+v, %+v", few.Folded, few.JobSets)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-3 }
	for i := range all.Resources {
		x, y := all.Resources[i], few.Resources[i]
		if !near(x.Held, y.Held) || !near(x.Used, y.Used) || !near(x.Idle[shadow.LaterStage], y.Idle[shadow.LaterStage]) {
			t.Errorf("%+v, want %+v", y, x)
		}
	}
	if few.Error.MaxSeconds > 0 || few.Error.Missing > 0 || few.Error.Compared == 0 {
		t.Errorf("error of the replay: %+v", few.Error)
	}
}

// TestKueueReservesNothing lets small JobSets overtake a large one for longer than reservation.after: in the replay as a whole they do so, too. In stages
// the large one starts as soon as what ran when it was due has ended.
func TestKueueReservesNothing(t *testing.T) {
	job := func(name string, pods int, at time.Duration) kueueday.Job {
		return kueueday.Job{Name: name, At: at, Stages: []kueueday.Stage{{Name: "train", Pods: pods, Run: 10 * time.Minute}}}
	}
	day := &kueueday.Day{Begin: begin, GPUs: 4, Jobs: []kueueday.Job{job("small-0", 2, 0), job("large", 4, time.Minute)}}
	for n := range 6 {
		day.Jobs = append(day.Jobs, job(fmt.Sprint("small-", n+1), 2, 5*time.Minute*time.Duration(n+1)))
	}
	queues := day.Queues()
	queues.Configuration = &configapi.Configuration{Reservation: configapi.Reservation{After: "1h"}}
	queues.ClusterQueues[0].Annotations = map[string]string{apis.ReserveAfterAnnotation: "10m"}
	r := shadow.NewRecorder(day.Begin, queues, 0)
	for _, w := range day.Writes() {
		r.Observe(w.Object, w.At)
	}
	got := report(t, r, end(day))
	if got.Error.MaxSeconds > 0 || got.Error.Missing > 0 || got.Error.Compared != 8 {
		t.Errorf("error of the replay: %+v", got.Error)
	}
	i := slices.IndexFunc(got.Differences, func(d shadow.Difference) bool { return d.Name == "large" })
	if i < 0 || got.Differences[i].StartedWhole.Sub(begin) != 40*time.Minute || got.Differences[i].StartedStaged.Sub(begin) != 20*time.Minute {
		t.Errorf("large does not start after 40 and 20 minutes: %+v", got.Differences)
	}
}

// TestWithoutQueues reports on a cluster that nothing manages. With a quota that is assumed, its JobSets are replayed.
func TestWithoutQueues(t *testing.T) {
	day := &kueueday.Day{Begin: begin, GPUs: 8, Jobs: []kueueday.Job{pipeline("a", 0), pipeline("b", time.Minute)}}
	r := shadow.NewRecorder(day.Begin, nil, 0)
	for _, w := range day.Writes() {
		delete(w.Object.GetLabels(), apis.QueueLabel)
		if _, isWorkload := w.Object.(*kueue.Workload); !isWorkload {
			r.Observe(w.Object, w.At)
		}
	}
	got := report(t, r, end(day))
	if len(got.LeftOut) != 2 || !strings.Contains(got.LeftOut[0].Why, "names no LocalQueue") || got.Resources[0].Held != 2*70*60 {
		t.Errorf("%+v", got)
	}
	r.AssumeQuota(corev1.ResourceList{kueueday.GPU: resource.MustParse("4")})
	got = report(t, r, end(day))
	if want := (shadow.Comparison{Compared: 2, Earlier: 1, EarlierSeconds: 29 * 60, MostSeconds: 29 * 60}); got.Starts != want || len(got.LeftOut) > 0 {
		t.Errorf("starts %+v, want %+v; left out %v", got.Starts, want, got.LeftOut)
	}
}

// TestQuotaChanges doubles the quota while the second pipeline waits: in both replays it starts then.
func TestQuotaChanges(t *testing.T) {
	day := &kueueday.Day{Begin: begin, GPUs: 4, Jobs: []kueueday.Job{pipeline("a", 0), pipeline("b", time.Minute)}}
	r := shadow.NewRecorder(day.Begin, day.Queues(), 0)
	for _, w := range day.Writes() {
		r.Observe(w.Object, w.At)
	}
	day.GPUs = 8
	r.Observe(day.Queues().ClusterQueues[0], begin.Add(5*time.Minute))
	got := report(t, r, end(day))
	for _, d := range got.Differences {
		if d.Name == "b" && d.StartedWhole.Sub(begin) != 5*time.Minute {
			t.Errorf("as a whole, b starts after %s", d.StartedWhole.Sub(begin))
		}
	}
	if want := (shadow.Comparison{Compared: 2, Earlier: 1, EarlierSeconds: 4 * 60, MostSeconds: 4 * 60}); got.Starts != want {
		t.Errorf("starts %+v, want %+v", got.Starts, want)
	}
}

// TestRestarts replays a JobSet whose Job fails after 5 minutes, and succeeds 10 minutes after the restart: it ends after 15 minutes.
func TestRestarts(t *testing.T) {
	day := &kueueday.Day{Begin: begin, GPUs: 4, Jobs: []kueueday.Job{{Name: "a", Stages: []kueueday.Stage{{Name: "main", Pods: 2, Run: 10 * time.Minute}}}}}
	r := shadow.NewRecorder(day.Begin, day.Queues(), 0)
	for _, w := range day.Writes() {
		switch o := w.Object.(type) {
		case *jobsetapi.JobSet:
			o.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 3}
			for i := range o.Status.Conditions {
				w.At = begin.Add(15 * time.Minute)
				o.Status.Conditions[i].LastTransitionTime = metav1.NewTime(w.At)
			}
		case *kueue.Workload:
			for i := range o.Status.Conditions {
				if c := &o.Status.Conditions[i]; c.Type == kueue.WorkloadFinished {
					w.At = begin.Add(15 * time.Minute)
					c.LastTransitionTime = metav1.NewTime(w.At)
				}
			}
		case *batchv1.Job:
			failed := o.DeepCopy()
			if failed.Status.CompletionTime != nil {
				failed.Status.CompletionTime, failed.Status.Succeeded = nil, 0
				failed.Status.Conditions[0] = batchv1.JobCondition{
					Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(begin.Add(5 * time.Minute)),
				}
			}
			r.Observe(failed, w.At)
			o.UID, o.Labels = "second", maps.Clone(o.Labels)
			o.Labels[constants.RestartsKey] = "1"
			o.Status.StartTime = new(metav1.NewTime(begin.Add(5 * time.Minute)))
			if o.Status.CompletionTime != nil {
				w.At = begin.Add(15 * time.Minute)
				o.Status.CompletionTime = new(metav1.NewTime(w.At))
			}
		}
		r.Observe(w.Object, w.At)
	}
	draft := r.Prepare(begin.Add(time.Hour), nil)
	got, err := draft.Report()
	if err != nil {
		t.Fatal(err)
	}
	x := got.Resources[0]
	if x.Held != 2*15*60 || x.HeldWhole != x.Held || x.HeldStaged != x.Held || got.JobSets.Finished != 1 {
		t.Errorf("%+v, %+v", x, got.JobSets)
	}
}

// BenchmarkReport replays 1,000 JobSets twice.
func BenchmarkReport(b *testing.B) {
	day := &kueueday.Day{Begin: begin, GPUs: 400}
	for i := range 1000 {
		day.Jobs = append(day.Jobs, pipeline(fmt.Sprintf("p%05d", i), time.Duration(i)*20*time.Second))
	}
	r := shadow.NewRecorder(day.Begin, day.Queues(), 0)
	for _, w := range day.Writes() {
		r.Observe(w.Object, w.At)
	}
	for b.Loop() {
		report(b, r, end(day))
	}
}

func randomDay(t *rapid.T) *kueueday.Day {
	day := &kueueday.Day{Begin: begin, GPUs: rapid.IntRange(4, 12).Draw(t, "GPUs")}
	for i := range rapid.IntRange(1, 8).Draw(t, "jobs") {
		// Jobs that arrive in the same second are admitted in the order of their UIDs.
		job := kueueday.Job{Name: fmt.Sprintf("j%02d", i), At: time.Duration(i*7+rapid.IntRange(0, 6).Draw(t, "at")) * time.Second}
		for k := range rapid.IntRange(1, 3).Draw(t, "stages") {
			run := rapid.IntRange(2, 40).Draw(t, "run")
			job.Stages = append(job.Stages, kueueday.Stage{
				Name: fmt.Sprintf("s%d", k), Pods: rapid.IntRange(1, 5).Draw(t, "pods"), Run: time.Duration(run) * time.Second,
				Ready: time.Duration(rapid.IntRange(0, run-1).Draw(t, "ready")) * time.Second, AfterReady: rapid.Bool().Draw(t, "after ready"),
			})
		}
		day.Jobs = append(day.Jobs, job)
	}
	return day
}
