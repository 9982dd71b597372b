package timeline_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/simulator/internal/timeline"
)

func TestClock(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0m", time.Minute: "1m", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Hour: "1h", 100 * time.Minute: "1h40m",
		20 * time.Second: "20s", time.Hour + 30*time.Second: "1h0m30s", 500 * time.Millisecond: "500ms",
	} {
		if got := timeline.Clock(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}

func TestEventQueue(t *testing.T) {
	var e timeline.EventQueue
	var got []int
	for i, at := range []time.Duration{2, 1, 2, 0} {
		e.Add(at, func() { got = append(got, i) })
	}
	for f := e.Due(1); f != nil; f = e.Due(1) {
		f()
	}
	if diff := cmp.Diff([]int{3, 1}, got); diff != "" {
		t.Errorf("by 1: -want +got\n%s", diff)
	}
	for f := e.Due(2); f != nil; f = e.Due(2) {
		f()
	}
	if diff := cmp.Diff([]int{3, 1, 0, 2}, got); diff != "" {
		t.Errorf("by 2: -want +got\n%s", diff)
	}
}
