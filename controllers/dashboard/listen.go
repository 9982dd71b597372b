package dashboard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"

	"github.com/tranche-dev/tranche/controllers/webserver"
)

// Limits of connections and requests.
const (
	maxConnections = 500
	// maxQuiet is how many connections without a request one address may have: those of all browsers behind a proxy.
	maxQuiet   = 100
	maxHeader  = 32 << 10
	headerTime = 10 * time.Second
	bodyTime   = 10 * time.Second
	// writeTime is how long a client may take to receive a whole answer. Answers and events of streams have their own, shorter limits.
	writeTime = 40 * time.Second
	idleTime  = time.Minute
	stopTime  = 2 * time.Second
)

// A listener serves the dashboard over TLS.
type listener struct {
	address string
	secure  *tls.Config
	log     logr.Logger
	handler http.Handler
}

// NeedLeaderElection returns false: every replica answers.
func (l *listener) NeedLeaderElection() bool { return false }

// Start serves until the context is done.
func (l *listener) Start(ctx context.Context) error {
	var config net.ListenConfig
	plain, err := config.Listen(ctx, "tcp", l.address)
	if err != nil {
		return fmt.Errorf("dashboard.bindAddress: %w", err)
	}
	l.log.Info("Serving the dashboard", "address", plain.Addr().String())
	return l.serve(ctx, plain, l.secure)
}

// serve serves a listener, over TLS if there is a configuration for it.
func (l *listener) serve(ctx context.Context, on net.Listener, secure *tls.Config) error {
	s := &http.Server{
		Handler: l.survivePanics(limitBody(l.handler)), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		WriteTimeout: writeTime,                                         // and no ReadTimeout, which would end streams of events
		BaseContext:  func(net.Listener) context.Context { return ctx }, // streams of events end with it
		ErrorLog:     webserver.ErrorLog(l.log),
	}
	on = webserver.Guard(s, on, webserver.Limits{Total: maxConnections, Quiet: maxQuiet})
	if secure != nil {
		on = tls.NewListener(on, secure)
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(on) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the dashboard: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := s.Shutdown(ending); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return s.Close()
}

// survivePanics answers requests whose handler panics, and reports the panic: net/http would survive it, too, and report it in the detailed log.
func (l *listener) survivePanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if cause := recover(); cause != nil {
				l.log.Error(fmt.Errorf("panic: %v", cause), "Answering a request for the dashboard", "path", r.URL.Path, "stack", string(debug.Stack()))
				http.Error(w, "the manager could not answer; its log has the reason", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// limitBody limits how long a client may take to send the body that it has announced: before net/http writes an answer it reads what the handler
// has left of the body. A handler may set another limit.
func limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // servers of tests may have none
		}
		next.ServeHTTP(w, r)
	})
}
