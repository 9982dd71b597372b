// Package explain is the verb that shows why stages are pending, when they are expected to start, and what would let them in.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// flags are those of the verb.
type flags struct {
	query.Flags
	snapshot snapshotfile.Flags
	until    time.Duration
}

// NewCommand returns the verb of a program of this version.
func NewCommand(version string) *cobra.Command {
	f := flags{Flags: query.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Show the stages of a JobSet, and why a stage is pending",
		Long: "Show the state of each stage of a JobSet, or of one quota Workload. For a pending stage, print its queue positions, the limit that\n" +
			"it exceeds and by how much, and the JobSets that hold the missing quota. Objects of other namespaces are named only if you may read\n" +
			"clusterqueues/pendingworkloads. If the visibility API is not served or you may not read it, the command takes a snapshot of the\n" +
			"cluster with your own rights and answers from that. If these do not suffice, it prints the conditions of the quota Workloads.\n\n" +
			"With --snapshot, answer from a snapshot of the cluster, without the cluster. The answer also has the expected start of each pending\n" +
			"stage, and what would let it in: at most three sets of running quota Workloads that end, or of limits that are raised, the cheapest\n" +
			"first. The engine of the manager was asked about each set: it admits the stage after these changes, and not after a part of them.\n\n" +
			"Exit code: 0 if there is an answer; 1 if there is none; 2 on bad input.",
		Example: "  tranche explain -n team-a fine-tune-llm\n  tranche explain -n team-a jobset-fine-tune-llm-train-1a2b3\n" +
			"  tranche explain -n team-a fine-tune-llm --snapshot cluster.tar.gz   # offline, with expected starts and what would let it in",
		Args: func(cmd *cobra.Command, args []string) error {
			return exitcode.AsBadInput(cobra.ExactArgs(1)(cmd, args))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			source, namespace, err := f.source(cmd)
			if err != nil {
				return err
			}
			e := &explainer{source: source, out: cmd.OutOrStdout()}
			return e.explain(cmd.Context(), types.NamespacedName{Namespace: namespace, Name: args[0]})
		},
	}
	f.Add(cmd)
	f.snapshot.Add(cmd)
	cmd.Flags().DurationVar(&f.until, "until", 7*24*time.Hour, "with --snapshot: how long after the snapshot the simulation ends")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitcode.AsBadInput(err) })
	return cmd
}

// source returns the cluster or the snapshot, and the namespace of the name.
func (f *flags) source(cmd *cobra.Command) (s source, namespace string, err error) {
	if f.until <= 0 {
		return nil, "", exitcode.AsBadInput(fmt.Errorf("--until is %s, must be positive", f.until))
	}
	if f.snapshot.Path == "" {
		c, err := f.Connect()
		if err != nil {
			return nil, "", err
		}
		return &cluster{Cluster: c, fallback: fallback{flags: f.Flags, horizon: f.until, warnings: cmd.ErrOrStderr()}}, c.Namespace, nil
	}
	if f.Kubeconfig != "" {
		return nil, "", exitcode.AsBadInput(errors.New("--snapshot and --kubeconfig exclude each other: a snapshot is answered about without a cluster"))
	}
	taken, err := f.snapshot.Read(cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return nil, "", err
	}
	return &offline{Snapshot: taken, horizon: f.until, warnings: cmd.ErrOrStderr()}, f.Namespace, nil
}

// A source has the objects of a cluster, and knows why stages wait.
type source interface {
	// find returns the quota Workload of a name, or the JobSet of that name and its quota Workloads. There may be several in an unknown namespace.
	find(ctx context.Context, key types.NamespacedName) (*subject, error)
	// why returns why a pending quota Workload waits. limits is the error because of which that is not known.
	why(ctx context.Context, w *kueue.Workload) (a *answer, limits, err error)
}

// A subject is what is explained: a quota Workload, or a JobSet and its quota Workloads.
type subject struct {
	key       types.NamespacedName
	jobSet    *jobsetapi.JobSet
	isJobSet  bool
	workloads []*kueue.Workload
}

// An answer is what is known about a quota Workload that is not admitted.
type answer struct {
	// isQueued is true if it is in a queue, at this position. Only then the explanation counts.
	isQueued                     bool
	inClusterQueue, inLocalQueue int
	localQueue                   string
	priority                     int32
	explanation                  visibilityapi.Explanation
	// more has the expected start, and what would let it in, if these are known.
	more []string
}

// An explainer prints explanations.
type explainer struct {
	source
	out io.Writer
}

// explain prints the state of a quota Workload, or of all stages of a JobSet.
func (e *explainer) explain(ctx context.Context, key types.NamespacedName) error {
	s, err := e.find(ctx, key)
	if err != nil {
		return err
	}
	if s.isJobSet {
		if err := printLines(e.out, jobSetLines(s.jobSet, s.key, len(s.workloads))...); err != nil {
			return err
		}
		slices.SortFunc(s.workloads, compareStages)
	}
	var limits error
	for _, w := range s.workloads {
		limit, err := e.explainOne(ctx, w)
		if err != nil {
			return err
		}
		limits = cmp.Or(limits, limit)
	}
	return printLimits(e.out, limits)
}

// explainOne prints the state of one quota Workload. limits is the error because of which positions and holders of quota are missing, or nil.
func (e *explainer) explainOne(ctx context.Context, w *kueue.Workload) (limits, err error) {
	if state := stateOf(w); state != "" {
		return nil, e.printStart(ctx, w, state)
	}
	if why := whyIneligible(w); why != "" {
		return nil, e.printStart(ctx, w, why)
	}
	a, limits, err := e.why(ctx, w)
	switch {
	case err != nil:
		return nil, err
	case limits != nil:
		return limits, printLines(e.out, headline(w), "  "+conditionLine(w))
	case !a.isQueued:
		lines := []string{headline(w), "  " + conditionLine(w), "  is not in the queue yet: the manager has not read all objects of this JobSet"}
		return nil, printLines(e.out, append(lines, a.more...)...)
	}
	lines := []string{
		headline(w),
		fmt.Sprintf("  position %d in its ClusterQueue, %d in LocalQueue %s (0 is next), priority %d", a.inClusterQueue, a.inLocalQueue, a.localQueue, a.priority),
	}
	return nil, printLines(e.out, slices.Concat(lines, explanationLines(&a.explanation), a.more)...)
}

// printStart prints the state of a quota Workload that is in no queue, and when it is expected to start, if that is known.
func (e *explainer) printStart(ctx context.Context, w *kueue.Workload, state string) error {
	lines := []string{headline(w), "  " + state}
	if known, isKnown := e.source.(*offline); isKnown {
		a, _, err := known.why(ctx, w)
		if err != nil {
			return err
		}
		lines = append(lines, a.more...)
	}
	return printLines(e.out, lines...)
}

// jobSetLines returns what the conditions of the JobSet report.
func jobSetLines(js *jobsetapi.JobSet, key types.NamespacedName, workloads int) []string {
	lines := []string{"JobSet " + key.String()}
	if c := apimeta.FindStatusCondition(js.Status.Conditions, jobsetstatus.StageAdmitted); c != nil {
		return append(lines, fmt.Sprintf("  %s: %s", c.Reason, c.Message))
	}
	if workloads == 0 {
		return append(lines, fmt.Sprintf("  has no quota Workload: only a JobSet with the label %s in a managed namespace is queued", apis.QueueLabel))
	}
	return lines
}

// compareStages orders quota Workloads by the plan, and the growths of a stage after the stage.
func compareStages(a, b *kueue.Workload) int {
	number := func(w *kueue.Workload, label string) int {
		n, _ := strconv.Atoi(w.Labels[label]) // a missing number sorts first
		return n
	}
	return cmp.Or(
		cmp.Compare(number(a, apis.StageIndexLabel), number(b, apis.StageIndexLabel)),
		cmp.Compare(number(a, apis.GrowthLabel), number(b, apis.GrowthLabel)), cmp.Compare(a.Name, b.Name),
	)
}

// printLimits prints once why something is missing from an explanation.
func printLimits(out io.Writer, limits error) error {
	if limits == nil {
		return nil
	}
	return printLines(out, "Queue positions and holders of quota are not shown: "+query.WithoutVisibility(limits))
}

func headline(w *kueue.Workload) string {
	line := "Workload " + client.ObjectKeyFromObject(w).String()
	if stage := w.Labels[apis.StageLabel]; stage != "" {
		if growth := w.Labels[apis.GrowthLabel]; growth != "" {
			stage += ", growth " + growth
		}
		line += fmt.Sprintf(" (stage %s of JobSet %s)", stage, w.Labels[apis.JobSetLabel])
	}
	return line
}

func printLines(out io.Writer, lines ...string) error {
	if _, err := io.WriteString(out, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("print the explanation: %w", err)
	}
	return nil
}

// errNotFound is returned for a name that neither a quota Workload nor a JobSet has.
func errNotFound(key types.NamespacedName) error {
	if key.Namespace == "" {
		return fmt.Errorf("the snapshot has neither a JobSet nor a quota Workload %q in any namespace", key.Name)
	}
	return fmt.Errorf("namespace %q has neither a JobSet nor a quota Workload %q", key.Namespace, key.Name)
}
