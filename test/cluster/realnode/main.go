//go:build linux

// Command realnode is the first process of a real node: it runs containerd and the kubelet that lies beside it, and ends with an error as soon as one
// of them ends.
//
// It must be started in a PID namespace and a mount namespace of its own. Then all that belongs to the node ends with it, however it ends: the kernel kills
// every process of the PID namespace, shims and containers among them, and no mount is left. What containerd, the kubelet and the network plugins keep
// in directories that cannot be configured is in memory, for as long as the node runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// socket is where containerd listens, in the memory of the node.
const socket = "/run/containerd/containerd.sock"

// startTimeout limits how long containerd may take.
const startTimeout = time.Minute

// A node has the values of the flags.
type node struct{ kubeconfig, containerd, kubelet, images, name, root string }

func main() {
	var n node
	flag.StringVar(&n.kubeconfig, "kubeconfig", "", "kubeconfig file of the kubelet")
	flag.StringVar(&n.containerd, "containerd-config", "", "configuration file of containerd")
	flag.StringVar(&n.kubelet, "kubelet-config", "", "configuration file of the kubelet")
	flag.StringVar(&n.images, "images", "", "directory of the archives with container images to import")
	flag.StringVar(&n.name, "node-name", "", "name of the Node")
	flag.StringVar(&n.root, "root-dir", "", "directory of the kubelet's data")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := n.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "realnode:", err)
		stop()
		os.Exit(1)
	}
}

func (n *node) run(ctx context.Context) error {
	if os.Getpid() != 1 {
		return errors.New("run a node: this is not the first process of a PID namespace")
	}
	if err := hide(); err != nil {
		return err
	}
	containerd := command("containerd", "--config", n.containerd)
	if err := containerd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	if err := n.importImages(ctx); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the kubelet: %w", err)
	}
	kubelet := command(filepath.Join(filepath.Dir(self), "kubelet"),
		"--config="+n.kubelet, "--kubeconfig="+n.kubeconfig, "--hostname-override="+n.name, "--root-dir="+n.root, "--cert-dir="+filepath.Join(n.root, "pki"))
	if err := kubelet.Start(); err != nil {
		return fmt.Errorf("start the kubelet: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- reap(map[int]string{containerd.Process.Pid: "containerd", kubelet.Process.Pid: "the kubelet"})
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// hide makes the mounts of the node its own, and puts memory over the directories in which its programs insist on keeping something.
func hide() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range []string{"/run", "/var/log", "/var/lib"} {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount memory over %s: %w", dir, err)
		}
	}
	return nil
}

func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c
}

// importImages imports all archives as soon as containerd answers.
func (n *node) importImages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			_ = connection.Close()
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for containerd: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	archives, err := filepath.Glob(filepath.Join(n.images, "*.tar"))
	if err != nil {
		return fmt.Errorf("list the images in %s: %w", n.images, err)
	}
	for _, archive := range archives {
		if err := command("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive).Run(); err != nil {
			return fmt.Errorf("import the image %s: %w", archive, err)
		}
	}
	return nil
}

// reap waits for processes, those without a parent among them, until one of the named ends.
func reap(named map[int]string) error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for processes: %w", err)
		}
		if name, ok := named[pid]; ok {
			return fmt.Errorf("%s ended by itself: exit code %d, signal %d", name, status.ExitStatus(), status.Signal())
		}
	}
}
