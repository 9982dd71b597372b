package jobsetstatus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// clock returns a time of one day.
func clock(hour, minute int) time.Time { return time.Date(2026, 3, 4, hour, minute, 0, 0, time.UTC) }

func TestExpectedStartCondition(t *testing.T) {
	base := jobsetstatus.ExpectedStart{Stage: "train", Position: 3, ClusterQueue: "gpu", Computed: clock(14, 5)}
	const queued = `. Computed at 2026-03-04T14:05:00Z. Position 3 in ClusterQueue "gpu" (0 is next)`
	for name, c := range map[string]struct {
		change      func(e *jobsetstatus.ExpectedStart)
		wantStatus  metav1.ConditionStatus
		wantReason  string
		wantMessage string
	}{
		"by": {
			func(e *jobsetstatus.ExpectedStart) { e.Certainty, e.By = "By", clock(14, 32) },
			"True", "By", `Stage "train": expected to start by 2026-03-04T14:32:00Z` + queued,
		},
		"about and by": {
			func(e *jobsetstatus.ExpectedStart) {
				e.Certainty, e.By, e.About, e.Basis = "By", clock(14, 32), clock(14, 10), "from the last 40 runs of stage a of JobSet ns/b-*"
			},
			"True", "By", `Stage "train": expected to start about 2026-03-04T14:10:00Z, by 2026-03-04T14:32:00Z if all run to their limits` + queued +
				". Basis: from the last 40 runs of stage a of JobSet ns/b-*",
		},
		"about": {
			func(e *jobsetstatus.ExpectedStart) { e.Certainty, e.About = "About", clock(14, 10) },
			"True", "About", `Stage "train": expected to start about 2026-03-04T14:10:00Z` + queued,
		},
		"unknown": {
			func(e *jobsetstatus.ExpectedStart) {
				e.Certainty, e.Basis = "Unknown", "no maximum execution time: stage a of JobSet ns/b"
			},
			"Unknown", "Unknown", `Stage "train": start unknown` + queued + ". Basis: no maximum execution time: stage a of JobSet ns/b",
		},
		"in no queue": {
			func(e *jobsetstatus.ExpectedStart) {
				e.Certainty, e.Position, e.ClusterQueue, e.Basis = "NotPredicted", 0, "", "AdmissionChecks. Of others."
			},
			"Unknown", "NotPredicted", `Stage "train": start not predicted. Computed at 2026-03-04T14:05:00Z. Basis: AdmissionChecks. Of others.`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := base
			c.change(&want)
			js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			got := want.Condition(js)
			if got.Type != "StartExpected" || got.Status != c.wantStatus || got.Reason != c.wantReason || got.Message != c.wantMessage || got.ObservedGeneration != 3 {
				t.Errorf("condition = %+v\nwant %s %s\n%s", got, c.wantStatus, c.wantReason, c.wantMessage)
			}
			js.Status.Conditions = []metav1.Condition{got}
			if diff := cmp.Diff(&want, jobsetstatus.ExpectedStartOf(js)); diff != "" {
				t.Errorf("read again (-want +got):\n%s", diff)
			}
		})
	}
}

// Names and texts may contain anything; only the end of the basis may be missing.
func TestExpectedStartIsReadAgain(t *testing.T) {
	second := rapid.Custom(func(t *rapid.T) time.Time { return time.Unix(rapid.Int64Range(1, 4e9).Draw(t, "seconds"), 0).UTC() })
	rapid.Check(t, func(t *rapid.T) {
		want := &jobsetstatus.ExpectedStart{
			Stage: rapid.StringMatching(`([a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?)?`).Draw(t, "stage"), Computed: second.Draw(t, "computed"), Basis: rapid.StringN(0, -1, 1200).Draw(t, "basis"),
			Certainty: rapid.SampledFrom([]jobsetstatus.Certainty{"By", "About", "Unknown", "NotPredicted"}).Draw(t, "certainty"),
		}
		if want.Certainty == "By" {
			want.By = second.Draw(t, "by")
		}
		if want.Certainty == "About" || want.Certainty == "By" && rapid.Bool().Draw(t, "has both") {
			want.About = second.Draw(t, "about")
		}
		if rapid.Bool().Draw(t, "is queued") {
			want.Position, want.ClusterQueue = rapid.IntRange(0, 1e9).Draw(t, "position"), rapid.StringMatching(`[a-z0-9]([-.a-z0-9]{0,20}[a-z0-9])?`).Draw(t, "queue")
		}
		js := &jobsetapi.JobSet{}
		js.Status.Conditions = []metav1.Condition{want.Condition(js)}
		got := jobsetstatus.ExpectedStartOf(js)
		if got == nil || !strings.HasPrefix(want.Basis, got.Basis) || got.Basis != want.Basis && len(js.Status.Conditions[0].Message) < 1000 {
			t.Fatalf("%q is read as %+v", js.Status.Conditions[0].Message, got)
		}
		got.Basis = want.Basis
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", js.Status.Conditions[0].Message, diff)
		}
	})
}

// A user with the right to write the status may write anything.
func TestExpectedStartOfOthers(t *testing.T) {
	js := &jobsetapi.JobSet{}
	if got := jobsetstatus.ExpectedStartOf(js); got != nil {
		t.Errorf("without the condition: %+v", got)
	}
	const queued = `. Computed at 2026-03-04T14:05:00Z. Position 3 in ClusterQueue "gpu" (0 is next)`
	for _, c := range [][2]string{
		{"By", ""},
		{"By", "Stage"},
		{"By", `Stage "train`},
		{"By", `Stage "train": expected to start by soon` + queued},
		{"By", `Stage "train": expected to start about 2026-03-04T14:32:00Z, by 2026-03-04T14:32:00Z` + queued},
		{"By", `Stage "train": start unknown` + queued},
		{"Sure", `Stage "train": expected to start by 2026-03-04T14:32:00Z` + queued},
		{"Unknown", `Stage "train": expected to start by 2026-03-04T14:32:00Z` + queued},
		{"Unknown", `Stage "train": start unknown`},
		{"Unknown", `Stage "train": start unknown. Computed at 14:05`},
		{"Unknown", `Stage "train": start unknown` + strings.Replace(queued, "3 in", "-3 in", 1)},
		{"Unknown", `Stage "train": start unknown` + strings.Replace(queued, `"gpu"`, "gpu", 1)},
	} {
		js.Status.Conditions = []metav1.Condition{{Type: jobsetstatus.StartExpected, Reason: c[0], Message: c[1]}}
		if got := jobsetstatus.ExpectedStartOf(js); got != nil {
			t.Errorf("%s %q is read as %+v", c[0], c[1], got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		js.Status.Conditions[0].Reason = rapid.SampledFrom([]string{"By", "About", "Unknown", "NotPredicted"}).Draw(t, "reason")
		js.Status.Conditions[0].Message = rapid.String().Draw(t, "message")
		jobsetstatus.ExpectedStartOf(js) // does not panic
	})
}

// The condition exists only while the stage waits that the answer is about.
func TestWithExpectedStart(t *testing.T) {
	waits, admitted := workload(), workload(metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue})
	stages := func(first, second *kueue.Workload) jobsetstatus.Summary {
		return jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{{Name: "load", Workload: first}, {Index: 1, Name: "train", Workload: second}}}
	}
	suspended, over, failed := stages(waits, waits), stages(waits, waits), stages(waits, waits)
	suspended.Suspended, over.Over, failed.Failure = true, true, &jobsetstatus.Failure{}
	for name, c := range map[string]struct {
		summary jobsetstatus.Summary
		stage   string
		want    bool
	}{
		"the first waits":          {stages(waits, waits), "load", true},
		"the second waits, too":    {stages(waits, waits), "train", false},
		"the second waits":         {stages(admitted, waits), "train", true},
		"the first was admitted":   {stages(admitted, waits), "load", false},
		"both were admitted":       {stages(admitted, admitted), "train", false},
		"the user has suspended":   {suspended, "load", false},
		"the JobSet has succeeded": {over, "load", false},
		"the JobSet has failed":    {failed, "load", false},
		"no answer":                {stages(waits, waits), "", false},
	} {
		var e *jobsetstatus.ExpectedStart
		if c.stage != "" {
			e = &jobsetstatus.ExpectedStart{Stage: c.stage, Certainty: "Unknown"}
		}
		got := jobsetstatus.WithExpectedStart(&jobsetapi.JobSet{}, nil, c.summary, e)
		if (len(got) == 1 && got[0].Type == "StartExpected") != c.want {
			t.Errorf("%s: %v, want it: %t", name, got, c.want)
		}
	}
}

func TestExpectedStartDiffers(t *testing.T) {
	by := func(position int, start time.Time) *jobsetstatus.ExpectedStart {
		return &jobsetstatus.ExpectedStart{Stage: "train", Certainty: "By", By: start, Position: position, ClusterQueue: "gpu", Computed: clock(14, 0)}
	}
	about := func(basis string) *jobsetstatus.ExpectedStart {
		e := by(3, clock(16, 0))
		e.About, e.Basis = clock(15, 0), basis
		return e
	}
	unknown := func(basis string) *jobsetstatus.ExpectedStart {
		return &jobsetstatus.ExpectedStart{Stage: "train", Certainty: "Unknown", Basis: basis, Computed: clock(14, 0)}
	}
	next := by(3, clock(15, 40))
	next.Stage = "eval"
	for name, c := range map[string]struct {
		written, now *jobsetstatus.ExpectedStart
		want         bool
	}{
		"never written":              {nil, by(3, clock(15, 40)), true},
		"the same":                   {by(3, clock(15, 40)), by(3, clock(15, 40)), false},
		"10 % later":                 {by(3, clock(15, 40)), by(3, clock(15, 50)), false},
		"more than 10 % later":       {by(3, clock(15, 40)), by(3, clock(15, 51)), true},
		"10 % earlier":               {by(3, clock(15, 40)), by(3, clock(15, 30)), false},
		"more than 10 % earlier":     {by(3, clock(15, 40)), by(3, clock(15, 29)), true},
		"should have started by now": {by(3, clock(13, 50)), by(3, clock(14, 0)), true},
		"10 % further":               {by(20, clock(15, 40)), by(18, clock(15, 40)), false},
		"more than 10 % further":     {by(20, clock(15, 40)), by(17, clock(15, 40)), true},
		"another stage":              {by(3, clock(15, 40)), next, true},
		"no longer known":            {by(3, clock(15, 40)), unknown(""), true},
		"another holder":             {unknown("no maximum execution time: a"), unknown("no maximum execution time: b"), true},
		"the same holder":            {unknown("no maximum execution time: a"), unknown("no maximum execution time: a"), false},
		"one more run":               {about("from the last run of stage a of JobSet ns/b"), about("from the last 2 runs of stage a of JobSet ns/b"), false},
		"runs of another JobSet":     {about("from the last 2 runs of stage a of JobSet ns/b"), about("from the last 2 runs of stage a of JobSet ns/c"), true},
		"a first run":                {by(3, clock(16, 0)), about("from the last run of stage a of JobSet ns/b"), true},
		"left the queue":             {by(3, clock(15, 40)), by(0, clock(15, 40)), true},
	} {
		if got := c.now.Differs(c.written); got != c.want {
			t.Errorf("%s: differs = %t, want %t", name, got, c.want)
		}
	}
}
