package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute      // a loaded machine may be slow
	patience     = 5 * time.Second  // with one that is asked to end; then it is killed
	stopTimeout  = 20 * time.Second // the kernel needs no longer to end a process
	pollInterval = 50 * time.Millisecond
	tailBytes    = 4096 // of a log, in an error
)

// A component is one process of the control plane.
type component interface { //nolint:interfacebloat // six verbs are what can be done to a process
	name() string
	start(ctx context.Context) error // returns when it is ready
	stop() error                     // orderly; nothing to do if it does not run
	kill() error                     // at once; nothing to do if it does not run
	lost() error                     // an error if it ended without being stopped
	pid() int
}

// A starter starts processes from one thread that lives until the control plane is stopped. The kernel kills a child with the
// thread that started it, and Go may end the thread of a goroutine at any time.
type starter struct{ calls chan func() }

func newStarter() *starter {
	s := &starter{calls: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for call := range s.calls {
			call()
		}
	}()
	return s
}

// do runs a function on the thread of the starter.
func (s *starter) do(call func() error) error {
	result := make(chan error, 1)
	s.calls <- func() { result <- call() }
	return <-result
}

func (s *starter) end() {
	if s.calls != nil {
		close(s.calls)
		s.calls = nil
	}
}

// A program is a component that is started as a plain child process.
type program struct {
	title   string
	path    string
	args    []string
	env     []string
	log     string
	starter *starter
	ready   func(ctx context.Context) error
	// isolated has the process run in a PID namespace and a mount namespace of its own.
	isolated bool

	process *os.Process
	exited  chan struct{} // closed when the process has been waited for
	result  error         // of waiting; read it after exited is closed
}

func (c *program) name() string { return c.title }

func (c *program) start(ctx context.Context) error {
	if c.runs() {
		return nil
	}
	if err := c.launch(); err != nil {
		return fmt.Errorf("start %s: %w", c.title, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := c.ready(ctx)
		select {
		case <-c.exited: // then another process answers on its port
			c.process = nil
			return fmt.Errorf("start %s: it ended: %w; its log ends:\n%s", c.title, c.result, tail(c.log))
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w; its log ends:\n%s", c.title, errors.Join(ctx.Err(), err), tail(c.log))
		case <-tick.C:
		}
	}
}

func (c *program) launch() error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the process has its own handle
	command := exec.Command(c.path, c.args...)
	command.Env = append(os.Environ(), c.env...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = dieWithParent()
	if c.isolated {
		isolate(command.SysProcAttr)
	}
	if err := c.starter.do(command.Start); err != nil {
		return err
	}
	exited := make(chan struct{})
	c.process, c.exited = command.Process, exited
	go func() {
		c.result = command.Wait()
		close(exited)
	}()
	return nil
}

func (c *program) stop() error { return c.end(syscall.SIGTERM) }

func (c *program) kill() error { return c.end(syscall.SIGKILL) }

func (c *program) end(signal os.Signal) error {
	if c.process == nil {
		return nil
	}
	// A process that has ended in the meantime is what we want.
	if err := c.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.title, err)
	}
	select {
	case <-c.exited:
	case <-time.After(patience):
		_ = c.process.Kill()
		<-c.exited
	}
	c.process = nil
	return nil
}

func (c *program) runs() bool {
	return c.process != nil && c.lost() == nil
}

func (c *program) lost() error {
	if c.process == nil {
		return nil
	}
	select {
	case <-c.exited:
		return fmt.Errorf("%s ended by itself: %w; its log ends:\n%s", c.title, c.result, tail(c.log))
	default:
		return nil
	}
}

func (c *program) pid() int {
	if !c.runs() {
		return 0
	}
	return c.process.Pid
}

// tail returns the end of a log.
func tail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close() //nolint:errcheck // it was only read
	if end, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(0, end-tailBytes), io.SeekStart)
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	if cut := bytes.IndexByte(content, '\n'); len(content) == tailBytes && cut >= 0 {
		content = content[cut+1:]
	}
	return strings.TrimSpace(string(content))
}
