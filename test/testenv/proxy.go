package testenv

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tranche-dev/tranche/apis"
)

// A Proxy stands between the manager and the API server and counts what the manager writes, so that a test can strike after any
// write. Events and leases do not count.
type Proxy struct {
	server *httptest.Server

	mu     sync.Mutex
	writes []string
	after  func(n int)
}

// StartProxy starts a proxy that passes the manager's own credentials on.
func (w *World) StartProxy() (*Proxy, error) {
	config := w.Plane.UserConfig(ManagerUser)
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make transport to the API server: %w", err)
	}
	p := &Proxy{}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if body, err := io.ReadAll(r.In.Body); err == nil {
				r.Out.Body = io.NopCloser(bytes.NewReader(body))
				r.Out = r.Out.WithContext(context.WithValue(r.Out.Context(), timesKey{}, bytes.Contains(body, []byte(apis.TimelineAnnotation))))
			}
		},
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			p.wrote(r.Request, r.StatusCode)
			return nil
		},
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	}
	p.server = httptest.NewUnstartedServer(forward)
	p.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	p.server.StartTLS()
	return p, nil
}

// URL of the proxy.
func (p *Proxy) URL() string { return p.server.URL }

// Stop ends the proxy.
func (p *Proxy) Stop() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// timesKey is the key, in the context of a request, of whether it writes the timeline of a JobSet.
type timesKey struct{}

// ofTimes ends the line of such a write.
const ofTimes = " with the timeline"

// AfterWrite calls f when the API server has completed the n-th write since, before the manager gets the response.
func (p *Proxy) AfterWrite(f func(n int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes, p.after = nil, f
}

// Writes lists the writes since the last call of AfterWrite.
func (p *Proxy) Writes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.writes...)
}

func (p *Proxy) wrote(r *http.Request, status int) {
	if r.Method == http.MethodGet || status >= http.StatusBadRequest ||
		strings.Contains(r.URL.Path, "/events") || strings.Contains(r.URL.Path, "/leases") || strings.Contains(r.URL.Path, "selfsubjectreviews") {
		return
	}
	p.mu.Lock()
	write := r.Method + " " + r.URL.Path
	if hasTimes, _ := r.Context().Value(timesKey{}).(bool); hasTimes {
		write += ofTimes
	}
	p.writes = append(p.writes, write)
	n, f := len(p.writes), p.after
	p.mu.Unlock()
	if f != nil {
		f(n)
	}
}

// redirect makes a kubeconfig file point to another server, whose certificate is not checked.
func redirect(path, server string) error {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = server
		cluster.CertificateAuthority, cluster.CertificateAuthorityData = "", nil
		cluster.InsecureSkipTLSVerify = true
	}
	return clientcmd.WriteToFile(*config, path)
}
