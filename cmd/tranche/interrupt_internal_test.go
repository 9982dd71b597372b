package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram lets the binary of the tests be the program.
const asProgram = "TRANCHE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestSignal sends the program a signal while it reads from a pipe that never ends: it ends with exit code 1. A program that did not would run into
// the time limit of the tests.
func TestSignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		for _, line := range []string{
			"lint -f -", "plan -f - --snapshot " + world, "plan -f " + changed + " --snapshot -", "what-if submit -f - --snapshot " + world,
			"explain x --snapshot -", "pending --snapshot -", "shadow --snapshot -",
		} {
			t.Run(signal.String()+"/"+line, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(os.Args[0], strings.Fields(line)...)
				cmd.Env = append(os.Environ(), asProgram+"=1")
				var text strings.Builder
				cmd.Stderr = &text
				stdin, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				// A pipe takes more than its buffer only once the program reads: then it handles signals.
				if _, err := stdin.Write([]byte(strings.Repeat("# never ends\n", 1<<16))); err != nil {
					t.Error(err)
				}
				if err := cmd.Process.Signal(signal); err != nil {
					t.Error(err)
				}
				err = cmd.Wait()
				if exit, isExit := errors.AsType[*exec.ExitError](err); !isExit || exit.ExitCode() != 1 || !strings.Contains(text.String(), "tranche: interrupted") {
					t.Errorf("the end of the program is %v, want exit code 1: %s", err, &text)
				}
			})
		}
	}
}

// TestSlowServer cancels each verb that asks a cluster while an API server does not answer.
func TestSlowServer(t *testing.T) {
	asked, isOver := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-isOver:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(isOver)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	write(t, kubeconfig, "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: '"+server.URL+"'}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n")
	// The first one sets the logger of client-go, and the others may leave goroutines that read it. A process runs one verb.
	for _, line := range []string{
		"shadow", "pending", "pending --watch", "pending --cluster-queue x", "explain x", "explain x --watch", "snapshot -o " + filepath.Join(dir, "taken"),
		"plan -f " + changed, "what-if quota a/b/c=1", "uninstall --check",
	} {
		t.Run(line, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-asked
				cancel()
			}()
			_, code, err := runVerb(ctx, strings.NewReader(""), append(strings.Fields(line), "--kubeconfig", kubeconfig)...)
			want := errInterrupted
			if line == "shadow" {
				want = context.Canceled // it ends by itself
			}
			if code != 1 || !errors.Is(err, want) {
				t.Errorf("exit code %d, error %v, want 1 and %v", code, err, want)
			}
		})
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".tranche-snapshot-*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// TestInterruptible: a function that ends soon after the signal has its own result, and one that does not is left.
func TestInterruptible(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := interruptible(ctx, func() error { <-ctx.Done(); return nil }); err != nil {
		t.Errorf("a watch that ends has the error %v", err)
	}
	if err := interruptible(ctx, func() error { return ctx.Err() }); !errors.Is(err, errInterrupted) {
		t.Errorf("the error is %v", err)
	}
	never, begin := make(chan error), time.Now()
	if err := interruptible(ctx, func() error { return <-never }); !errors.Is(err, errInterrupted) {
		t.Errorf("the error is %v", err)
	}
	if took := time.Since(begin); took < interruptGrace {
		t.Errorf("it had %s, want %s", took, interruptGrace)
	}
	if _, code, err := runVerb(t.Context(), io.MultiReader(), "version"); err != nil || code != 0 {
		t.Errorf("exit code %d, error %v", code, err)
	}
}
