package controlplane_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/test/controlplane"
)

// parentVariable makes this test binary a parent that starts a control plane, names its processes, and waits to be killed.
const parentVariable = "TRANCHE_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) == "" {
		os.Exit(m.Run())
	}
	if err := beParent(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func beParent() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	settings := config(ctx)
	settings.WorkDir, settings.RealNode = os.Getenv(parentVariable), &controlplane.RealNode{}
	plane, err := controlplane.Start(ctx, settings)
	if err != nil {
		return err
	}
	container, err := runContainer(ctx, plane)
	if err != nil {
		return errors.Join(err, plane.Stop())
	}
	_, _ = fmt.Fprintln(os.Stdout, containerName, container)
	for _, name := range componentNames() {
		_, _ = fmt.Fprintln(os.Stdout, name, plane.PID(name))
	}
	_, _ = fmt.Fprintln(os.Stdout, "ready")
	<-ctx.Done()
	return plane.Stop()
}

// containerName is what the parent calls the process of its container.
const containerName = "container"

// runContainer runs a container on the real node, and returns the id of its process. It goes on after it was asked to end.
func runContainer(ctx context.Context, plane *controlplane.ControlPlane) (int, error) {
	admin, err := client.New(plane.AdminConfig(), client.Options{})
	if err != nil {
		return 0, err
	}
	mark := "-team=" + plane.WorkDir()
	err = admin.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: containerName}, Spec: corev1.PodSpec{
		NodeName:   controlplane.RealNodeName,
		Containers: []corev1.Container{{Name: "main", Image: controlplane.PayloadImage, Args: []string{mark, "-linger=1h"}}},
	}})
	if err != nil {
		return 0, err
	}
	pid := 0
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range lines {
			if line, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(line), "/payload\x00"+mark) {
				pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path)))
				return true, err
			}
		}
		return false, err
	})
	return pid, err
}

func componentNames() []string {
	return []string{
		controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager,
		controlplane.Scheduler, controlplane.Kwok, controlplane.JobSet, controlplane.Machine,
	}
}

func TestNothingOutlivesItsParent(t *testing.T) {
	tests := map[string]struct{ signal syscall.Signal }{
		"killed":      {signal: syscall.SIGKILL},
		"interrupted": {signal: syscall.SIGINT},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			command, children := startParent(t)
			// The whole group of the parent: what a terminal or a test runner does.
			if err := syscall.Kill(-command.Process.Pid, test.signal); err != nil {
				t.Fatal(err)
			}
			_ = command.Wait()
			for child, pid := range children {
				eventually(t, child+" is gone", func() error {
					if runs(pid) {
						return fmt.Errorf("process %d still runs", pid)
					}
					return nil
				})
			}
		})
	}
}

// startParent returns a process that runs a control plane, and the ids of that one's processes.
func startParent(t *testing.T) (*exec.Cmd, map[string]int) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), parentVariable+"="+t.TempDir())
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	children := map[string]int{}
	lines := bufio.NewScanner(output)
	for lines.Scan() && lines.Text() != "ready" {
		name, number, _ := strings.Cut(lines.Text(), " ")
		if children[name], err = strconv.Atoi(number); err != nil || !runs(children[name]) {
			t.Errorf("the parent says %q, want the name and the id of a process that runs", lines.Text())
		}
	}
	if want := len(componentNames()) + 1; len(children) != want {
		t.Fatalf("the parent names %d processes, want %d", len(children), want)
	}
	return command, children
}
