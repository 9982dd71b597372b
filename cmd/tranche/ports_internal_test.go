package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// Connections without a request that one client opens to the ports of probes and metrics are closed, and others get an answer.
func TestPortsAreLimited(t *testing.T) {
	config, err := configapi.Load("")
	if err != nil {
		t.Fatal(err)
	}
	config.Health.HealthProbeBindAddress, config.Metrics.BindAddress = freeAddress(t), freeAddress(t)
	unreachable := &rest.Config{Host: "https://127.0.0.1:1"}
	mgr, err := ctrl.NewManager(unreachable, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if mgr, err = servePorts(t.Context(), mgr, config); err != nil {
		t.Fatal(err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for name, port := range map[string]struct {
		address, url string
		want         int
	}{
		"probes":  {config.Health.HealthProbeBindAddress, "http://" + config.Health.HealthProbeBindAddress + "/healthz", http.StatusOK},
		"metrics": {config.Metrics.BindAddress, "https://" + config.Metrics.BindAddress + "/metrics", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			idle := make([]net.Conn, 3*maxQuiet)
			for i := range idle {
				from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
				if idle[i], err = from.DialContext(t.Context(), "tcp", port.address); err != nil {
					t.Fatal(err)
				}
				defer idle[i].Close() //nolint:errcheck // the server may have closed it
			}
			client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			response, err := client.Get(port.url) //nolint:noctx // it has a timeout
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close() //nolint:errcheck // nothing is lost
			if response.StatusCode != port.want {
				t.Errorf("%s answers %s, want %d", port.url, response.Status, port.want)
			}
			open := slices.DeleteFunc(idle, func(c net.Conn) bool {
				_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
				_, err := c.Read(make([]byte, 1))
				return !errors.Is(err, os.ErrDeadlineExceeded)
			})
			if len(open) > maxQuiet {
				t.Errorf("%d connections without a request are open, want at most %d", len(open), maxQuiet)
			}
		})
	}
}

// freeAddress returns an address that is in no use.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // it has accepted nothing
	return listener.Addr().String()
}
