package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
)

// Exit codes of `tranche barrier`.
const (
	exitTimedOut    = 3
	exitInterrupted = 143
)

// barrierFlags are those of `tranche barrier`.
type barrierFlags struct {
	dir, signal, terminationLog string
	timeout                     time.Duration
}

func newBarrierCommand() *cobra.Command {
	flags := barrierFlags{signal: os.Getenv("TRANCHE_SIGNAL")}
	cmd := &cobra.Command{
		Use:   "barrier",
		Short: "Wait until all pods of a group have started",
		Long: "Wait until all pods of a group have started. This command runs in the init container of pods with groupSchedulingConfig.\n" +
			"It reads the ConfigMap of the group, which is mounted in --dir. If the ConfigMap has the address of the manager, the command also\n" +
			"waits for the manager's answer, which arrives sooner than an update of the mounted files. Exit codes: 0 all pods have started,\n" +
			"3 the timeout has expired, 143 interrupted, 1 any other error. The error is also written to the termination message.",
		Example: "  tranche barrier --timeout 5m --dir /mnt/group-scheduling --signal $TRANCHE_SIGNAL",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := runBarrier(cmd, flags)
			return errors.Join(err, writeTerminationMessage(flags.terminationLog, err))
		},
	}
	cmd.Flags().StringVar(&flags.dir, "dir", "/mnt/group-scheduling", "directory where the ConfigMap of the group is mounted")
	cmd.Flags().StringVar(&flags.signal, "signal", flags.signal, "the pod's entry in the ConfigMap, as in $TRANCHE_SIGNAL, which is the default")
	cmd.Flags().DurationVar(&flags.timeout, "timeout", 0, "how long to wait, such as 300s (required)")
	cmd.Flags().StringVar(&flags.terminationLog, "termination-log", "/dev/termination-log", "file to which the error is written, if the file exists")
	return cmd
}

func runBarrier(cmd *cobra.Command, flags barrierFlags) error {
	if flags.signal == "" {
		return errors.New("--signal or $TRANCHE_SIGNAL must be set to the pod's entry in the ConfigMap of the group")
	}
	if flags.timeout <= 0 {
		return fmt.Errorf("--timeout is %s, must be greater than 0, such as 300s", flags.timeout)
	}
	waiter := &barrier.Waiter{Dir: flags.dir, Signal: flags.signal, Timeout: flags.timeout, OnError: func(err error) {
		cmd.PrintErrln("tranche: the manager does not answer; still reading the ConfigMap of the group:", err)
	}}
	err := waiter.Wait(cmd.Context())
	if _, timedOut := errors.AsType[*barrier.TimeoutError](err); timedOut {
		return &exitcode.Error{Code: exitTimedOut, Err: err}
	}
	if errors.Is(err, context.Canceled) {
		return &exitcode.Error{Code: exitInterrupted, Err: errors.New("interrupted before all pods of the group had started")}
	}
	return err
}

// writeTerminationMessage writes an error to the termination message of the container. If a user runs the command by hand, that file does not exist.
func writeTerminationMessage(path string, why error) error {
	if why == nil {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0) //nolint:gosec // the user who starts the container chooses the file
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the termination message: %w", err)
	}
	_, err = file.WriteString(why.Error())
	return errors.Join(err, file.Close())
}
