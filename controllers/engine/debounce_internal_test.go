package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestDebouncer(t *testing.T) {
	for name, tc := range map[string]struct {
		// in seconds
		reports, want []int
	}{
		"one change is written after a while":            {reports: []int{0}, want: []int{1}},
		"all changes of that while make one write":       {reports: []int{0, 0, 0}, want: []int{1}},
		"continual changes are written less often":       {reports: []int{0, 2, 4, 6, 8, 10, 12, 14, 16}, want: []int{1, 3, 7, 12, 17}},
		"after a pause the delay is the first one again": {reports: []int{0, 2, 20}, want: []int{1, 3, 21}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got []int
				d := &debouncer{beats: map[types.NamespacedName]*beat{}, do: func(types.NamespacedName) { got = append(got, int(time.Since(began).Seconds())) }}
				for _, at := range tc.reports {
					time.Sleep(time.Duration(at)*time.Second - time.Since(began))
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
