package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tranche-dev/tranche/dashboard/access"
)

const (
	// updateInterval is the shortest time between two events of a stream, and keepAlive the longest.
	updateInterval = time.Second
	keepAlive      = 15 * time.Second
	// learnInterval is the shortest time between two events of which the second only reports that more rights may be known.
	learnInterval = 5 * time.Second
	// checkInterval is how often the token of a stream is checked, and maxUnchecked how long a stream lasts if the API server does not answer.
	checkInterval = 10 * time.Second
	maxUnchecked  = time.Minute
	// writeTime is how long a client may take to receive an event or an answer.
	writeTime = 20 * time.Second
)

// events sends the version of the Model when it has changed, at most once a second.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	session, err := s.session(r.Context(), r)
	if err != nil {
		s.writeError(w, err)
		return
	}
	if session != nil {
		done, err := session.Stream()
		if err != nil {
			s.writeError(w, err)
			return
		}
		defer done()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must pass events on at once
	e := &stream{server: s, request: r, session: session, checked: time.Now(), out: w}
	ticker := time.NewTicker(updateInterval)
	defer ticker.Stop()
	for e.next(r.Context()) == nil {
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

// A stream is a connection that gets events.
type stream struct {
	server  *server
	request *http.Request
	session *access.Session
	// checked is when the token was last accepted.
	checked time.Time
	out     http.ResponseWriter
	// last is what the last change was, changed when it was sent, and sent when anything was sent.
	last          change
	changed, sent time.Time
}

// A change is other if the page has to read its answers again.
type change struct{ version, unfinished uint64 }

// errEnded ends a stream.
var errEnded = errors.New("the stream has ended")

// next sends what has changed. It returns an error when the stream has ended.
func (e *stream) next(ctx context.Context) error {
	if now := time.Now(); e.session != nil && now.Sub(e.checked) >= checkInterval {
		session, err := e.server.session(ctx, e.request)
		switch {
		case err == nil:
			e.session, e.checked = session, now
		case apierrors.IsUnauthorized(err) || now.Sub(e.checked) >= maxUnchecked:
			_ = e.send("event: end\ndata: sign in again\n\n")
			return errEnded
		default:
			return e.keepAlive() // nothing is shown to a user who may have lost the right to see it
		}
	}
	current := change{version: e.server.Store.Version()}
	if e.session != nil {
		current.unfinished = e.session.Unfinished()
	}
	isOld := current.version == e.last.version && (current.unfinished == e.last.unfinished || time.Since(e.changed) < learnInterval)
	if !e.changed.IsZero() && isOld {
		return e.keepAlive()
	}
	e.last, e.changed = current, time.Now()
	return e.send(fmt.Sprintf("event: change\ndata: %d\n\n", current.version))
}

func (e *stream) keepAlive() error {
	if time.Since(e.sent) < keepAlive {
		return nil
	}
	return e.send(": no change\n\n")
}

func (e *stream) send(text string) error {
	e.sent = time.Now()
	out := http.NewResponseController(e.out)
	_ = out.SetWriteDeadline(e.sent.Add(writeTime)) // servers of tests may have none
	if _, err := fmt.Fprint(e.out, text); err != nil {
		return err
	}
	return out.Flush()
}
