// Package leader keeps a manager that no longer holds the Lease from writing.
//
// Leader election alone does not: a process that was stopped for longer than the Lease lasts (SIGSTOP, a suspended machine, a node under
// memory pressure) continues where it was, and client-go notices that another replica leads only after a further renewDeadline. Object
// versions protect each single object, but not the sum of quota over many objects. So the last renewal is checked where bytes leave the
// process: at every write to a connection with the API server.
package leader

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second
)

// A Fence cuts a manager off from the API server while it cannot be sure that it leads. Until the manager has led, the Fence is open:
// standby replicas read. It is safe for concurrent use.
type Fence struct {
	// term is how long a renewal counts.
	term time.Duration
	now  func() instant

	mu sync.Mutex
	// hasLed is true once the manager has held the Lease, and renewed is when the request of the last renewal began.
	hasLed  bool
	renewed instant

	// lose closes the Fence for good, with the reason why the manager will never lead again. gone is closed then, and lost returns the reason.
	lose context.CancelCauseFunc
	gone <-chan struct{}
	lost func() error
}

// An instant is a reading of two clocks. The monotonic clock stops while the machine is suspended, and the wall clock may be set back: each
// compensates for the other.
type instant struct {
	monotonic time.Duration
	wall      time.Time
}

// since returns the longer of the times that have passed on the two clocks.
func (i instant) since(earlier instant) time.Duration {
	return max(i.monotonic-earlier.monotonic, i.wall.Sub(earlier.wall))
}

// newClock returns a clock whose monotonic readings begin at 0.
func newClock() func() instant {
	start := time.Now()
	return func() instant {
		now := time.Now()
		return instant{monotonic: now.Sub(start), wall: now.Round(0)}
	}
}

// newFence returns a Fence that is open.
func newFence(term time.Duration, now func() instant) *Fence {
	leads, lose := context.WithCancelCause(context.Background())
	return &Fence{term: term, now: now, lose: lose, gone: leads.Done(), lost: func() error { return context.Cause(leads) }}
}

// Guard makes all connections for config pass the Fence. Call it before any client is created from config, and use another config for the
// Lease itself.
func (f *Fence) Guard(config *rest.Config) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		inner, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: inner, fence: f}, nil
	}
}

// Start waits until the context ends, or until the manager has lost the Lease for good, which is an error: the process must end.
func (f *Fence) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-f.gone:
		return f.lost()
	}
}

// NeedLeaderElection returns false: Start runs from the beginning.
func (f *Fence) NeedLeaderElection() bool { return false }

// check returns an error while nothing may be written.
func (f *Fence) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.lost(); err != nil || !f.hasLed {
		return err
	}
	if passed := f.now().since(f.renewed); passed >= f.term {
		return fmt.Errorf("the Lease was renewed %s ago, and a renewal counts for %s: not writing", passed, f.term)
	}
	return nil
}

// renew opens the Fence for a term from the time at which the renewal request began.
func (f *Fence) renew(began instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hasLed, f.renewed = true, began
}

// observe closes the Fence if the manager has led and the Lease has another holder.
func (f *Fence) observe(holder, identity string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hasLed && holder != identity {
		f.lose(fmt.Errorf("the Lease is held by %q: this replica no longer leads", holder))
	}
}

// A conn checks the Fence at every write. A failed check closes the connection, since a part of a request may have been sent.
type conn struct {
	net.Conn
	fence *Fence
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.fence.check(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
