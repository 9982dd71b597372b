package checkpoint_test

import (
	"testing"
	"time"

	"github.com/tranche-dev/tranche/admission/checkpoint"
	"github.com/tranche-dev/tranche/apis"
)

func TestCheckpoint(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		value, remark string
		want          time.Time
	}{
		"none":       {},
		"no time":    {value: "today"},
		"past":       {value: "2026-01-02T15:00:00Z", want: now.Add(-4*time.Minute - 5*time.Second)},
		"elsewhere":  {value: "2026-01-02T16:04:05+01:00", want: now},
		"a bit late": {value: "2026-01-02T15:05:05Z", want: now.Add(time.Minute)},
		"future": {
			value: "2026-01-02T16:04:05Z", want: now.Add(time.Hour),
			remark: "metadata.annotations[tranche.dev/checkpointed-at]: 2026-01-02T16:04:05Z is in the future, and has no effect until then; write the time at which the work was saved",
		},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{apis.CheckpointedAtAnnotation: tc.value}
			if got := checkpoint.Of(annotations); !got.Equal(tc.want) {
				t.Errorf("at %s, want %s", got, tc.want)
			}
			if got := checkpoint.Remark(annotations, now); got != tc.remark {
				t.Errorf("says %q, want %q", got, tc.remark)
			}
		})
	}
}
