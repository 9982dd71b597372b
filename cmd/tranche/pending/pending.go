// Package pending is the verb that lists pending quota Workloads.
package pending

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/cmd/tranche/live"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
)

// flags are those of the verb.
type flags struct {
	query.Flags
	clusterQueue, localQueue string
	parameters               query.Parameters
	snapshot                 snapshotfile.Flags
	until                    time.Duration
	format                   output.Format
	watch                    output.Watch
}

// NewCommand returns the verb of a program of this version.
func NewCommand(version string) *cobra.Command {
	f := flags{Flags: query.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "List pending quota Workloads by queue position",
		Long: "List the pending quota Workloads of a ClusterQueue, of a LocalQueue, or of all LocalQueues of a namespace, in the order in which\n" +
			"they would be admitted if all fitted. Positions count from 0. Expected starts are those that the manager has written to the JobSets. Those of\n" +
			"Jobs and gangs of pods come from a snapshot that the command takes with your own rights; without them, a line below the table says why. If the\n" +
			"visibility API is not served or you may not read it, the command takes a snapshot of the cluster with your own rights and answers from\n" +
			"that. Then the list also has, at its end, what is not in a queue: stages that wait for earlier ones, or are evicted.\n\n" +
			"With --snapshot, list those of a snapshot, by default of all namespaces. The expected start follows from a simulation in which each stage\n" +
			"ends when its maximum execution time has passed: \"by\" a time. If a stage cannot start before others end that have no maximum execution\n" +
			"time, its start is unknown, and these others are named. If earlier JobSets of the same series have run, it is also expected \"about\" a time.\n" +
			"Later submissions and failures are not predicted.\n\n" +
			"Exit code: 0 if there is an answer, also if a signal ends --watch after it; 1 if there is none; 2 on bad input.",
		Example: "  tranche pending -n team-a                       # in all LocalQueues of a namespace\n" +
			"  tranche pending -n team-a --queue main\n" +
			"  tranche pending --cluster-queue gpus --limit 20\n" +
			"  tranche pending -n team-a -o wide --watch       # with the ClusterQueues and reasons, whenever they change\n" +
			"  tranche pending --snapshot cluster.tar.gz       # offline, in all namespaces",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return exitcode.AsBadInput(err)
			}
			if f.snapshot.Path != "" {
				return f.answerOffline(cmd)
			}
			connected, err := f.Connect()
			if err != nil {
				return err
			}
			c := &cluster{Cluster: connected, flags: &f, taker: live.Taker{Flags: f.Flags, Warnings: cmd.ErrOrStderr()}}
			return output.Repeat(cmd.Context(), &f.watch, cmd.ErrOrStderr(), c.list, func(l *List) error { return f.write(cmd.OutOrStdout(), l, time.Now()) })
		},
	}
	f.Add(cmd)
	cmd.Flags().StringVar(&f.clusterQueue, "cluster-queue", "", "name of a ClusterQueue; requires permission to read clusterqueues/pendingworkloads")
	cmd.Flags().StringVar(&f.localQueue, "queue", "", "name of a LocalQueue in the namespace")
	cmd.Flags().Int64Var(&f.parameters.Limit, "limit", 0, "maximum number of quota Workloads for each queue; defaults to 1000")
	cmd.Flags().Int64Var(&f.parameters.Offset, "offset", 0, "position in the queue of the first quota Workload to list")
	f.snapshot.Add(cmd)
	cmd.Flags().DurationVar(&f.until, "until", 7*24*time.Hour, "how long after a snapshot the simulation of expected starts ends")
	cmd.MarkFlagsMutuallyExclusive("cluster-queue", "queue")
	f.format.Add(cmd, output.Wide, output.JSON, output.YAML)
	f.watch.Add(cmd)
	f.CompleteFlag(cmd, "cluster-queue", query.ClusterQueues)
	f.CompleteFlag(cmd, "queue", query.LocalQueues)
	for _, other := range []string{"kubeconfig", "limit", "offset", "watch"} {
		cmd.MarkFlagsMutuallyExclusive("snapshot", other)
	}
	cmd.MarkFlagsMutuallyExclusive("cluster-queue", "namespace")
	return cmd
}

// validate checks the values of flags.
func (f *flags) validate() error {
	switch {
	case f.parameters.Limit < 0:
		return fmt.Errorf("--limit is %d, must not be negative", f.parameters.Limit)
	case f.parameters.Offset < 0:
		return fmt.Errorf("--offset is %d, must not be negative", f.parameters.Offset)
	case f.until <= 0:
		return fmt.Errorf("--until is %s, must be positive", f.until)
	}
	return f.watch.Validate()
}

// filter returns the objects that the flags select.
func (f *flags) filter() Filter {
	return Filter{Namespace: f.Namespace, LocalQueue: f.localQueue, ClusterQueue: f.clusterQueue}
}

// answerOffline prints the pending quota Workloads of a snapshot.
func (f *flags) answerOffline(cmd *cobra.Command) error {
	s, err := f.snapshot.Read(cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if lacks := snapshotfile.LacksFoundation(s); lacks != "" {
		return exitcode.AsBadInput(fmt.Errorf("%s: positions and expected starts are not known; tranche explain shows the states of stages", lacks))
	}
	if err := f.filter().Validate(s); err != nil {
		return exitcode.AsBadInput(err)
	}
	o := &offline{Snapshot: s, filter: f.filter(), horizon: f.until, startOf: expected.Of, warnings: cmd.ErrOrStderr()}
	list, err := o.list()
	if err != nil {
		return exitcode.AsBadInput(err)
	}
	return f.write(cmd.OutOrStdout(), list, list.TakenAt)
}

// write prints a list in the selected format.
func (f *flags) write(out io.Writer, l *List, now time.Time) error {
	if !f.format.IsText() {
		return f.format.Write(out, l)
	}
	return l.write(out, f.format, now)
}
