package controlplane_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

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
	settings.WorkDir = os.Getenv(parentVariable)
	plane, err := controlplane.Start(ctx, settings)
	if err != nil {
		return err
	}
	for _, name := range componentNames() {
		_, _ = fmt.Fprintln(os.Stdout, name, plane.PID(name))
	}
	_, _ = fmt.Fprintln(os.Stdout, "ready")
	<-ctx.Done()
	return plane.Stop()
}

func componentNames() []string {
	return []string{
		controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager,
		controlplane.Scheduler, controlplane.Kwok, controlplane.JobSet,
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
	if len(children) != len(componentNames()) {
		t.Fatalf("the parent names %d processes, want %d", len(children), len(componentNames()))
	}
	return command, children
}
