package leader

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// client-go tries often, so that it notices at once when a Lease is renewed or ends. The API server gets as many renewals as without, and two reads in the
// time of one renewal.
func TestRequestsForTheLease(t *testing.T) {
	const tries = 8 * triesEach // in 8 retry periods
	get := func(w *world) { _, _, _ = w.lease.Get(w.t.Context()) }
	renew := func(w *world) {
		_ = w.lease.Update(w.t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: me})
	}
	timeout, conflict := errors.New("timeout"), apierrors.NewConflict(schema.GroupResource{}, "lease", nil)
	fails := func(err error) func(*world) {
		return func(w *world) {
			w.hold()
			w.lock.writes, w.lock.err = 0, err
			w.pass(retryPeriod)
		}
	}
	for name, c := range map[string]struct {
		before, try   func(*world)
		reads, writes int
	}{
		"a leader renews once in a retry period":           {func(*world) {}, renew, 0, 8},
		"also while the API server does not answer":        {fails(timeout), renew, 0, 8},
		"unless another client has changed the Lease":      {fails(conflict), renew, 0, tries},
		"a replica that stands by reads twice as often":    {func(w *world) { w.lock.record.HolderIdentity = other }, get, 16, 0},
		"also while it gets no answer":                     {func(w *world) { w.lock.err = timeout }, get, 16, 0},
		"it tries to take over as often as it would renew": {func(w *world) { w.lock.err = timeout }, renew, 0, 8},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.before(w)
			for range tries {
				c.try(w)
				w.pass((&Config{RetryPeriod: retryPeriod}).TryEvery())
			}
			if w.lock.reads != c.reads || w.lock.writes != c.writes {
				t.Errorf("%d reads and %d writes, want %d and %d", w.lock.reads, w.lock.writes, c.reads, c.writes)
			}
		})
	}
}

// Without a request, a try returns what the last one did: only that of a leader whose renewal has succeeded counts as a renewal.
func TestTriesWithoutRequest(t *testing.T) {
	w := newWorld(t)
	renew := func() error {
		return w.lease.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: me})
	}
	w.hold()
	timeout := errors.New("timeout")
	w.lock.err = timeout
	if err := renew(); err != nil {
		t.Errorf("right after a renewal: %v", err)
	}
	w.pass(retryPeriod)
	for range 2 {
		if err := renew(); !errors.Is(err, timeout) {
			t.Errorf("after a renewal that has failed: error %v, want %v", err, timeout)
		}
	}
	w.lock.err = nil
	if err := renew(); !errors.Is(err, timeout) {
		t.Errorf("before the next renewal: error %v, want %v", err, timeout)
	}
	w.pass(retryPeriod)
	w.hold()
	if err := w.lease.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil || w.lock.record.HolderIdentity != "" {
		t.Errorf("released right after a renewal: held by %q, error %v", w.lock.record.HolderIdentity, err)
	}
}

// A leader that is told to end while it reads the Lease releases it all the same: client-go reads it again before.
func TestLookThatIsGivenUp(t *testing.T) {
	w := newWorld(t)
	w.hold()
	w.pass(retryPeriod)
	ended, end := context.WithCancel(t.Context())
	end()
	w.lock.err = ended.Err()
	if _, _, err := w.lease.Get(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("read by a caller that has given up: error %v", err)
	}
	w.lock.err = nil
	if record, _, err := w.lease.Get(t.Context()); err != nil || record.HolderIdentity != me {
		t.Errorf("read for the release: %v, error %v", record, err)
	}
}

// What is read after a write is not older than that.
func TestLookAfterWrite(t *testing.T) {
	w := newWorld(t)
	w.lock.record.HolderIdentity = other
	for _, want := range []string{other, me} {
		record, _, err := w.lease.Get(t.Context())
		if err != nil || record.HolderIdentity != want {
			t.Errorf("held by %q, error %v, want %q", record.HolderIdentity, err, want)
		}
		w.hold()
	}
}
