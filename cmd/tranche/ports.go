package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/webserver"
)

// Limits of the ports of metrics and probes, whose clients are few.
const (
	maxConnections = 1000
	maxQuiet       = 50
	maxHeader      = 32 << 10
	requestTime    = 10 * time.Second
	writeTime      = time.Minute
	idleTime       = 90 * time.Second
	closeTime      = time.Second
)

// A portManager is a manager that answers probes and serves metrics on ports whose connections are limited, unlike those of controller-runtime: a client that
// reaches a port could otherwise fill the memory of the process with connections.
type portManager struct {
	ctrl.Manager

	healthy, ready healthz.Handler
}

// servePorts adds the servers of metrics and probes to a manager. Checks have to be added before it starts.
func servePorts(ctx context.Context, mgr ctrl.Manager, config *configapi.Configuration) (ctrl.Manager, error) {
	m := &portManager{Manager: mgr}
	m.healthy.Checks, m.ready.Checks = map[string]healthz.Checker{}, map[string]healthz.Checker{}
	probes := http.NewServeMux()
	for path, handler := range map[string]http.Handler{"/healthz": &m.healthy, "/readyz": &m.ready} {
		handler = http.StripPrefix(path, handler)
		probes.Handle(path, handler)
		probes.Handle(path+"/", handler)
	}
	if err := m.serve(ctx, "health.healthProbeBindAddress", config.Health.HealthProbeBindAddress, probes, nil); err != nil {
		return nil, err
	}
	return m, m.serveMetrics(ctx, &config.Metrics)
}

// AddHealthzCheck adds a check of /healthz.
func (m *portManager) AddHealthzCheck(name string, check healthz.Checker) error {
	m.healthy.Checks[name] = check
	return nil
}

// AddReadyzCheck adds a check of /readyz.
func (m *portManager) AddReadyzCheck(name string, check healthz.Checker) error {
	m.ready.Checks[name] = check
	return nil
}

// serveMetrics serves metrics and profiles of the process, each only to authenticated clients that may get its path. If the configuration opens the metrics to
// all, there are no profiles.
func (m *portManager) serveMetrics(ctx context.Context, config *configapi.Metrics) error {
	if config.BindAddress == "0" {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	var handler http.Handler = mux
	var secure *tls.Config
	if *config.Secure {
		addProfiles(mux)
		filter, err := filters.WithAuthenticationAndAuthorization(m.GetConfig(), m.GetHTTPClient())
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		if handler, err = filter(m.GetLogger().WithName("metrics"), handler); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		if secure, err = webserver.Secure(m, config.CertDir); err != nil {
			return fmt.Errorf("metrics.certDir: %w", err)
		}
	}
	return m.serve(ctx, "metrics.bindAddress", config.BindAddress, handler, secure)
}

// addProfiles serves the profiles of the process under the paths that go tool pprof and go tool trace expect.
func addProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// serve adds a server for an address in a field of the configuration, unless that is 0. It listens at once, so that an address that is in use is an error.
func (m *portManager) serve(ctx context.Context, field, address string, handler http.Handler, secure *tls.Config) error {
	if address == "0" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: requestTime, ReadTimeout: requestTime, IdleTimeout: idleTime, WriteTimeout: writeTime, MaxHeaderBytes: maxHeader,
		ErrorLog: webserver.ErrorLog(m.GetLogger()),
	}
	guarded := webserver.Guard(server, listener, webserver.Limits{Total: maxConnections, Quiet: maxQuiet})
	if secure != nil {
		guarded = tls.NewListener(guarded, secure)
	}
	err = m.Add(&manager.Server{Name: field, Server: server, Listener: guarded, ShutdownTimeout: new(closeTime)})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return nil
}
