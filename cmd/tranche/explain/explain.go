// Package explain is the verb that shows why stages are pending, when they are expected to start, and what would let them in.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/cmd/tranche/garbage"
	"github.com/tranche-dev/tranche/cmd/tranche/live"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

// flags are those of the verb.
type flags struct {
	query.Flags
	snapshot snapshotfile.Flags
	until    time.Duration
	bound    simulator.Bound
	format   output.Format
	watch    output.Watch
}

// NewCommand returns the verb of a program of this version.
func NewCommand(version string) *cobra.Command {
	f := flags{Flags: query.Flags{Version: version}, bound: simulator.Bound{Setting: "--max-workloads"}}
	cmd := &cobra.Command{
		Use:   "explain [KIND/]NAME",
		Short: "Show the stages of a JobSet or a Job, and why a stage is pending",
		Long: "Show the state of each stage of a JobSet, of the one of a queued Job (job/NAME), or of one quota Workload. For a pending stage, print its queue positions, the limit that\n" +
			"it exceeds and by how much, and the JobSets that hold the missing quota. Objects of other namespaces are named only if you may read\n" +
			"clusterqueues/pendingworkloads. The answer also has the expected start of each pending stage, and what would let it in: at most three\n" +
			"sets of running quota Workloads that end, or of limits that are raised, the cheapest first. The engine of the manager was asked about\n" +
			"each set: it admits the stage after these changes, and not after a part of them.\n\n" +
			"Reasons and positions come from the visibility API, and the expected start of the first waiting stage from the JobSet. The rest comes from\n" +
			"a snapshot that the command takes with your own rights, like everything else if the visibility API is not served or you may not read it.\n" +
			"Without the rights, or in a large cluster, it says so instead. With --watch, the snapshot is taken again after ten times as long as it took.\n" +
			"Of an admitted stage whose pods are not ready, it says what keeps them: no node, an image or a volume, as far as\n" +
			"you may read pods and Events.\n\n" +
			"Expected starts and sets are simulated: in a tree of Cohorts with more than --max-workloads quota Workloads, it says so instead.\n\n" +
			"With --snapshot, everything comes from a snapshot of the cluster, without the cluster.\n\n" +
			"Exit code: 0 if there is an answer, also if a signal ends --watch after it; 1 if there is none; 2 on bad input.",
		Example: "  tranche explain -n team-a fine-tune-llm\n  tranche explain -n team-a job/index\n  tranche explain -n team-a jobset-fine-tune-llm-train-1a2b3\n" +
			"  tranche explain -n team-a fine-tune-llm -o wide   # with flavors, amounts and times\n" +
			"  tranche explain -n team-a fine-tune-llm --watch   # again whenever the answer changes, until interrupted\n" +
			"  tranche explain -n team-a fine-tune-llm --snapshot cluster.tar.gz   # offline",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, namespace, err := f.source(cmd)
			if err != nil {
				return err
			}
			name, err := parseName(args[0])
			if err != nil {
				return exitcode.AsBadInput(err)
			}
			name.Namespace = namespace
			// Answers are compared as they are printed.
			return output.Repeat(cmd.Context(), &f.watch, cmd.ErrOrStderr(),
				func(ctx context.Context) (string, error) { return f.answer(ctx, source, name) },
				func(text string) error {
					_, err := io.WriteString(cmd.OutOrStdout(), text)
					return err
				})
		},
	}
	f.Add(cmd)
	f.snapshot.Add(cmd)
	f.format.Add(cmd, output.Wide, output.JSON, output.YAML)
	cmd.ValidArgsFunction = f.completeName
	f.watch.Add(cmd)
	for _, other := range []string{"kubeconfig", "watch"} {
		cmd.MarkFlagsMutuallyExclusive("snapshot", other)
	}
	cmd.Flags().DurationVar(&f.until, "until", 7*24*time.Hour, "how long after a snapshot the simulation of expected starts ends")
	cmd.Flags().IntVar(&f.bound.Workloads, "max-workloads", simulator.DefaultMaxWorkloads,
		"largest number of quota Workloads in its tree of Cohorts for which expected starts, and what would let a stage in, are simulated")
	return cmd
}

// answer returns the report about a name in the selected format.
func (f *flags) answer(ctx context.Context, from source, name subjectName) (string, error) {
	r, err := explain(ctx, from, name)
	if err != nil {
		return "", err
	}
	if f.format.IsText() {
		return output.Wrap(strings.Join(r.lines(f.format), "\n") + "\n"), nil
	}
	var text strings.Builder
	err = f.format.Write(&text, r)
	return text.String(), err
}

// source returns the cluster or the snapshot, and the namespace of the name.
func (f *flags) source(cmd *cobra.Command) (s source, namespace string, err error) {
	if f.until <= 0 {
		return nil, "", exitcode.AsBadInput(fmt.Errorf("--until is %s, must be positive", f.until))
	}
	if f.bound.Workloads <= 0 {
		return nil, "", exitcode.AsBadInput(fmt.Errorf("--max-workloads is %d, must be positive", f.bound.Workloads))
	}
	if err := f.watch.Validate(); err != nil {
		return nil, "", exitcode.AsBadInput(err)
	}
	if f.snapshot.Path == "" {
		c, err := f.Connect()
		if err != nil {
			return nil, "", err
		}
		return &cluster{Cluster: c, horizon: f.until, bound: f.bound, taker: live.Taker{Flags: f.Flags, Warnings: cmd.ErrOrStderr()}}, c.Namespace, nil
	}
	garbage.Let(200) // the process ends before it would have paid off to collect more
	taken, err := f.snapshot.Read(cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return nil, "", err
	}
	return newOffline(taken, f.until, f.bound, cmd.ErrOrStderr()), f.Namespace, nil
}

// A source has the objects of a cluster, and knows why stages wait.
type source interface {
	// find returns the quota Workload of a name, or the JobSet or Job of that name and its quota Workloads. There may be several in an unknown namespace.
	find(ctx context.Context, name subjectName) (*subject, error)
	// why returns why a pending quota Workload waits. It has a Position if it is in a queue. limits is the error because of which that is not known.
	why(ctx context.Context, w *kueue.Workload) (x *Workload, limits, err error)
	// expectedStart returns when a quota Workload is expected to start, or nil for one that is admitted, or if that is not known.
	expectedStart(w *kueue.Workload) *expected.Start
}

// A subjectName names what is explained. Kind is empty for a quota Workload, or else a JobSet, of that name.
type subjectName struct {
	types.NamespacedName
	Kind string
}

// parseName reads a name that may begin with a kind, as kubectl accepts it.
func parseName(text string) (subjectName, error) {
	kind, name, hasKind := strings.Cut(text, "/")
	if text == "" || hasKind && name == "" {
		return subjectName{}, fmt.Errorf("%q names no object: write NAME, or KIND/NAME as in jobset/train", text)
	}
	if !hasKind {
		return subjectName{NamespacedName: types.NamespacedName{Name: text}}, nil
	}
	of := subjectName{NamespacedName: types.NamespacedName{Name: name}}
	switch strings.ToLower(kind) {
	case "job", "jobs", "job.batch", "jobs.batch":
		of.Kind = jobKind
	case "jobset", "jobsets", "jobset.jobset.x-k8s.io", "jobsets.jobset.x-k8s.io":
		of.Kind = jobSetKind
	case "workload", "workloads", "kwl", "workload.kueue.x-k8s.io", "workloads.kueue.x-k8s.io":
		of.Kind = workloadKind
	default:
		return of, fmt.Errorf("%q names the kind %q: only a jobset, a job or a workload can be explained", text, kind)
	}
	return of, nil
}

// completeName completes the name of a JobSet or a quota Workload, or a word KIND/NAME.
func (f *flags) completeName(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	kinds := map[string]query.Kind{jobKind: query.Jobs, jobSetKind: query.JobSets, workloadKind: query.Workloads}
	kind, rest, _ := strings.Cut(begin, "/")
	of, err := parseName(begin)
	if err != nil || of.Kind == "" {
		return f.Complete(query.JobSets, query.Workloads)(cmd, args, begin)
	}
	names, directive := f.Complete(kinds[of.Kind])(cmd, args, rest)
	for i := range names {
		names[i] = kind + "/" + names[i]
	}
	return names, directive
}

// A subject is what is explained: a quota Workload, or a JobSet or a Job and its quota Workloads.
type subject struct {
	key types.NamespacedName
	// jobSet is empty if the subject is none, and has none.
	jobSet    *jobsetapi.JobSet
	isJobSet  bool
	job       *batchv1.Job
	workloads []*kueue.Workload
}

// writtenStart returns the expected start that the manager has written for a quota Workload, or nil.
func (s *subject) writtenStart(w *kueue.Workload) *jobsetstatus.ExpectedStart {
	e := jobsetstatus.ExpectedStartOf(s.jobSet)
	if e == nil || e.Stage != w.Labels[apis.StageLabel] || w.Labels[apis.GrowthLabel] != "" {
		return nil
	}
	return e
}

// kinds of a Report.
const (
	jobSetKind   = "JobSet"
	jobKind      = "Job"
	workloadKind = "Workload"
)

// explain returns the state of a quota Workload, or of all stages of a JobSet or a Job.
func explain(ctx context.Context, from source, name subjectName) (*Report, error) {
	s, err := from.find(ctx, name)
	if err != nil {
		return nil, err
	}
	r := &Report{Kind: workloadKind, Namespace: s.key.Namespace, Name: s.key.Name, Workloads: []Workload{}}
	if s.isJobSet {
		r.Kind = jobSetKind
		r.Reason, r.Message = stateOfJobSet(from, s)
		slices.SortFunc(s.workloads, compareStages)
	}
	if s.job != nil {
		r.Kind, r.Message = jobKind, stateOfJob(s)
	}
	for _, w := range s.workloads {
		one, limits, err := explainOne(ctx, from, w)
		if err != nil {
			return nil, err
		}
		if limits != nil && r.Incomplete == "" {
			r.Incomplete = limits.Error()
		}
		r.Workloads = append(r.Workloads, *one)
	}
	switch from := from.(type) {
	case *offline:
		r.WithoutSets = from.missing
	case *cluster:
		r.WithoutSets = from.missing
		r.WithoutLeader, _ = collect.WhyNoLeader(ctx, from, time.Now()) // the report is an answer without it
	}
	return r, nil
}

// explainOne returns the state of one quota Workload. limits is the error because of which positions and holders of quota are missing, or nil.
func explainOne(ctx context.Context, from source, w *kueue.Workload) (x *Workload, limits, err error) {
	if state := cmp.Or(stateOf(w), whyIneligible(w)); state != "" {
		x = newWorkload(w, state)
		if notice := noticeOf(w); notice != "" {
			x.State = append(x.State, notice)
		}
		if live, isLive := from.(*cluster); isLive {
			x.State = append(x.State, live.pendingPods(ctx, w)...)
		}
		x.ExpectedStart = from.expectedStart(w)
		return x, nil, nil
	}
	x, limits, err = from.why(ctx, w)
	switch {
	case err != nil:
		return nil, nil, err
	case limits != nil:
		x = newWorkload(w, conditionLine(w))
		x.ExpectedStart = from.expectedStart(w)
		return x, limits, nil
	case x.Position == nil:
		x.State = []string{conditionLine(w), "is not in the queue yet: the manager has not read all objects that it belongs to"}
	}
	return x, nil, nil
}

// stateOfJobSet returns what the conditions of the JobSet report, or why it is not queued.
func stateOfJobSet(from source, s *subject) (reason, message string) {
	if c := apimeta.FindStatusCondition(s.jobSet.Status.Conditions, jobsetstatus.StageAdmitted); c != nil {
		return c.Reason, c.Message
	}
	if len(s.workloads) > 0 {
		return "", ""
	}
	why := ""
	if known, isKnown := from.(*offline); isKnown && known.lacks != "" {
		return "", "its quota Workloads are not known: " + known.lacks
	} else if isKnown {
		why = simulator.WhyLeftOut(known.Snapshot, s.jobSet)
	} else if apis.QueueNameOf(s.jobSet.Labels) != "" {
		why = jobsetstate.Misuse(s.jobSet)
	}
	if why == "" && apis.QueueNameOf(s.jobSet.Labels) != "" {
		why = noneYet
	}
	if why != "" {
		return "", "has no quota Workload: " + why
	}
	return "", fmt.Sprintf("has no quota Workload: only a JobSet with the label %s or %s in a managed namespace is queued", apis.QueueLabel, apis.OwnQueueLabel)
}

// noneYet is why a JobSet or a Job with a queue name, and without an obstacle that shows in it, has no quota Workload.
const noneYet = "the manager has not created one yet, or its configuration does not select the namespace"

// stateOfJob returns why a Job is not queued, or "".
func stateOfJob(s *subject) string {
	switch {
	case len(s.workloads) > 0:
		return ""
	case !queuedjob.IsQueued(s.job):
		return fmt.Sprintf("has no quota Workload: only a Job that was created with the label %s waits for quota itself", apis.QueueLabel)
	}
	if why := queuedjob.Misuse(s.job); why != "" {
		return "has no quota Workload: " + why
	}
	return "has no quota Workload: the Events of the Job say why, or the manager has not created one yet"
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

// maxNamespaces is how many namespaces an error names.
const maxNamespaces = 5

// errNotFound is returned for a name that no object has. others are the namespaces in which one is known to have it.
func errNotFound(name subjectName, others ...string) error {
	kinds := cmp.Or(name.Kind, "JobSet, Job or quota Workload")
	if name.Namespace == "" {
		return fmt.Errorf("the snapshot has no %s %q in any namespace: correct the name, or take a snapshot that has it", kinds, name.Name)
	}
	if len(others) > 0 {
		slices.Sort(others)
		others = slices.Compact(others)
		more := ""
		if left := len(others) - maxNamespaces; left > 0 {
			more = fmt.Sprintf(" and %d more", left)
		}
		return fmt.Errorf("namespace %q has no %s %q, but there is one in %s%s: choose it with -n %s", name.Namespace, kinds, name.Name,
			strings.Join(others[:min(len(others), maxNamespaces)], ", "), more, others[0])
	}
	return fmt.Errorf("namespace %q has no %s %q: correct the name, or name another namespace with -n", name.Namespace, kinds, name.Name)
}
