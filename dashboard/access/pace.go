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
	// answers are computed from the Model, and reads are what the API server is asked for.
	answers, reads turns
	streams        chan struct{}
}

func newPace(c clock.Clock) pace {
	return pace{answers: newTurns(c), reads: newTurns(c), streams: make(chan struct{}, maxStreams)}
}

// turns are those in which the requests of one user are answered.
type turns struct {
	clock clock.Clock
	// next has the time from which the next answer may be computed.
	next chan time.Time
}

func newTurns(c clock.Clock) turns {
	t := turns{clock: c, next: make(chan time.Time, 1)}
	t.next <- time.Time{}
	return t
}

// wait waits for the next turn. The caller must call done with the time that the answer has taken.
func (t *turns) wait(ctx context.Context) (done func(took time.Duration), err error) {
	var from time.Time
	select {
	case from = <-t.next:
	case <-ctx.Done():
		return nil, errBusy()
	}
	if wait := from.Sub(t.clock.Now()); wait > 0 {
		select {
		case <-t.clock.After(wait):
		case <-ctx.Done():
			t.next <- from
			return nil, errBusy()
		}
	}
	return func(took time.Duration) { t.next <- t.clock.Now().Add(pause * took) }, nil
}

// Turn waits until the next answer to the user may be computed. The caller must call done with the time that the answer has taken.
func (s *Session) Turn(ctx context.Context) (done func(took time.Duration), err error) {
	return s.user.answers.wait(ctx)
}

// ReadTurn is Turn for an answer that is read from the API server. Other answers do not wait for it.
func (s *Session) ReadTurn(ctx context.Context) (done func(took time.Duration), err error) {
	return s.user.reads.wait(ctx)
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
