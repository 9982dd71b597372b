package account_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/test/bench/e2e/account"
)

// at is so many seconds after the beginning.
func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// two JobSets: a holds 8 from 2 to 12 and uses them from 3 to 11; b waits twice, with 2 held in between.
func two() *account.Book {
	var b account.Book
	b.See(at(1), "a", account.State{Waits: true})
	b.See(at(2), "a", account.State{Held: 8, Admitted: true})
	b.See(at(2), "b", account.State{Waits: true})
	b.See(at(3), "a", account.State{Held: 8, Used: 8, Admitted: true})
	b.See(at(4), "b", account.State{Held: 2, Used: 2, Admitted: true})
	b.See(at(6), "b", account.State{Waits: true})
	b.See(at(11), "a", account.State{Held: 8, Admitted: true, Finished: true})
	b.See(at(12), "a", account.State{Finished: true, Admitted: true})
	b.See(at(12), "b", account.State{Held: 4, Used: 6, Admitted: true})
	b.See(at(13.5), "b", account.State{Admitted: true, Finished: true})
	return &b
}

func TestRun(t *testing.T) {
	want := &account.Run{
		JobSets: []account.JobSet{
			{Name: "a", Submitted: 1, Admitted: 2, Finished: 11, Waited: 1, Held: 80, Idle: 16},
			{Name: "b", Submitted: 2, Admitted: 4, Finished: 13.5, Waited: 8, Held: 10},
		},
		Curve: []account.Step{
			{At: 1},
			{At: 2, Held: 8},
			{At: 3, Held: 8, Used: 8},
			{At: 4, Held: 10, Used: 10},
			{At: 6, Held: 8, Used: 8},
			{At: 11, Held: 8},
			{At: 12, Held: 4, Used: 6},
			{At: 13.5},
		},
	}
	if diff := cmp.Diff(want, two().Run()); diff != "" {
		t.Errorf("Run(): -want +got\n%s", diff)
	}
}

func TestFigures(t *testing.T) {
	want := account.Figures{
		Makespan:   at(12.5),
		Wait:       account.Spread{Mean: at(1.5), P95: at(2)},
		Waited:     account.Spread{Mean: at(4.5), P95: at(8)},
		Turnaround: account.Spread{Mean: at(10.75), P95: at(11.5)},
		Held:       90, Idle: 16,
	}
	if diff := cmp.Diff(want, two().Run().Figures()); diff != "" {
		t.Errorf("Figures(): -want +got\n%s", diff)
	}
	if diff := cmp.Diff(account.Figures{}, new(account.Run).Figures()); diff != "" {
		t.Errorf("Figures() of nothing: -want +got\n%s", diff)
	}
}

// What comes out of order counts from the latest time, and what was admitted again keeps its first time.
func TestLateAndAgain(t *testing.T) {
	var b account.Book
	b.See(at(5), "a", account.State{Held: 1, Admitted: true})
	b.See(at(3), "a", account.State{Held: 2})
	b.See(at(7), "a", account.State{Held: 2, Admitted: true})
	b.See(at(8), "a", account.State{Admitted: true, Finished: true})
	want := []account.JobSet{{Name: "a", Submitted: 5, Admitted: 5, Finished: 8, Held: 6, Idle: 6}}
	if diff := cmp.Diff(want, b.Run().JobSets); diff != "" {
		t.Errorf("JobSets: -want +got\n%s", diff)
	}
}

// The area below the curve is what all JobSets together have held.
func TestCurveIsTheSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b account.Book
		now := 0
		for range rapid.IntRange(1, 40).Draw(t, "observations") {
			now += rapid.IntRange(0, 3000).Draw(t, "milliseconds")
			held := rapid.Int64Range(0, 16).Draw(t, "held")
			state := account.State{Held: held, Used: rapid.Int64Range(0, held).Draw(t, "used")}
			b.See(time.Duration(now)*time.Millisecond, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "jobSet"), state)
		}
		for _, name := range []string{"a", "b", "c"} {
			b.See(time.Duration(now)*time.Millisecond, name, account.State{})
		}
		r := b.Run()
		var held, idle float64
		for i, step := range r.Curve[:len(r.Curve)-1] {
			seconds := r.Curve[i+1].At - step.At
			held += float64(step.Held) * seconds
			idle += float64(step.Held-step.Used) * seconds
		}
		f := r.Figures()
		if math.Abs(held-f.Held) > 0.01 || math.Abs(idle-f.Idle) > 0.01 {
			t.Errorf("below the curve %.3f held and %.3f idle, in the figures %.3f and %.3f", held, idle, f.Held, f.Idle)
		}
	})
}
