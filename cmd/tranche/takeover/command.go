// Package takeover has the verbs by which an administrator lets Tranche admit in cohort trees beside Kueue, and hands them back.
package takeover

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
)

const (
	poll           = 250 * time.Millisecond
	defaultTimeout = 2 * time.Minute
)

// flags are those of both verbs.
type flags struct {
	query.Flags
	dryRun, yes bool
	timeout     time.Duration
}

func (f *flags) add(cmd *cobra.Command) {
	cmd.ValidArgsFunction = f.CompleteEach(query.ClusterQueues)
	f.AddKubeconfig(cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the plan, and change nothing")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.Flags().DurationVar(&f.timeout, "timeout", defaultTimeout, "how long to wait for the managers of Kueue and Tranche")
}

// NewCommand returns the verb that takes cohort trees over.
func NewCommand(version string) *cobra.Command {
	f := &flags{Flags: query.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "takeover CLUSTERQUEUE...",
		Short: "Let Tranche admit in cohort trees, beside Kueue",
		Long: "Let Tranche admit in cohort trees instead of Kueue, in the mode Beside. The arguments are all ClusterQueues of each tree. The command prints what\n" +
			"stands in the way, how to correct it, and what will differ. Then it asks, sets the annotation tranche.dev/engine: Tranche and\n" +
			"spec.stopPolicy: Hold, and waits until Tranche admits. Nothing that runs is touched, and what waits keeps its place.\n\n" +
			"Exit code: 0 if Tranche admits, or with --dry-run could; 1 otherwise; 2 on bad input.",
		Example: "  tranche takeover research serving --dry-run\n  tranche takeover research serving",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args, takeOver)
		},
	}
	f.add(cmd)
	return cmd
}

// NewHandBackCommand returns the verb that hands cohort trees back.
func NewHandBackCommand(version string) *cobra.Command {
	f := &flags{Flags: query.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "hand-back CLUSTERQUEUE...",
		Short: "Let Kueue admit again in cohort trees that were taken over",
		Long: "Let Kueue admit again in cohort trees that Tranche has taken over. The arguments are all ClusterQueues of each tree. The command removes the\n" +
			"annotations of the takeover, waits until Tranche no longer admits, and ends the hold for Kueue. Nothing that runs is touched, and what waits\n" +
			"keeps its place.\n\n" +
			"Exit code: 0 if Kueue may admit, or with --dry-run could; 1 otherwise; 2 on bad input.",
		Example: "  tranche hand-back research serving",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args, handBack)
		},
	}
	f.add(cmd)
	return cmd
}

// A verb prints a plan for trees, and acts.
type verb struct {
	plan func(io.Writer, *state) error
	act  func(context.Context, io.Writer, *state) error
}

func (f *flags) run(cmd *cobra.Command, names []string, v verb) error {
	c, err := f.Connect()
	if err != nil {
		return err
	}
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	seen, err := read(ctx, c.Client, names)
	if err != nil {
		return err
	}
	if err := v.plan(out, seen); err != nil || f.dryRun {
		return err
	}
	if !f.yes {
		if err := confirm(cmd.InOrStdin(), out); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return v.act(ctx, out, seen)
}

// confirm asks the user.
func confirm(in io.Reader, out io.Writer) error {
	if _, err := fmt.Fprint(out, "\nContinue? [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return exitcode.AsBadInput(errors.New("not confirmed, nothing has changed: answer y, or use --yes"))
	}
	return nil
}
