package workloadstatus

import (
	"testing"
	"time"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

func TestBackoff(t *testing.T) {
	strategy := &configapi.RequeuingStrategy{BackoffBaseSeconds: new(int32(60)), BackoffMaxSeconds: new(int32(3600))}
	for count, want := range map[int32]time.Duration{
		1: time.Minute, 2: 2 * time.Minute, 6: 32 * time.Minute, 7: time.Hour, 1 << 30: time.Hour,
	} {
		if got := Backoff(strategy, count); got != want {
			t.Errorf("Backoff(%d) = %s, want %s", count, got, want)
		}
	}
	strategy.BackoffBaseSeconds = new(int32(0))
	if got := Backoff(strategy, 1<<30); got != 0 {
		t.Errorf("Backoff from 0 = %s, want 0", got)
	}
}
