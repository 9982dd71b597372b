package testenv

import (
	"errors"
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
