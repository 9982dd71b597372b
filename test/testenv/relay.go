package testenv

import (
	"errors"
	"strings"
	"sync"
)

// A Relay is two managers: the first is killed when it has written so often, and the other one takes over at once.
type Relay struct {
	mu     sync.Mutex
	runs   *Manager
	struck bool
	err    error
}

// StartRelay starts a manager whose writes go through the proxy, to be killed after the n-th of them. It does not wait until it is ready.
func (w *World) StartRelay(proxy *Proxy, n int, options ManagerOptions) (*Relay, error) {
	direct := options
	options.Server = proxy.URL()
	first, err := w.LaunchManager(options)
	if err != nil {
		return nil, err
	}
	r := &Relay{runs: first}
	proxy.AfterWrite(func(done int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if done != n || r.struck {
			return
		}
		r.struck, r.err = true, first.Kill()
		if r.err == nil {
			r.runs, r.err = w.LaunchManager(direct)
		}
	})
	return r, nil
}

// Stop ends the manager that runs, and reports whether the first one was killed.
func (r *Relay) Stop() (struck bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs != nil {
		err = r.runs.Stop()
	}
	return r.struck, errors.Join(r.err, err)
}

// ShortLived are managers of which each is killed after its first write, and the next one takes over at once. The timeline of a JobSet, which has the time until
// which a hold was counted, is no such write: each manager would write it again, and get no further.
type ShortLived struct {
	mu      sync.Mutex
	runs    *Manager
	ended   bool
	killed  int
	lastErr error
}

// StartShortLived starts the first of such managers, whose writes go through the proxy. It does not wait until it is ready.
func (w *World) StartShortLived(proxy *Proxy, options ManagerOptions) (*ShortLived, error) {
	options.Server = proxy.URL()
	first, err := w.LaunchManager(options)
	if err != nil {
		return nil, err
	}
	s := &ShortLived{runs: first}
	proxy.AfterWrite(func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if writes := proxy.Writes(); s.ended || s.lastErr != nil || n > len(writes) || strings.HasSuffix(writes[n-1], ofTimes) {
			return
		}
		s.killed++
		if s.lastErr = s.runs.Kill(); s.lastErr == nil {
			s.runs, s.lastErr = w.LaunchManager(options)
		}
	})
	return s, nil
}

// Spare lets the manager that runs live on, and returns how many were killed.
func (s *ShortLived) Spare() (killed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.killed, s.lastErr
}

// Stop ends the manager that runs, and returns how many were killed.
func (s *ShortLived) Stop() (killed int, err error) {
	killed, err = s.Spare()
	return killed, errors.Join(err, s.runs.Stop())
}
