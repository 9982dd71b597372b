package access

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

const (
	// pause is how much longer than its last answer has taken a user gets no other: answers to one user take at most a quarter of the time.
	pause = 3
	// maxStreams is the number of streams of events of one user: one for each page that is open.
	maxStreams = 20
)

// A pace limits what the requests of one user cost, however many there are.
type pace struct {
	clock clock.Clock
	// turn has the time from which the next answer may be computed.
	turn    chan time.Time
	streams chan struct{}
}

func newPace(c clock.Clock) pace {
	p := pace{clock: c, turn: make(chan time.Time, 1), streams: make(chan struct{}, maxStreams)}
	p.turn <- time.Time{}
	return p
}

// Turn waits until the next answer to the user may be computed. The caller must call done with the time that the answer has taken.
func (s *Session) Turn(ctx context.Context) (done func(took time.Duration), err error) {
	p := &s.user.pace
	var from time.Time
	select {
	case from = <-p.turn:
	case <-ctx.Done():
		return nil, errBusy()
	}
	if wait := from.Sub(p.clock.Now()); wait > 0 {
		select {
		case <-p.clock.After(wait):
		case <-ctx.Done():
			p.turn <- from
			return nil, errBusy()
		}
	}
	return func(took time.Duration) { p.turn <- p.clock.Now().Add(pause * took) }, nil
}

func errBusy() error {
	return apierrors.NewTooManyRequests("other requests of the same user are being answered; retry", 1)
}

// Stream counts a stream of events of the user. The caller must call done when it ends.
func (s *Session) Stream() (done func(), err error) {
	select {
	case s.user.streams <- struct{}{}:
		return func() { <-s.user.streams }, nil
	default:
		return nil, apierrors.NewTooManyRequests("too many pages of the same user are open; close one", 1)
	}
}
