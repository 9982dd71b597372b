package leader

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	term        = 10 * time.Second
	retryPeriod = 2 * time.Second
	me          = "replica-a"
	other       = "replica-b"
)

// A lockStub is a Lease with one record.
type lockStub struct {
	resourcelock.Interface
	record resourcelock.LeaderElectionRecord
	err    error
	onCall func()
	// reads and writes count the requests.
	reads, writes int
}

func (s *lockStub) Identity() string { return me }

func (s *lockStub) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	s.reads++
	record := s.record
	return &record, nil, s.err
}

func (s *lockStub) Create(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	return s.Update(context.Background(), r)
}

func (s *lockStub) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	s.writes++
	if s.onCall != nil {
		s.onCall()
	}
	if s.err == nil {
		s.record = r
	}
	return s.err
}

type world struct {
	t     *testing.T
	lock  *lockStub
	lease *Lease
	now   instant
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, lock: &lockStub{}, now: newClock()()}
	w.lease = newLease(w.lock, newFence(term, func() instant { return w.now }), retryPeriod)
	return w
}

// pass advances both clocks.
func (w *world) pass(d time.Duration) {
	w.now.monotonic += d
	w.now.wall = w.now.wall.Add(d)
}

func (w *world) hold() {
	w.t.Helper()
	if err := w.lease.Update(w.t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: me}); err != nil {
		w.t.Fatal(err)
	}
}

// writes returns the result of a write to a guarded connection.
func (w *world) writes() error {
	w.t.Helper()
	near, far := net.Pipe()
	defer near.Close() //nolint:errcheck // a pipe
	defer far.Close()  //nolint:errcheck // a pipe
	go func() { _, _ = far.Read(make([]byte, 1)) }()
	_, err := (&conn{Conn: near, fence: w.lease.Fence}).Write([]byte("x"))
	return err
}

func TestFence(t *testing.T) {
	for name, test := range map[string]struct {
		act  func(*world)
		open bool
	}{
		"a replica that has never led may ask":      {act: func(*world) {}, open: true},
		"a leader writes until its renewal expires": {act: func(w *world) { w.hold(); w.pass(term - 1) }, open: true},
		"and not later": {act: func(w *world) { w.hold(); w.pass(term) }},
		"a renewal counts from when it was asked for": {act: func(w *world) {
			w.lock.onCall = func() { w.pass(term / 2) }
			w.hold()
			w.pass(term / 2)
		}},
		"a renewal that may have failed does not count": {act: func(w *world) {
			w.hold()
			w.pass(term / 2)
			w.lock.err = errors.New("timeout")
			_ = w.lease.Update(w.t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: me})
			w.pass(term / 2)
		}},
		"a renewal after the expiry opens it again, since the Lease had no other holder": {act: func(w *world) {
			w.hold()
			w.pass(10 * term)
			w.hold()
		}, open: true},
		"a machine that was suspended has only its wall clock to tell": {act: func(w *world) {
			w.hold()
			w.now.wall = w.now.wall.Add(term)
		}},
		"a wall clock that is set back does not help": {act: func(w *world) {
			w.hold()
			w.pass(term)
			w.now.wall = w.now.wall.Add(-term)
		}},
		"another holder is the end": {act: func(w *world) {
			w.hold()
			w.lock.record.HolderIdentity = other
			_, _, _ = w.lease.Get(w.t.Context())
		}},
		"even if the Lease is free again": {act: func(w *world) {
			w.hold()
			w.lock.record.HolderIdentity = ""
			_, _, _ = w.lease.Get(w.t.Context())
		}},
		"a replica that stands by sees the leader": {act: func(w *world) {
			w.lock.record.HolderIdentity = other
			_, _, _ = w.lease.Get(w.t.Context())
		}, open: true},
		"nothing is written after the release": {act: func(w *world) {
			w.hold()
			if err := w.lease.Update(w.t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
				w.t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.act(w)
			if err := w.writes(); (err == nil) != test.open {
				t.Errorf("a write returns %v; want the fence open: %t", err, test.open)
			}
		})
	}
}

// TestLeaseIsNotTakenBack covers the release of a leader that was replaced: client-go writes it with the version that it has just read.
func TestLeaseIsNotTakenBack(t *testing.T) {
	w := newWorld(t)
	w.hold()
	w.lock.record.HolderIdentity = other
	if _, _, err := w.lease.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.lease.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err == nil {
		t.Error("the release of a Lease that another replica holds was written")
	}
	if got := w.lock.record.HolderIdentity; got != other {
		t.Errorf("the Lease is held by %q", got)
	}
	if err := w.lease.Fence.Start(t.Context()); err == nil {
		t.Error("the process keeps running although another replica leads")
	}
}
