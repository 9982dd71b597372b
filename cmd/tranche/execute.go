package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/shadow"
)

// interruptGrace is how long a verb may take to end by itself after a signal: to remove what it has written in part.
const interruptGrace = time.Second

// errInterrupted is the result of a verb that a signal has ended.
var errInterrupted = errors.New("interrupted")

// endsItself reports whether a verb ends by itself when its context is done, in a time of its own: it serves, waits for others, or reports on what it has
// watched.
func endsItself(cmd *cobra.Command) bool {
	if cmd.Name() == "shadow" {
		return shadow.Watches(cmd)
	}
	return cmd.Name() == "manager" || cmd.Name() == "barrier" || cmd.Name() == "dashboard"
}

// execute runs the verb that the arguments name. An error before the verb begins is a mistake in the arguments, with the exit code of the verb for
// that. If the context ends, so does the verb, also while it reads from a pipe that never ends, waits for a slow API server, or computes.
func execute(ctx context.Context, root *cobra.Command) error {
	hasBegun := false
	adapt(root, &hasBegun) //nolint:contextcheck // each command has the context
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !hasBegun {
		return exitcode.AsUsage(cmd, err)
	}
	return err
}

// adapt lets each command below a command record that it has begun, and end with its context.
func adapt(cmd *cobra.Command, hasBegun *bool) {
	for _, child := range cmd.Commands() {
		adapt(child, hasBegun)
	}
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		*hasBegun = true
		if endsItself(cmd) {
			return run(cmd, args)
		}
		return interruptible(cmd.Context(), func() error { return run(cmd, args) })
	}
}

// interruptible returns the result of a function, or errInterrupted if the context ends and the function does not end soon afterwards. The function
// may still run then: the program is about to end.
func interruptible(ctx context.Context, run func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		if errors.Is(err, context.Canceled) {
			return errInterrupted
		}
		return err
	case <-time.After(interruptGrace):
		return errInterrupted
	}
}
