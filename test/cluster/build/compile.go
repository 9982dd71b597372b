package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// compile builds all programs with one go command, so that both what they share is compiled once and the linker of one runs
// beside the compiler of another.
func (r *recipe) compile(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make room for the binaries: %w", err)
	}
	args := append([]string{"build", "-v", "-o", dir + string(filepath.Separator)}, r.flags...)
	for _, b := range binaries() {
		args = append(args, b.pkg)
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = r.module
	command.Env = append(os.Environ(), "GOWORK=off")
	output, err := command.StderrPipe()
	if err != nil {
		return fmt.Errorf("build the control plane: %w", err)
	}
	lines := make(chan string)
	go readLines(output, lines)
	if err := command.Start(); err != nil {
		return fmt.Errorf("build the control plane: %w", err)
	}
	problems := newProgress(dir).follow(lines)
	if err := command.Wait(); err != nil {
		return fmt.Errorf("build the control plane: %w\n%s", err, strings.Join(problems, "\n"))
	}
	return nil
}

func readLines(from io.Reader, to chan<- string) {
	defer close(to)
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		to <- scanner.Text()
	}
}

// progress tells how far a build is: one line for each finished binary, and one now and then in between.
type progress struct {
	dir      string
	start    time.Time
	compiled int
	waiting  map[string]binary // not linked yet, by name
	problems []string
}

func newProgress(dir string) *progress {
	p := &progress{dir: dir, start: time.Now(), waiting: map[string]binary{}}
	for _, b := range binaries() {
		p.waiting[b.name] = b
	}
	p.say("building the test control plane: %d programs; the first time takes minutes", len(p.waiting))
	return p
}

// follow returns, at the end of the build's output, the lines that are not names of compiled packages.
func (p *progress) follow(lines <-chan string) []string {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	sign := time.NewTicker(20 * time.Second)
	defer sign.Stop()
	for {
		select {
		case line, open := <-lines:
			if !open {
				p.tellLinked()
				return p.problems
			}
			if strings.Contains(line, " ") {
				p.problems = append(p.problems, line)
			} else {
				p.compiled++
			}
		case <-look.C:
			p.tellLinked()
		case <-sign.C:
			p.say("compiled %d packages", p.compiled)
		}
	}
}

func (p *progress) tellLinked() {
	for _, b := range binaries() {
		file := b.linkedAs
		if file == "" {
			file = b.name
		}
		if _, waiting := p.waiting[b.name]; waiting && exists(filepath.Join(p.dir, file)) {
			delete(p.waiting, b.name)
			p.say("built %s", b.name)
		}
	}
}

func (p *progress) say(format string, args ...any) {
	elapsed := time.Since(p.start).Round(time.Second)
	fmt.Fprintf(os.Stderr, "%5s  %s\n", elapsed, fmt.Sprintf(format, args...))
}
