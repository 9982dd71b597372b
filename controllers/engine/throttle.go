package engine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tranche-dev/tranche/admission"
)

const (
	// answerTime limits how long a request waits for the engine.
	answerTime = 5 * time.Second
	// pause is how much longer than the last answer has taken the engine gets no requests: requests never take more than a tenth of its
	// time, however many there are.
	pause = 9
)

// A Viewer answers requests on the goroutine of the engine, as a Runner does.
type Viewer interface {
	View(ctx context.Context, f func(*admission.Engine)) error
}

// A Throttle passes one request at a time to the engine. All servers share one, so that requests never take more than a tenth of its time.
type Throttle struct {
	engine Viewer
	// turn has the time from which the next request may be passed.
	turn chan time.Time
}

// NewThrottle returns a Throttle.
func NewThrottle(e Viewer) *Throttle {
	a := &Throttle{engine: e, turn: make(chan time.Time, 1)}
	a.turn <- time.Time{}
	return a
}

// Ask runs f on the engine. If it returns an error, f may still run later, so the caller must not read what f writes.
func (a *Throttle) Ask(ctx context.Context, f func(*admission.Engine)) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var next time.Time
	select {
	case next = <-a.turn:
	case <-ctx.Done():
		return busy(ctx)
	}
	defer func() { a.turn <- next }()
	select {
	case <-time.After(time.Until(next)):
	case <-ctx.Done():
		return busy(ctx)
	}
	var took time.Duration
	err := a.engine.View(ctx, func(e *admission.Engine) {
		if ctx.Err() != nil {
			return
		}
		started := time.Now()
		f(e)
		took = time.Since(started)
	})
	if err != nil {
		return busy(ctx)
	}
	next = time.Now().Add(pause * took)
	return nil
}

func busy(ctx context.Context) error {
	const tryAgainSeconds = 1
	return apierrors.NewTimeoutError(fmt.Sprintf("the admission engine did not respond in time, retry: %v", ctx.Err()), tryAgainSeconds)
}
