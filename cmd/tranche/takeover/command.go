// Package takeover has the verbs by which an administrator lets Tranche admit in cohort trees beside Kueue, and hands them back.
package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
)

const (
	poll           = 250 * time.Millisecond
	defaultTimeout = 2 * time.Minute
)

// dataHelp is the part of the help about the output for programs.
const dataHelp = "With -o json and -o yaml the output is one document: engine, clusterQueues with annotations and stopPolicy, obstacles, warnings, unsupported, differences,\n" +
	"message, and the result: Possible, Blocked, Done or Unfinished. The command does not ask then: --yes or --dry-run is required.\n\n"

// flags are those of both verbs.
type flags struct {
	query.Flags
	format      output.Format
	dryRun, yes bool
	timeout     time.Duration
}

func (f *flags) add(cmd *cobra.Command) {
	cmd.ValidArgsFunction = f.CompleteEach(query.ClusterQueues)
	f.AddKubeconfig(cmd)
	f.format.Add(cmd, output.JSON, output.YAML)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the plan, and change nothing")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask; required with -o json and -o yaml, unless with --dry-run")
	cmd.Flags().DurationVar(&f.timeout, "timeout", defaultTimeout, "how long to wait for the managers of Kueue and Tranche")
}

// NewCommand returns the verb that takes cohort trees over.
func NewCommand(version string) *cobra.Command {
	f := &flags{Flags: query.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "takeover CLUSTERQUEUE...",
		Short: "Let Tranche admit in cohort trees, beside Kueue",
		Long: "Let Tranche admit in cohort trees instead of Kueue, in the mode Beside. The arguments are all ClusterQueues of each tree. The command prints what\n" +
			"stands in the way, how to correct it, what will differ, and which Workloads Tranche does not admit. Then it asks, sets the annotation\n" +
			"tranche.dev/engine: Tranche and spec.stopPolicy: Hold, and waits until Tranche admits. Nothing that runs is touched, and what waits keeps its place.\n\n" +
			dataHelp +
			"Exit code: 0 if Tranche admits, or with --dry-run could; 1 if something stands in the way, or the change is unfinished; 2 on bad input.",
		Example: "  tranche takeover research serving --dry-run\n  tranche takeover research serving --yes -o json",
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
			dataHelp +
			"Exit code: 0 if Kueue may admit, or with --dry-run could; 1 if something stands in the way, or the change is unfinished; 2 on bad input.",
		Example: "  tranche hand-back research serving --dry-run\n  tranche hand-back research serving",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args, handBack)
		},
	}
	f.add(cmd)
	return cmd
}

// A verb reads what only it needs, makes a plan for trees, and carries it out.
type verb struct {
	read func(*state, context.Context) error
	plan func(*state) (*Plan, error)
	act  func(*state, context.Context, *Plan) error
}

func (f *flags) run(cmd *cobra.Command, names []string, v verb) error {
	if !f.format.IsText() && !f.yes && !f.dryRun {
		return exitcode.AsBadInput(fmt.Errorf("with -o %s the command does not ask: add --yes, or --dry-run to change nothing", f.format))
	}
	if f.timeout <= 0 {
		return exitcode.AsBadInput(fmt.Errorf("--timeout is %s, must be positive", f.timeout))
	}
	c, err := f.Connect()
	if err != nil {
		return err
	}
	seen, err := read(cmd.Context(), c.Client, names)
	if err != nil {
		return err
	}
	if err := v.read(seen, cmd.Context()); err != nil {
		return err
	}
	p, err := v.plan(seen)
	if err != nil {
		return err
	}
	err = f.carryOut(cmd, p, func(ctx context.Context) error { return v.act(seen, ctx, p) })
	if f.format.IsText() {
		return err
	}
	return errors.Join(err, f.format.Write(cmd.OutOrStdout(), p))
}

// carryOut shows a plan as text, asks the user, and acts.
func (f *flags) carryOut(cmd *cobra.Command, p *Plan, act func(context.Context) error) error {
	blocked, out := p.block(), cmd.OutOrStdout()
	if f.format.IsText() {
		if err := p.writeText(out); err != nil {
			return err
		}
	}
	if blocked != nil || f.dryRun {
		return blocked
	}
	if !f.yes {
		if err := output.Confirm(cmd.InOrStdin(), out); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	if err := p.finish(act(ctx)); err != nil || !f.format.IsText() {
		return err
	}
	_, err := fmt.Fprintf(out, "%s admits.\n", p.Engine)
	return err
}
