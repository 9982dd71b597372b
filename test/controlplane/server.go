package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// A server is a component that envtest runs. envtest neither ends its processes with this one nor returns their ids,
// so that they are run by the command pdeathsig of test/cluster, which does both.
type server struct {
	title   string
	log     string
	link    string // the symbolic link that runs pdeathsig
	starter *starter
	open    func(log *os.File) error // starts it, returns when it is ready
	close   func() error
	running bool
}

// defineServers describes etcd and the API server.
func (p *ControlPlane) defineServers() error {
	etcd := &envtest.Etcd{DataDir: p.path(Etcd), StartTimeout: startTimeout, StopTimeout: patience}
	api := &envtest.APIServer{CertDir: p.path(APIServer), StartTimeout: startTimeout, StopTimeout: patience}
	api.Authn = p.authority
	configureAPIServer(api)
	p.configureFeatures(api)
	if p.config.AuditPolicy != "" {
		api.Configure().Set("audit-policy-file", p.config.AuditPolicy).Set("audit-log-path", p.AuditLog())
	}
	p.apiserver = api
	if err := configureAggregation(api); err != nil {
		return err
	}
	var err error
	if etcd.URL, err = freeURL(); err != nil {
		return err
	}
	peers, err := freeURL()
	if err != nil {
		return err
	}
	etcd.Configure().Set("listen-peer-urls", peers.String())
	if etcd.Path, err = p.linkPdeathsig(Etcd); err != nil {
		return err
	}
	if api.Path, err = p.linkPdeathsig(APIServer); err != nil {
		return err
	}
	p.components = append(p.components, &server{
		title: Etcd, log: p.logPath(Etcd), link: etcd.Path, starter: p.starter, close: etcd.Stop,
		open: func(log *os.File) error {
			etcd.Out, etcd.Err = log, log
			return etcd.Start()
		},
	}, &server{
		title: APIServer, log: p.logPath(APIServer), link: api.Path, starter: p.starter, close: api.Stop,
		open: func(log *os.File) error {
			api.EtcdURL, api.Out, api.Err = etcd.URL, log, log
			return api.Start()
		},
	})
	return p.chooseAddress()
}

// AuditLog returns the file of the audit log, which has an event of each request that has been answered.
func (p *ControlPlane) AuditLog() string { return filepath.Join(p.path(APIServer), "audit.log") }

func freeURL() (*url.URL, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "http", Host: address(port)}, nil
}

// chooseAddress fixes where the API server listens, so that the configurations of clients can be written before it runs.
func (p *ControlPlane) chooseAddress() error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	p.apiserver.Address = loopback
	p.apiserver.Port = strconv.Itoa(port)
	certificate, err := p.authority.server(loopback, "localhost")
	if err != nil {
		return err
	}
	// envtest makes serving certificates only if there are none.
	if err := certificate.write(p.apiserver.CertDir, "apiserver.crt", "apiserver.key"); err != nil {
		return err
	}
	signer, err := newAuthority()
	if err != nil {
		return err
	}
	return signer.pair.write(p.apiserver.CertDir, "sa-signer.crt", serviceAccountKey)
}

// serviceAccountKey is the name under which envtest expects the key that signs the tokens of service accounts.
const serviceAccountKey = "sa-signer.key"

func configureAPIServer(api *envtest.APIServer) {
	api.Configure().
		Set("authorization-mode", "RBAC").
		Set("disable-admission-plugins", "ServiceAccount"). // fake nodes mount no tokens
		Set("endpoint-reconciler-type", "none").            // nothing runs inside the cluster
		Set("profiling", "false").
		// Tests measure Tranche, not the fairness of a machine with two cores.
		Set("enable-priority-and-fairness", "false").
		Set("max-requests-inflight", "2000").
		Set("max-mutating-requests-inflight", "1000")
}

// configureFeatures turns on what is off by default.
func (p *ControlPlane) configureFeatures(api *envtest.APIServer) {
	if len(p.config.FeatureGates) > 0 {
		api.Configure().Set("feature-gates", p.featureGates())
	}
	if len(p.config.RuntimeConfig) > 0 {
		api.Configure().Set("runtime-config", strings.Join(p.config.RuntimeConfig, ","))
	}
}

func (p *ControlPlane) featureGates() string { return strings.Join(p.config.FeatureGates, ",") }

// linkPdeathsig creates the symbolic link that runs a binary by pdeathsig.
func (p *ControlPlane) linkPdeathsig(name string) (string, error) {
	link := p.path("pdeathsig", name)
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("link %s to pdeathsig: %w", name, err)
	}
	if err := os.Symlink(filepath.Join(p.binDir, "pdeathsig"), link); err != nil {
		return "", fmt.Errorf("link %s to pdeathsig: %w", name, err)
	}
	return link, nil
}

func (s *server) name() string { return s.title }

func (s *server) start(context.Context) error {
	if s.running && s.lost() == nil {
		return nil
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.title, err)
	}
	defer log.Close() //nolint:errcheck // the process has its own handle
	s.running = true
	if err := s.starter.do(func() error { return s.open(log) }); err != nil {
		return fmt.Errorf("start %s: %w; its log ends:\n%s", s.title, err, tail(s.log))
	}
	return nil
}

func (s *server) stop() error {
	if !s.running {
		return nil
	}
	pid := s.readPID()
	// envtest kills a process that does not end in time, and returns an error. Only its end matters.
	if err := s.close(); err != nil && !alive(pid) {
		return fmt.Errorf("stop %s: %w", s.title, err)
	}
	return s.awaitEnd(pid)
}

func (s *server) kill() error {
	if !s.running {
		return nil
	}
	pid := s.readPID()
	if alive(pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill %s: %w", s.title, err)
		}
	}
	if err := s.awaitEnd(pid); err != nil {
		return err
	}
	_ = s.close() // has envtest forget the process; it may complain that there is none to stop
	return nil
}

// awaitEnd waits until envtest, in the background, has waited for its child.
func (s *server) awaitEnd(pid int) error {
	deadline := time.After(stopTimeout)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for alive(pid) {
		select {
		case <-deadline:
			return fmt.Errorf("stop %s: process %d does not end", s.title, pid)
		case <-tick.C:
		}
	}
	s.running = false
	return nil
}

func (s *server) lost() error {
	if pid := s.readPID(); !s.running || alive(pid) {
		return nil
	}
	return fmt.Errorf("%s ended by itself; its log ends:\n%s", s.title, tail(s.log))
}

func (s *server) pid() int {
	if !s.running {
		return 0
	}
	return s.readPID()
}

func (s *server) readPID() int {
	content, err := os.ReadFile(s.link + ".pid")
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0
	}
	return pid
}

// alive reports whether there is a process with this id that has not been waited for.
func alive(pid int) bool {
	return pid > 0 && syscall.Kill(pid, 0) == nil
}
