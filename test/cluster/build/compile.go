package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A job is one go command that builds several programs, so that both what they share is compiled once and the linker of one runs beside the
// compiler of another.
type job struct {
	title    string
	module   string // directory of the module
	dir      string // where the programs go
	flags    []string
	binaries []binary
}

// run builds the programs without cgo: so does the image of the manager, and packages that several jobs have in common are compiled once.
func (j *job) run(ctx context.Context) error {
	if err := os.MkdirAll(j.dir, 0o755); err != nil {
		return fmt.Errorf("make room for the binaries: %w", err)
	}
	args := append([]string{"build", "-v", "-o", j.dir + string(filepath.Separator)}, j.flags...)
	for _, b := range j.binaries {
		args = append(args, b.pkg)
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = j.module
	command.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	output, err := command.StderrPipe()
	if err != nil {
		return fmt.Errorf("build %s: %w", j.title, err)
	}
	lines := make(chan string)
	go readLines(output, lines)
	if err := command.Start(); err != nil {
		return fmt.Errorf("build %s: %w", j.title, err)
	}
	progress := newProgress(j)
	problems := progress.follow(lines)
	if err := command.Wait(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", j.title, err, strings.Join(problems, "\n"))
	}
	progress.say("%s: done, %d packages compiled", j.title, progress.compiled)
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

// progress reports how far a build is: one line for each finished binary, and one now and then in between.
type progress struct {
	dir      string
	start    time.Time
	compiled int
	waiting  []binary // not linked yet
	problems []string
}

func newProgress(j *job) *progress {
	p := &progress{dir: j.dir, start: time.Now(), waiting: slices.Clone(j.binaries)}
	p.say("building %s: %d programs; the first time takes minutes", j.title, len(p.waiting))
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

// tellLinked reports the programs that have been written since the build began.
func (p *progress) tellLinked() {
	p.waiting = slices.DeleteFunc(p.waiting, func(b binary) bool {
		info, err := os.Stat(filepath.Join(p.dir, cmp.Or(b.linkedAs, b.name)))
		if err != nil || info.ModTime().Before(p.start) {
			return false
		}
		p.say("built %s", b.name)
		return true
	})
}

func (p *progress) say(format string, args ...any) {
	elapsed := time.Since(p.start).Round(time.Second)
	fmt.Fprintf(os.Stderr, "%5s  %s\n", elapsed, fmt.Sprintf(format, args...))
}
