package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tranche-dev/tranche/admission"
)

// A slowEngine takes some time for each answer.
type slowEngine struct {
	time time.Duration
	asks int
}

func (e *slowEngine) View(ctx context.Context, f func(*admission.Engine)) error {
	e.asks++
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(e.time):
	}
	f(nil)
	return nil
}

// TestRequestsTakeATenthOfTheTime: many requests, each of which takes 10 ms of the engine's goroutine, get a tenth of its time.
func TestRequestsTakeATenthOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &slowEngine{}
		a := NewThrottle(e)
		started := time.Now()
		for range 10 {
			if err := a.Ask(t.Context(), func(*admission.Engine) { time.Sleep(10 * time.Millisecond) }); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(started); took != 9*100*time.Millisecond+10*time.Millisecond {
			t.Errorf("10 questions took %s", took)
		}
	})
}

// TestWaitsEndWithTheRequest: an engine that does not answer blocks neither the current request nor those behind it.
func TestWaitsEndWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &slowEngine{time: time.Hour}
		a := NewThrottle(e)
		results := make(chan error, 3)
		for range cap(results) {
			go func() {
				results <- a.Ask(t.Context(), func(*admission.Engine) { t.Error("answered") })
			}()
		}
		started := time.Now()
		for range cap(results) {
			if err := <-results; !apierrors.IsTimeout(err) {
				t.Errorf("got %v, want a timeout", err)
			}
		}
		if took := time.Since(started); took != answerTime {
			t.Errorf("took %s", took)
		}
		e.time = 0
		if err := a.Ask(t.Context(), func(*admission.Engine) {}); err != nil {
			t.Errorf("an engine that has come back: %v", err)
		}
	})
}
