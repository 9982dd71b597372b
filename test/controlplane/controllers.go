package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"
)

// addProgram describes a component that is a plain child process and acts as a user.
func (p *ControlPlane) addProgram(name, user string, c *program) error {
	if err := p.describeProgram(name, c, user); err != nil {
		return err
	}
	p.components = append(p.components, c)
	return nil
}

// describeProgram completes a program that acts as a user.
func (p *ControlPlane) describeProgram(name string, c *program, user string, groups ...string) error {
	if err := p.Kubeconfig(p.path(name, "kubeconfig"), user, groups...); err != nil {
		return err
	}
	c.title, c.path, c.log, c.starter = name, filepath.Join(p.binDir, name), p.logPath(name), p.starter
	c.args = append([]string{"--kubeconfig=" + p.path(name, "kubeconfig")}, c.args...)
	return nil
}

func (p *ControlPlane) defineControllerManager() error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	return p.addProgram(ControllerManager, "system:kube-controller-manager", &program{
		args: append(p.servingArgs(port, ControllerManager),
			// Each controller is its own service account, as in a real cluster: the guards see who writes.
			"--use-service-account-credentials=true",
			"--service-account-private-key-file="+p.path(APIServer, serviceAccountKey),
			"--concurrent-job-syncs=20",
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
			// A fake node is late only because the machine is busy.
			"--node-monitor-grace-period=5m",
		),
		ready: answers("https://" + address(port) + "/healthz"),
	})
}

func (p *ControlPlane) defineScheduler() error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	return p.addProgram(Scheduler, "system:kube-scheduler", &program{
		args: append(p.servingArgs(port, Scheduler),
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
		),
		ready: answers("https://" + address(port) + "/readyz"),
	})
}

// servingArgs are the flags that kube-controller-manager and kube-scheduler share.
func (p *ControlPlane) servingArgs(port int, name string) []string {
	args := []string{
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + p.path(name),
		"--leader-elect=false",
		"--profiling=false",
	}
	if len(p.config.FeatureGates) > 0 {
		args = append(args, "--feature-gates="+p.featureGates())
	}
	return args
}

// answers returns a check that a URL answers a GET with OK.
func answers(url string) func(context.Context) error {
	client := &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			// The components sign their own certificates here; we only ask whether they are up.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("ask %s: %w", url, err)
		}
		response, err := client.Do(request)
		if err != nil {
			return fmt.Errorf("ask %s: %w", url, err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("ask %s: got status %d", url, response.StatusCode)
		}
		return nil
	}
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
