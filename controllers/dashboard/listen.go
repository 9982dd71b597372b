package dashboard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// Limits of connections and requests.
const (
	maxConnections = 500
	maxHeader      = 32 << 10
	headerTime     = 10 * time.Second
	bodyTime       = 10 * time.Second
	// writeTime is how long a client may take to receive a whole answer. Answers and events of streams have their own, shorter limits.
	writeTime = 40 * time.Second
	idleTime  = time.Minute
	stopTime  = 2 * time.Second
)

// A listener serves the dashboard over TLS.
type listener struct {
	settings configapi.Dashboard
	log      logr.Logger
	handler  http.Handler
}

// NeedLeaderElection returns false: every replica answers.
func (l *listener) NeedLeaderElection() bool { return false }

// Start serves until the context is done.
func (l *listener) Start(ctx context.Context) error {
	certificate, err := l.certificate(ctx)
	if err != nil {
		return fmt.Errorf("dashboard.certDir: %w", err)
	}
	var config net.ListenConfig
	plain, err := config.Listen(ctx, "tcp", l.settings.BindAddress)
	if err != nil {
		return fmt.Errorf("dashboard.bindAddress: %w", err)
	}
	// Clients that reset streams at a high rate must not keep the manager from its work, so HTTP/2 is not served.
	secure := tls.NewListener(netutil.LimitListener(plain, maxConnections), &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: certificate,
	})
	l.log.Info("Serving the dashboard", "address", plain.Addr().String())
	return l.serve(ctx, secure)
}

// certificate returns a function that returns the certificate of the files, or one that is generated now and kept in memory.
func (l *listener) certificate(ctx context.Context) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if dir := l.settings.CertDir; dir != "" {
		files, err := certwatcher.New(filepath.Join(dir, corev1.TLSCertKey), filepath.Join(dir, corev1.TLSPrivateKeyKey))
		if err != nil {
			return nil, err
		}
		go func() {
			if err := files.Start(ctx); err != nil {
				l.log.Error(err, "Watching the certificate of the dashboard")
			}
		}()
		return files.GetCertificate, nil
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, err
}

func (l *listener) serve(ctx context.Context, on net.Listener) error {
	s := &http.Server{
		Handler: l.survivePanics(limitBody(l.handler)), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		WriteTimeout: writeTime,                                         // and no ReadTimeout, which would end streams of events
		BaseContext:  func(net.Listener) context.Context { return ctx }, // streams of events end with it
		ErrorLog:     log.New(quiet{l.log}, "", 0),
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

// quiet writes what net/http reports about clients to the detailed log: browsers refuse self-signed certificates all the time.
type quiet struct{ log logr.Logger }

// Write implements io.Writer.
func (q quiet) Write(text []byte) (int, error) {
	q.log.V(1).Info("Serving a client of the dashboard", "problem", string(text))
	return len(text), nil
}
