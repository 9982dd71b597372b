package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tranche-dev/tranche/test/progress"
)

// slowest is how many specs are printed that took longest.
const slowest = 20

// stopWithin is how long the processes of a job have to end when they are asked to.
const stopWithin = 30 * time.Second

// A board knows which jobs run, and how far they are.
type board struct {
	file  string // that suites append to
	out   io.Writer
	began time.Time

	mu      sync.Mutex
	read    int64 // bytes of file
	running []*standing
	ended   []progress.Report // specs
}

// A standing is how far a running job is.
type standing struct {
	pkg   string
	began time.Time
	// specs is how many there are, or 0 if that is not known.
	specs, done, failed int
}

// newBoard returns a board that prints to a writer.
func newBoard(out io.Writer) (*board, error) {
	file, err := os.CreateTemp("", "tranche-progress-")
	if err != nil {
		return nil, fmt.Errorf("make the file of the progress: %w", err)
	}
	return &board{file: file.Name(), out: out, began: time.Now()}, file.Close()
}

func (b *board) close() { _ = os.Remove(b.file) }

func (b *board) print(format string, values ...any) { _, _ = fmt.Fprintf(b.out, format, values...) }

// run runs one job to its end. It prints the output if the job fails, and a line if it does not.
func (b *board) run(ctx context.Context, j job, tags string) error {
	s := b.begin(j)
	var output bytes.Buffer
	command := j.command(ctx, tags)
	command.Env = append(os.Environ(), progress.FileVariable+"="+b.file, "GINKGO_NO_COLOR=TRUE")
	command.Stdout, command.Stderr = &output, &output
	// The tests are grandchildren: a signal for the whole group lets them stop their control planes.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.WaitDelay = stopWithin
	err := command.Run()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.update()
	b.running = slices.DeleteFunc(b.running, func(other *standing) bool { return other == s })
	took := time.Since(s.began).Round(time.Second)
	if err != nil {
		b.print("%s\nFAIL %s %s\n", output.Bytes(), j.pkg, took)
		return fmt.Errorf("%s: %w", j.pkg, err)
	}
	b.print("ok   %s %s%s\n", j.pkg, took, s.count())
	return nil
}

func (b *board) begin(j job) *standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &standing{pkg: strings.TrimPrefix(j.pkg, "./"), began: time.Now()}
	b.running = append(b.running, s)
	return s
}

// watch prints the progress until the context ends.
func (b *board) watch(ctx context.Context) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.mu.Lock()
		b.update()
		b.print("%s\n", b.line(time.Now()))
		b.mu.Unlock()
	}
}

// update applies the reports that suites have appended since the last time.
func (b *board) update() {
	data, err := os.ReadFile(b.file)
	if err != nil {
		return // only the progress is not known
	}
	fresh := data[min(b.read, int64(len(data))):]
	end := int64(bytes.LastIndexByte(fresh, '\n') + 1)
	b.read += end
	for line := range bytes.Lines(fresh[:end]) {
		var r progress.Report
		if json.Unmarshal(line, &r) == nil {
			b.apply(&r)
		}
	}
}

func (b *board) apply(r *progress.Report) {
	for _, s := range b.running {
		if !strings.HasSuffix(filepath.ToSlash(r.Package), "/"+s.pkg) {
			continue
		}
		if r.Spec != "" {
			b.ended = append(b.ended, *r)
		}
		switch {
		case r.Spec == "":
			s.specs = r.Specs
		case r.Failed:
			s.done++
			s.failed++
		default:
			s.done++
		}
	}
}

// line says how far all running jobs are.
func (b *board) line(now time.Time) string {
	parts := []string{now.Sub(b.began).Round(time.Second).String()}
	for _, s := range b.running {
		parts = append(parts, s.pkg+s.count()+", "+now.Sub(s.began).Round(time.Second).String())
	}
	return strings.Join(parts, " | ")
}

// printSlowest prints the specs that took longest.
func (b *board) printSlowest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortStableFunc(b.ended, func(x, y progress.Report) int { return cmp.Compare(y.Seconds, x.Seconds) })
	for _, r := range b.ended[:min(slowest, len(b.ended))] {
		b.print("%4.0f s  %s: %s\n", r.Seconds, filepath.Base(r.Package), r.Spec)
	}
}

// count says how many specs are done, for a suite.
func (s *standing) count() string {
	if s.specs == 0 {
		return ""
	}
	text := fmt.Sprintf(": %d of %d specs", s.done, s.specs)
	if s.failed > 0 {
		text += fmt.Sprintf(", %d failed", s.failed)
	}
	return text
}
