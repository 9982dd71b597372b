package testenv

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/test/controlplane"
)

const (
	readyEvery   = 50 * time.Millisecond
	readyTimeout = 60 * time.Second
)

// A Manager is a running process of the real binary.
type Manager struct {
	// Health is the URL of its health endpoints, Metrics that of its metrics.
	Health, Metrics string
	// Log is the path of its log.
	Log string

	cmd  *exec.Cmd
	done chan struct{}
}

// ManagerOptions configure how the manager runs. The zero value is a single manager without leader election.
type ManagerOptions struct {
	// Server replaces the address of the API server, such as that of a Proxy.
	Server string
	// Settings are merged over the configuration file of the tests.
	Settings map[string]any
	// Binary replaces bin/tranche, if it is not empty.
	Binary string
}

// StartManager runs bin/tranche and waits until it is ready.
func (w *World) StartManager(ctx context.Context, options ManagerOptions) (*Manager, error) {
	m, err := w.LaunchManager(options)
	if err != nil {
		return nil, err
	}
	if err := m.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, m.Kill())
	}
	return m, nil
}

// LaunchManager runs bin/tranche and does not wait.
func (w *World) LaunchManager(options ManagerOptions) (*Manager, error) {
	dir, err := os.MkdirTemp(w.Plane.WorkDir(), "manager-")
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := w.writeKubeconfig(kubeconfig, options.Server); err != nil {
		return nil, err
	}
	ports, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		Health: "http://" + ports[0], Metrics: "http://" + ports[1] + "/metrics",
		Log: filepath.Join(dir, "log"), done: make(chan struct{}),
	}
	file, err := writeSettings(dir, ports, options.Settings)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(m.Log)
	if err != nil {
		return nil, err
	}
	m.cmd = exec.Command(cmp.Or(options.Binary, filepath.Join(w.Root, "bin", "tranche")), "manager", "--config", file, "--kubeconfig", kubeconfig)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the manager: %w", err), log.Close())
	}
	go func() {
		defer close(m.done)
		defer log.Close() //nolint:errcheck // the process has ended
		_ = m.cmd.Wait()
	}()
	return m, nil
}

func (w *World) writeKubeconfig(path, server string) error {
	if err := w.Plane.Kubeconfig(path, ManagerUser); err != nil {
		return fmt.Errorf("write kubeconfig of the manager: %w", err)
	}
	if server == "" {
		return nil
	}
	return redirect(path, server)
}

// resources is the part of the configuration that determines what is charged for pods.
func resources() map[string]any {
	return map[string]any{
		"excludeResourcePrefixes": []string{"excluded.example.com/"},
		"transformations":         []any{map[string]any{"input": "example.com/half-gpus", "strategy": "Replace", "outputs": map[string]any{"nvidia.com/gpu": "0.5"}}},
		"deviceClassMappings":     []any{map[string]any{"name": "nvidia.com/gpu", "deviceClassNames": []string{"gpu.example.com"}}},
	}
}

// Configuration returns the configuration of the managers, as far as it determines what is charged for pods.
func Configuration() (*configapi.Configuration, error) {
	data, err := yaml.Marshal(map[string]any{"apiVersion": "config.tranche.dev/v1alpha1", "kind": "Configuration", "resources": resources()})
	if err != nil {
		return nil, err
	}
	return configapi.Decode(data)
}

func writeSettings(dir string, ports []string, overrides map[string]any) (string, error) {
	settings := map[string]any{
		"apiVersion":       "config.tranche.dev/v1alpha1",
		"kind":             "Configuration",
		"health":           map[string]any{"healthProbeBindAddress": ports[0]},
		"metrics":          map[string]any{"bindAddress": ports[1], "secure": false},
		"groupStart":       map[string]any{"bindAddress": ports[2], "address": ports[2]},
		"leaderElection":   map[string]any{"leaderElect": false},
		"clientConnection": map[string]any{"qps": 500, "burst": 1000},
		"resources":        resources(),
	}
	maps.Copy(settings, overrides)
	data, err := yaml.Marshal(settings)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "config.yaml")
	return file, os.WriteFile(file, data, 0o600)
}

// WaitReady waits until the manager reports that it is ready. It fails as soon as the process has ended.
func (m *Manager) WaitReady(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, readyEvery, readyTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-m.done:
			return false, errors.New("it has ended")
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Health+"/readyz", nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // not listening yet
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
	if err != nil {
		return fmt.Errorf("wait until the manager is ready: %w\n%s", err, m.tail())
	}
	return nil
}

// ReadMetrics returns the metrics at the URL of a manager, in the text format of Prometheus.
func ReadMetrics(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("read the metrics of the manager: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("read the metrics of the manager: %s: %s", response.Status, body)
	}
	return string(body), err
}

// PID is the process.
func (m *Manager) PID() int { return m.cmd.Process.Pid }

// Done is closed when the process has ended.
func (m *Manager) Done() <-chan struct{} { return m.done }

// Kill ends the process at once, as a crash would.
func (m *Manager) Kill() error { return m.end(syscall.SIGKILL) }

// Stop ends the process as Kubernetes does.
func (m *Manager) Stop() error { return m.end(syscall.SIGTERM) }

// Signal sends the process a signal. A process that has ended takes any.
func (m *Manager) Signal(signal syscall.Signal) error {
	if err := m.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send the manager %s: %w", signal, err)
	}
	return nil
}

func (m *Manager) end(signal syscall.Signal) error {
	if err := m.Signal(signal); err != nil {
		return err
	}
	<-m.done
	return nil
}

// races returns the first data race that the race detector has found in each manager below a directory. Only a binary that was built with it looks for any.
func races(dir string) error {
	const size = 4096
	logs, err := filepath.Glob(filepath.Join(dir, "manager-*", "log"))
	failed := []error{err}
	for _, log := range logs {
		data, err := os.ReadFile(log)
		failed = append(failed, err)
		if i := bytes.Index(data, []byte("WARNING: DATA RACE")); i >= 0 {
			failed = append(failed, fmt.Errorf("%s: %s", log, data[i:min(i+size, len(data))]))
		}
	}
	return errors.Join(failed...)
}

// tail returns the end of the log.
func (m *Manager) tail() string {
	const size = 4096
	data, err := os.ReadFile(m.Log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-size):])
}

// freeAddresses returns addresses on loopback that nothing listens on.
func freeAddresses(n int) ([]string, error) {
	addresses := map[string]struct{}{}
	for len(addresses) < n {
		port, err := controlplane.FreePort()
		if err != nil {
			return nil, err
		}
		addresses[net.JoinHostPort("127.0.0.1", strconv.Itoa(port))] = struct{}{}
	}
	return slices.Collect(maps.Keys(addresses)), nil
}
