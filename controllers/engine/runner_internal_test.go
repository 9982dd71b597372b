package engine

import (
	"testing"

	"github.com/tranche-dev/tranche/admission"
)

// Quota Workloads that hold quota may be unknown before all sources have delivered their objects: until then nothing may rely on the counts of the engine.
func TestIsComplete(t *testing.T) {
	e, err := admission.New(admission.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{config: Config{Engine: e}, wake: make(chan struct{}, 1), complete: make(chan struct{})}
	ready := make(chan struct{})
	wants := func(want bool) {
		t.Helper()
		isViewed := false
		r.post(func(*admission.Engine) {
			isViewed = true
			if r.IsComplete() != want {
				t.Errorf("IsComplete is %t, want %t", !want, want)
			}
		})
		r.turn(ready)
		if !isViewed {
			t.Error("the engine has not been viewed")
		}
	}
	wants(false)
	close(ready)
	wants(false) // it may have been posted before the last observations
	wants(true)
}
