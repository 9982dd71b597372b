package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestDebouncer(t *testing.T) {
	every := func(period, until float64) []float64 {
		var reports []float64
		for at := 0.0; at < until; at += period {
			reports = append(reports, at)
		}
		return reports
	}
	always := func(until float64) []float64 { return every(0.37, until) } // never when a tick is
	for name, tc := range map[string]struct {
		// in seconds
		reports []float64
		want    []int
	}{
		"one change is written after a while":            {reports: []float64{0}, want: []int{1}},
		"all changes of that while make one write":       {reports: []float64{0, 0, 0}, want: []int{1}},
		"continual changes are written less often":       {reports: always(70.1), want: []int{1, 3, 7, 15, 31, 61, 75}},
		"when they stop the last is written":             {reports: always(8.1), want: []int{1, 3, 7, 10}},
		"so are changes every few seconds":               {reports: every(2.37, 70.1), want: []int{1, 3, 6, 14, 30, 60, 74}},
		"rare changes are each written":                  {reports: []float64{0, 4.5, 9.5}, want: []int{1, 5, 10}},
		"after a pause the delay is the first one again": {reports: append(always(8.1), 30, 30.2), want: []int{1, 3, 7, 10, 31}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got []int
				d := &debouncer{beats: map[types.NamespacedName]*beat{}, do: func(types.NamespacedName) { got = append(got, int(time.Since(began).Seconds())) }}
				for _, at := range tc.reports {
					time.Sleep(time.Duration(at*float64(time.Second)) - time.Since(began))
					d.report(types.NamespacedName{Name: "q"})
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Error(diff)
				}
				if len(d.beats) > 0 {
					t.Errorf("%d keys are left", len(d.beats))
				}
			})
		})
	}
}
