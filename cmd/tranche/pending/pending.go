// Package pending is the verb that lists pending quota Workloads.
package pending

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
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
			"they would be admitted if all fitted. Positions count from 0. The manager must serve the visibility API.\n\n" +
			"With --snapshot, list the pending quota Workloads of a snapshot by their expected start instead. It follows from a simulation in which\n" +
			"each stage ends when its maximum execution time has passed: \"by\" a time. If a stage cannot start before others end that have no\n" +
			"maximum execution time, its start is unknown, and these others are named. If earlier JobSets of the same series have run, it is also\n" +
			"expected \"about\" a time. Later submissions and failures are not predicted.\n\n" +
			"Exit code: 0 if there is an answer; 1 if there is none; 2 on bad input.",
		Example: "  tranche pending -n team-a                       # in all LocalQueues of a namespace\n" +
			"  tranche pending -n team-a --queue main\n" +
			"  tranche pending --cluster-queue gpus --limit 20\n" +
			"  tranche pending -n team-a -o wide --watch       # with the reasons, whenever they change\n" +
			"  tranche pending --snapshot cluster.tar.gz       # expected starts, in all namespaces",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return exitcode.AsBadInput(err)
			}
			if f.snapshot.Path != "" {
				return f.expectedStarts(cmd)
			}
			c, err := f.Connect()
			if err != nil {
				return err
			}
			return output.Repeat(cmd.Context(), &f.watch, cmd.ErrOrStderr(),
				func(ctx context.Context) ([]visibility.PendingWorkload, error) { return f.pendingOf(ctx, c) },
				func(items []visibility.PendingWorkload) error { return f.write(cmd.OutOrStdout(), items, time.Now()) })
		},
	}
	f.Add(cmd)
	cmd.Flags().StringVar(&f.clusterQueue, "cluster-queue", "", "name of a ClusterQueue; requires permission to read clusterqueues/pendingworkloads")
	cmd.Flags().StringVar(&f.localQueue, "queue", "", "name of a LocalQueue in the namespace")
	cmd.Flags().Int64Var(&f.parameters.Limit, "limit", 0, "maximum number of quota Workloads for each queue; defaults to 1000")
	cmd.Flags().Int64Var(&f.parameters.Offset, "offset", 0, "position in the queue of the first quota Workload to list")
	f.snapshot.Add(cmd)
	cmd.Flags().DurationVar(&f.until, "until", 7*24*time.Hour, "with --snapshot: how long after the snapshot the simulation ends")
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

// expectedStarts prints when the pending quota Workloads of a snapshot start.
func (f *flags) expectedStarts(cmd *cobra.Command) error {
	s, err := f.snapshot.Read(cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	filter := expected.Filter{Namespace: f.Namespace, LocalQueue: f.localQueue, ClusterQueue: f.clusterQueue}
	if err := filter.Validate(s); err != nil {
		return exitcode.AsBadInput(err)
	}
	list, err := expected.NewList(cmd.ErrOrStderr(), s, filter, f.until)
	switch {
	case err != nil:
		return exitcode.AsBadInput(err)
	case f.format.IsText():
		return list.Write(cmd.OutOrStdout())
	}
	return f.format.Write(cmd.OutOrStdout(), list)
}

// pendingOf returns the pending quota Workloads of the queues that the flags select.
func (f *flags) pendingOf(ctx context.Context, c *query.Cluster) ([]visibility.PendingWorkload, error) {
	queues := []types.NamespacedName{{Namespace: c.Namespace, Name: f.localQueue}}
	switch {
	case f.clusterQueue != "":
		queues = []types.NamespacedName{{Name: f.clusterQueue}}
	case f.localQueue == "":
		var list kueue.LocalQueueList
		if err := c.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
			return nil, fmt.Errorf("list the LocalQueues of namespace %s: %w", c.Namespace, err)
		}
		if len(list.Items) == 0 {
			return nil, fmt.Errorf("namespace %q has no LocalQueue; choose another namespace with -n", c.Namespace)
		}
		queues = nil
		for i := range list.Items {
			queues = append(queues, client.ObjectKeyFromObject(&list.Items[i]))
		}
	}
	var items []visibility.PendingWorkload
	for _, queue := range queues {
		summary, err := c.Pending(ctx, queue, f.parameters)
		switch {
		case query.IsUnserved(err) || apierrors.IsForbidden(err):
			return nil, fmt.Errorf("%w\n%s.\nWithout the API, \"kubectl get kwl -n %s -o wide\" lists quota Workloads with the reasons why they are pending, and "+
				"\"tranche explain JOBSET\" shows the stages of a JobSet", err, query.WithoutVisibility(err), c.Namespace)
		case err != nil:
			return nil, err
		}
		items = append(items, summary.Items...)
	}
	return items, nil
}

// write prints quota Workloads in the selected format. JSON and YAML have the kind of the visibility API.
func (f *flags) write(out io.Writer, items []visibility.PendingWorkload, now time.Time) error {
	if !f.format.IsText() {
		return f.format.Write(out, &visibility.PendingWorkloadsSummary{
			TypeMeta: metav1.TypeMeta{APIVersion: visibility.SchemeGroupVersion.String(), Kind: "PendingWorkloadsSummary"}, Items: append([]visibility.PendingWorkload{}, items...), // a list, not null
		})
	}
	if len(items) == 0 {
		_, err := fmt.Fprintln(out, "No pending quota Workloads.")
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(table, "CLUSTERQUEUE-POSITION\tLOCALQUEUE-POSITION\tNAMESPACE\tNAME\tQUEUE\tPRIORITY\tAGE\tOWNER"+f.ifWide("\tREASON\tMESSAGE"))
	for i := range items {
		w := &items[i]
		_, failure := fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%d\t%s\t%s%s\n", w.PositionInClusterQueue, w.PositionInLocalQueue,
			w.Namespace, w.Name, w.LocalQueueName, w.Priority, duration.HumanDuration(now.Sub(w.CreationTimestamp.Time)), ownerOf(w), f.ifWide("\t"+strings.Join(reasonOf(w), "\t")))
		err = errors.Join(err, failure)
	}
	return errors.Join(err, table.Flush())
}

// ifWide returns the cells of a row that only the wide format has.
func (f *flags) ifWide(cells string) string {
	if f.format == output.Wide {
		return cells
	}
	return ""
}

// reasonOf returns the reason and the message of the explanation of a quota Workload.
func reasonOf(w *visibility.PendingWorkload) []string {
	var x visibilityapi.Explanation
	if json.Unmarshal([]byte(w.Annotations[apis.ExplanationAnnotation]), &x) != nil {
		return []string{"-", "-"} // written by a manager of another version, or by Kueue
	}
	return []string{cmp.Or(x.Reason, "-"), cmp.Or(x.Message, "-")}
}

// ownerOf returns the kind and name of the controller of a quota Workload.
func ownerOf(w *visibility.PendingWorkload) string {
	if owner := metav1.GetControllerOf(w); owner != nil {
		return owner.Kind + "/" + owner.Name
	}
	return "-"
}
