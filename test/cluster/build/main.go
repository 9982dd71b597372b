// Command build makes the binaries of the test control plane from the modules that go.mod pins. They are written to bin/KEY, where KEY is a
// hash of all inputs of the build, together with their manifests; existing binaries are not built again. Progress goes to standard error,
// and the directory is the only line on standard output.
//
// With -kueue it makes Kueue's manager and command line instead, from the modules that kueue/go.mod pins, into bin/kueue-KEY, and with -schedulers
// Coscheduling and Volcano, from those that schedulers/go.mod pins, into bin/schedulers-KEY.
//
// With -with it also builds the manager and the demo, into the directory bin of the main module: all that `make demo` needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	with := flag.String("with", "", "directory of the main module: build its manager and its demo, too")
	version := flag.String("version", "dev", "version that the manager reports")
	onlyKueue := flag.Bool("kueue", false, "build Kueue instead of the control plane")
	onlySchedulers := flag.Bool("schedulers", false, "build other schedulers of gangs instead of the control plane")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *with != "" {
		if err := buildMain(ctx, *with, *version); err != nil {
			fmt.Fprintln(os.Stderr, "build:", err)
			stop()
			os.Exit(1)
		}
	}
	wanted := controlPlane()
	switch {
	case *onlyKueue:
		wanted = kueue()
	case *onlySchedulers:
		wanted = schedulers()
	}
	dir, err := build(ctx, wanted)
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		stop()
		os.Exit(1)
	}
	fmt.Println(dir)
}

// buildMain builds the programs of the main module with the flags of `make build`.
func buildMain(ctx context.Context, root, version string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return fmt.Errorf("find the main module: %w", err)
	}
	main := &job{
		title: "the manager and the demo", module: root, dir: filepath.Join(root, "bin"),
		flags:    []string{"-trimpath", "-ldflags=-s -w -X main.version=" + version},
		binaries: []binary{{name: "tranche", pkg: "./cmd/tranche"}, {name: "demo", pkg: "./test/demo"}},
	}
	return main.run(ctx)
}

// build returns the directory that holds a product, and fills it first if it is not there.
func build(ctx context.Context, p *product) (string, error) {
	module, err := moduleDir(ctx)
	if err != nil {
		return "", err
	}
	recipe, err := newRecipe(ctx, p, filepath.Join(module, p.module))
	if err != nil {
		return "", err
	}
	bin := filepath.Join(module, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("make room for the binaries: %w", err)
	}
	done := filepath.Join(bin, p.prefix+recipe.key)
	if exists(done) {
		return done, nil
	}
	unlock, err := lock(filepath.Join(bin, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(done) { // another process built it while we waited
		return done, nil
	}
	// A directory without its final name is never used, so an interrupted build leaves no partial result.
	unfinished := filepath.Join(bin, "unfinished")
	if err := os.RemoveAll(unfinished); err != nil {
		return "", fmt.Errorf("remove an unfinished build: %w", err)
	}
	if err := recipe.buildInto(ctx, unfinished); err != nil {
		return "", err
	}
	if err := os.Rename(unfinished, done); err != nil {
		return "", fmt.Errorf("publish the binaries: %w", err)
	}
	return done, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lock lets one build run at a time, also among several processes, and is given up when the process ends.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock %s: %w", path, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("take lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}
