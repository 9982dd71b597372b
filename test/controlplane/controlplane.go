// Package controlplane runs a real Kubernetes control plane on this machine, for tests and for the demo: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kwok with fake nodes, and the stock JobSet controller with its webhooks. Only the machines are
// simulated: kwok acts as the kubelets, and the annotations of a pod set its readiness and its end (FakeReadyAfter and others). With Config.RealNode,
// a real kubelet and containerd run beside kwok. The binaries come from the module test/cluster. Everything listens on loopback, on free ports, and
// dies with the process that started it.
//
//	plane, err := controlplane.Start(ctx, controlplane.Config{
//		CRDs:      []string{"config/crd"},
//		NodePools: []controlplane.NodePool{{Name: "gpu", Count: 2, Allocatable: gpus}},
//	})
//	...
//	defer plane.Stop()
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Names of the components. Etcd and APIServer are always started first, in this order.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
	JobSet            = "jobset"
	Kueue             = "kueue"    // only with Config.Kueue
	Machine           = "realnode" // only with Config.RealNode

	// Coscheduling, Volcano and VolcanoControllers run only with Config.GangSchedulers.
	Coscheduling       = "coscheduling"
	Volcano            = "volcano"
	VolcanoControllers = "volcano-controllers"
)

// A Config configures a control plane. The JobSet controller needs its CRD among CRDs, or must be named in Without.
type Config struct {
	// CRDs are files or directories of CustomResourceDefinitions to install before any controller starts. UpstreamCRDs
	// names the directory with the stock JobSet CRD.
	CRDs []string

	// NodePools are the fake nodes.
	NodePools []NodePool

	// RealNode adds a node on which containers run. Nil means that there is none.
	RealNode *RealNode

	// Without names components that Start leaves alone. StartComponent may start them later.
	Without []string

	// FeatureGates are those of the API server, kube-controller-manager and kube-scheduler that differ from their defaults, such as
	// Name=true.
	FeatureGates []string

	// RuntimeConfig has the APIs to serve besides those that are on by default, such as group/version=true.
	RuntimeConfig []string

	// Users are names as UserConfig takes them. They have tokens, and others certificates, which the API server verifies with each request.
	Users []string

	// AuditPolicy is a file with the audit policy of the API server, which then writes AuditLog. Empty means no audit log.
	AuditPolicy string

	// JobSetFeatureGates are the feature gates of the JobSet controller that differ from their defaults.
	JobSetFeatureGates map[string]bool

	// Kueue adds Kueue's manager with its CRDs, webhooks and permissions. Nil means that there is no Kueue.
	Kueue *KueueOptions

	// GangSchedulers adds kube-scheduler with the plugin Coscheduling, and Volcano's scheduler with its controllers and CRDs. The CRD of Coscheduling's PodGroups must be
	// among CRDs.
	GangSchedulers bool

	// BinDir is the directory of the binaries. Empty means the one of BuildDir.
	BinDir string

	// WorkDir holds certificates, data and logs. It is kept by Stop if it is given; if it is empty, a temporary directory is
	// used and Stop removes it.
	WorkDir string
}

// A ControlPlane is a running control plane. Its methods may be called from several goroutines.
type ControlPlane struct {
	config     Config
	binDir     string
	workDir    string
	temporary  string // the work directory, if Stop has to remove it
	starter    *starter
	authority  *authority
	apiserver  *envtest.APIServer
	admin      *rest.Config
	components []component // in the order of starting
	webhooks   webhooks    // of the JobSet controller
	kueue      kueueSetup
	schedulers string // directory of other schedulers, if there are any
	gateway    string // of the real node

	mu     sync.Mutex  // guards what the components do
	paused []component // they run again as soon as the API server does
}

// Start starts a control plane and returns when it is ready for work: all nodes are Ready and the JobSet webhooks answer. ctx
// bounds the start only. If it fails, everything that was started is stopped, and the error has the end of the log of the
// component at fault.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	p := &ControlPlane{config: config, starter: newStarter()}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *ControlPlane) start(ctx context.Context) error {
	if err := p.prepare(ctx); err != nil {
		return err
	}
	if err := p.define(); err != nil {
		return err
	}
	for _, name := range []string{Etcd, APIServer} {
		if err := p.StartComponent(ctx, name); err != nil {
			return err
		}
	}
	if err := p.provision(ctx); err != nil {
		return err
	}
	if err := p.startRest(ctx); err != nil {
		return err
	}
	if p.wants(Kwok) && p.wants(ControllerManager) {
		return p.awaitNodes(ctx)
	}
	return nil
}

// prepare finds the binaries and makes the directories.
func (p *ControlPlane) prepare(ctx context.Context) error {
	var err error
	if p.binDir = p.config.BinDir; p.binDir == "" {
		if p.binDir, err = BuildDir(ctx); err != nil {
			return err
		}
	}
	if p.config.Kueue != nil {
		if p.kueue.dir, err = KueueDir(ctx); err != nil {
			return err
		}
	}
	if p.config.GangSchedulers {
		if p.schedulers, err = SchedulersDir(ctx); err != nil {
			return err
		}
	}
	if p.workDir = p.config.WorkDir; p.workDir == "" {
		if p.temporary, err = os.MkdirTemp("", "tranche-controlplane-"); err != nil {
			return fmt.Errorf("make a work directory: %w", err)
		}
		p.workDir = p.temporary
	}
	if p.workDir, err = filepath.Abs(p.workDir); err != nil {
		return fmt.Errorf("find the work directory: %w", err)
	}
	for _, name := range append([]string{"logs", "pdeathsig"}, componentNames()...) {
		if err := os.MkdirAll(p.path(name), 0o755); err != nil {
			return fmt.Errorf("make a work directory: %w", err)
		}
	}
	p.authority, err = newAuthority()
	return err
}

// define describes every component without starting any.
func (p *ControlPlane) define() error {
	if err := p.defineServers(); err != nil {
		return err
	}
	p.admin = p.UserConfig("admin", "system:masters")
	for _, user := range p.config.Users {
		p.UserConfig(user)
	}
	for _, define := range []func() error{
		p.defineControllerManager, p.defineScheduler, p.defineKwok, p.defineJobSet, p.defineKueue, p.defineGangSchedulers, p.defineMachine,
	} {
		if err := define(); err != nil {
			return err
		}
	}
	return nil
}

// startRest starts the components that need a running API server.
func (p *ControlPlane) startRest(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return startAll(ctx, slices.DeleteFunc(slices.Clone(p.components), func(c component) bool {
		return isServer(c.name()) || !p.wants(c.name())
	}))
}

// startAll starts components at the same time.
func startAll(ctx context.Context, components []component) error {
	problems := make([]error, len(components))
	var wait sync.WaitGroup
	for i, c := range components {
		wait.Go(func() { problems[i] = c.start(ctx) })
	}
	wait.Wait()
	return errors.Join(problems...)
}

// Stop kills every component, waits until all of them are gone, and removes the work directory unless it was given. The error
// names components that had ended by themselves before. Stop may be called twice.
func (p *ControlPlane) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var problems []error
	for _, c := range slices.Backward(p.components) {
		if err := c.lost(); err != nil {
			problems = append(problems, err)
		}
		if err := c.kill(); err != nil {
			problems = append(problems, err)
		}
	}
	p.components = nil
	p.starter.end()
	if p.temporary != "" {
		if err := os.RemoveAll(p.temporary); err != nil {
			problems = append(problems, fmt.Errorf("remove the work directory: %w", err))
		}
	}
	return errors.Join(problems...)
}

// StartComponent starts a component that was left out, stopped or killed, and returns when it is ready. It keeps its ports,
// identity and data. Starting one that runs does nothing. Starting etcd or the API server also starts what its end had ended.
func (p *ControlPlane) StartComponent(ctx context.Context, name string) error {
	return p.with(name, func(c component) error {
		if err := c.start(ctx); err != nil {
			return err
		}
		if !isServer(name) || slices.ContainsFunc(p.components, func(c component) bool { return isServer(c.name()) && c.pid() == 0 }) {
			return nil
		}
		paused := p.paused
		p.paused = nil
		if slices.ContainsFunc(paused, func(c component) bool { return c.name() == Kwok }) {
			if err := p.freeNodes(ctx); err != nil {
				return err
			}
		}
		return startAll(ctx, paused)
	})
}

// StopComponent asks a component to end (SIGTERM), kills it if it takes more than some seconds, and waits until it is gone.
// The controllers, the scheduler and kwok end together with etcd and with the API server: some of them would anyway, but not all
// and not always, and nothing here is a kubelet that starts them again.
func (p *ControlPlane) StopComponent(name string) error {
	return p.with(name, func(c component) error {
		return errors.Join(p.pauseRest(name), c.stop())
	})
}

// KillComponent kills a component (SIGKILL) and waits until it is gone. Etcd and the API server also end the
// other components, as in StopComponent.
func (p *ControlPlane) KillComponent(name string) error {
	return p.with(name, func(c component) error {
		return errors.Join(p.pauseRest(name), c.kill())
	})
}

// pauseRest kills what depends on a server.
func (p *ControlPlane) pauseRest(name string) error {
	if !isServer(name) {
		return nil
	}
	var problems []error
	for _, c := range p.components {
		if isServer(c.name()) || c.pid() == 0 {
			continue
		}
		p.paused = append(p.paused, c)
		problems = append(problems, c.kill())
	}
	return errors.Join(problems...)
}

// isServer reports whether the other components need this one in order to run.
func isServer(name string) bool { return name == Etcd || name == APIServer }

// PID returns the process id of a component, or 0 if it does not run.
func (p *ControlPlane) PID(name string) int {
	pid := 0
	_ = p.with(name, func(c component) error {
		pid = c.pid()
		return nil
	})
	return pid
}

func (p *ControlPlane) with(name string, do func(component) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.components {
		if c.name() == name {
			return do(c)
		}
	}
	return fmt.Errorf("find component %q: there are only %s", name, strings.Join(componentNames(), ", "))
}

// AdminConfig returns a configuration for clients that may do everything.
func (p *ControlPlane) AdminConfig() *rest.Config { return rest.CopyConfig(p.admin) }

// BinDir returns the directory of the binaries, kubectl among them.
func (p *ControlPlane) BinDir() string { return p.binDir }

// LogDir returns the directory that holds one log per component: kube-apiserver.log and so on.
func (p *ControlPlane) LogDir() string { return p.path("logs") }

// WorkDir returns the directory of certificates, data and logs.
func (p *ControlPlane) WorkDir() string { return p.workDir }

func (p *ControlPlane) wants(name string) bool { return !slices.Contains(p.config.Without, name) }

func (p *ControlPlane) path(elements ...string) string {
	return filepath.Join(append([]string{p.workDir}, elements...)...)
}

func (p *ControlPlane) logPath(name string) string { return p.path("logs", name+".log") }

func componentNames() []string {
	return []string{Etcd, APIServer, ControllerManager, Scheduler, Kwok, JobSet, Kueue, Machine, Coscheduling, Volcano, VolcanoControllers}
}
