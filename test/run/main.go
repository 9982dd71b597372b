// Package main is what `make test` runs the tests with that need a control plane: several packages at a time, since each mostly waits, and the specs of
// large suites on several control planes. It prints how far it is every 20 seconds, and the output of what fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// progressEvery is how often the progress is printed.
const progressEvery = 20 * time.Second

// timeout limits a package.
const timeout = "60m"

// A job is one package whose tests run together.
type job struct {
	pkg string
	// processes is how many run the specs of a suite, each on a control plane of its own. 0 means that the package has no suite, or a small one.
	processes int
}

// jobs are all of them, in the order in which they begin: the long ones first.
var jobs = []job{
	{"./test/e2e", 2},
	{pkg: "./test/install"},
	{pkg: "./test/e2e/groupstart"},
	{pkg: "./test/e2e/podgroup"},
	{pkg: "./test/e2e/gang"},
	{pkg: "./test/e2e/dashboard"},
	{pkg: "./test/e2e/node"},
	{"./test/kueue", 2},
	{"./test/integration", 2},
	{pkg: "./test/soak"},
	{pkg: "./test/e2e/adoption"},
	{pkg: "./test/kueue/migration"},
	{pkg: "./test/controlplane"},
	{pkg: "./test/integration/shadow"},
	{pkg: "./test/invariants"},
}

// atOnce is how many processes run specs at the same time. Two cores are always busy with the control planes of so many.
const atOnce = 4

func main() {
	tags := flag.String("tags", "invariants", "build tags of the tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *tags); err != nil {
		fmt.Fprintln(os.Stderr, "test/run:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// run runs all jobs, and returns an error that names those that failed.
func run(ctx context.Context, tags string) error {
	if err := checkComplete(ctx, tags); err != nil {
		return err
	}
	board, err := newBoard(os.Stdout)
	if err != nil {
		return err
	}
	defer board.close()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	go board.watch(watching)
	defer board.printSlowest()
	var running sync.WaitGroup
	slots, failed := make(chan struct{}, atOnce), make([]error, len(jobs)+1)
	for i, j := range jobs {
		for range j.width() {
			slots <- struct{}{}
		}
		running.Go(func() {
			if ctx.Err() == nil {
				failed[i] = board.run(ctx, j, tags)
			}
			for range j.width() {
				<-slots
			}
		})
	}
	running.Wait()
	failed[len(jobs)] = ctx.Err()
	return errors.Join(failed...)
}
