// Package plan has the verbs `tranche plan` and `tranche what-if`: flags, and the answers as text, Markdown or JSON.
package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

// Exit codes of the verbs. exitcode.Failure is that of every error: exitcode.BadInput has another meaning here.
const (
	exitFollows = 2
	exitHarms   = 3
)

// exitCodes is the part of the help about exit codes.
const exitCodes = "\n\nExit code: 0 if nothing follows; 2 if something follows; 3 if a JobSet or another owner of a quota Workload is evicted, can never fit or can\n" +
	"no longer finish; 1 on bad input, if there is no answer, and if the answer is not certain because objects could not be read."

// limits is the part of the help about what the answer depends on.
const limits = "The answer compares two simulations from the same snapshot, with and without the change, in which each stage ends when its maximum execution\n" +
	"time has passed, or earlier, after the median time of the last 40 runs of the stage in JobSets of the same series. Times that depend on such\n" +
	"estimates are marked: \"about\". A stage with neither never ends there: what waits for it has an unknown start. Pods that are not ready in the\n" +
	"snapshot are not ready before the manager has answered the change; then they are, unless earlier runs show how long that takes. Later\n" +
	"submissions and failures are not predicted. There is no answer if a tree of Cohorts has more than --max-workloads quota Workloads."

// NewCommand returns `tranche plan`.
func NewCommand(version string) *cobra.Command {
	f := &flags{cluster: query.Flags{Version: version}}
	var files []string
	var prune bool
	cmd := &cobra.Command{
		Use:   "plan FILE...",
		Short: "Predict what applying manifests changes for JobSets",
		Long: "Predict what follows if manifests are applied: which objects change in which fields, and then which quota Workloads are newly admitted,\n" +
			"delayed, preempted or evicted with the work that they lose, or can never fit. JobSets, and Jobs in queues, count as submitted. Nothing is written\n" +
			"to the cluster.\n\n" + limits + exitCodes,
		Example: "  tranche plan queues/                                        # the change for the cluster of the kubeconfig\n" +
			"  tranche plan queues/ --snapshot cluster.tar.gz -o markdown  # as a comment of a pull request\n" +
			"  kustomize build queues | tranche plan - --until 72h",
		RunE: func(cmd *cobra.Command, args []string) error {
			files = append(files, args...)
			if err := f.checkFiles(cmd, files); err != nil {
				return err
			}
			return f.answer(cmd, func(s *snapshot.Snapshot) (*plan.Change, error) {
				if s.IsAnonymized {
					return nil, errors.New("the names in the snapshot are pseudonyms, which manifests do not have: take one without --anonymize")
				}
				manifests, err := readManifests(files, cmd.InOrStdin())
				if err != nil {
					return nil, err
				}
				wanted := plan.Kept
				if prune {
					wanted = plan.Pruned
				}
				return plan.Apply(s, manifests, wanted)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "directory or file with manifests to apply, or - for standard input, as FILE; may be repeated")
	cmd.Flags().BoolVar(&prune, "prune", false,
		"also delete the ClusterQueues, Cohorts, LocalQueues, ResourceFlavors, AdmissionChecks and WorkloadPriorityClasses that the manifests do not have")
	return cmd
}

// flags are those of both verbs.
type flags struct {
	cluster   query.Flags
	snapshot  snapshotfile.Flags
	configMap string
	until     time.Duration
	bound     simulator.Bound
	format    output.Format
	// withPods is true if the answer depends on the nodes of running pods.
	withPods bool
}

func (f *flags) add(cmd *cobra.Command) {
	f.cluster.AddKubeconfig(cmd)
	f.snapshot.Add(cmd)
	cmd.Flags().StringVar(&f.configMap, "config-map", apis.SystemNamespace+"/tranche-manager", "NAMESPACE/NAME of the ConfigMap with the configuration of the manager")
	cmd.Flags().DurationVar(&f.until, "until", 24*time.Hour, "how long after the snapshot the simulations end")
	f.bound.Setting = "--max-workloads"
	cmd.Flags().IntVar(&f.bound.Workloads, "max-workloads", simulator.DefaultMaxWorkloads, "largest number of quota Workloads in one tree of Cohorts that is simulated")
	f.format.Add(cmd, output.Wide, output.Markdown, output.JSON, output.YAML)
	cmd.MarkFlagsMutuallyExclusive("snapshot", "kubeconfig")
	exitcode.SetUsage(cmd, exitcode.Failure)
}

// answer prints what follows from a change.
func (f *flags) answer(cmd *cobra.Command, change func(*snapshot.Snapshot) (*plan.Change, error)) error {
	p, lacks, err := f.plan(cmd, change)
	if err != nil {
		return &exitcode.Error{Code: exitcode.Failure, Err: err}
	}
	switch severity := p.Severity(); {
	case severity == plan.Harms:
		return &exitcode.Error{Code: exitHarms, Err: errors.New("the change does harm: " + summary(p))}
	case lacks != "" && !p.IsEmpty():
		return &exitcode.Error{Code: exitcode.Failure, Err: fmt.Errorf("the plan is not certain: %s; of what it has follows: %s", lacks, summary(p))}
	case severity == plan.Follows:
		return &exitcode.Error{Code: exitFollows, Err: errors.New("the change has consequences: " + summary(p))}
	}
	return nil
}

// plan makes and prints the plan of a change. lacks says what the snapshot lacks that may change what follows.
func (f *flags) plan(cmd *cobra.Command, change func(*snapshot.Snapshot) (*plan.Change, error)) (p *plan.Plan, lacks string, err error) {
	if f.until <= 0 {
		return nil, "", fmt.Errorf("--until is %s, must be positive", f.until)
	}
	if f.bound.Workloads <= 0 {
		return nil, "", fmt.Errorf("--max-workloads is %d, must be positive", f.bound.Workloads)
	}
	s, err := f.read(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return nil, "", err
	}
	if lacks := snapshotfile.LacksFoundation(s); lacks != "" {
		return nil, "", fmt.Errorf("%s: what follows from a change is not known", lacks)
	}
	c, err := change(s)
	if err != nil {
		return nil, "", err
	}
	if err := c.Check(f.bound); err != nil {
		return nil, "", err
	}
	if p, err = plan.New(c, &simulator.Durations{PastRuns: c.PastRuns()}, f.until); err != nil {
		return nil, "", err
	}
	if err := f.write(cmd.OutOrStdout(), p); err != nil {
		return nil, "", fmt.Errorf("print the plan: %w", err)
	}
	return p, f.lacks(s), nil
}

// lacks says what a snapshot lacks that may change what follows, or returns "".
func (f *flags) lacks(s *snapshot.Snapshot) string {
	lacks := snapshotfile.LacksForPlan(s)
	if f.withPods {
		lacks = cmp.Or(lacks, snapshotfile.LacksForNodeLoss(s))
	}
	return lacks
}

// read returns the snapshot to start from, and prints what is missing from it.
func (f *flags) read(ctx context.Context, stdin io.Reader, warnings io.Writer) (*snapshot.Snapshot, error) {
	if f.snapshot.Path != "" {
		return f.snapshot.Read(stdin, warnings)
	}
	namespace, name, isFull := strings.Cut(f.configMap, "/")
	if !isFull {
		return nil, fmt.Errorf("--config-map is %q: write NAMESPACE/NAME", f.configMap)
	}
	reader, err := f.cluster.ConnectToRead()
	if err != nil {
		return nil, err
	}
	show := snapshotfile.NewProgress(warnings)
	s, err := collect.Read(ctx, &collect.Config{
		Reader: reader, Scheme: reader.Scheme(), ConfigMap: types.NamespacedName{Namespace: namespace, Name: name}, Progress: show.Report, AllPods: f.withPods,
	}, f.cluster.Version)
	if err != nil {
		return nil, fmt.Errorf("take a snapshot: %w", err)
	}
	show.Finish()
	return s, snapshotfile.PrintGaps(warnings, s.Gaps)
}

// checkFiles returns an error if no manifests are named, or if standard input is named more than once.
func (f *flags) checkFiles(cmd *cobra.Command, files []string) error {
	if len(files) == 0 {
		return exitcode.AsUsage(cmd, errors.New("name a file or a directory with manifests"))
	}
	streams := 0
	for _, path := range append(slices.Clone(files), f.snapshot.Path) {
		if path == snapshotfile.Stream {
			streams++
		}
	}
	if streams > 1 {
		return errors.New("standard input can be read only once: name files instead, as manifests or for --snapshot")
	}
	return nil
}

// readManifests reads the objects to apply.
func readManifests(files []string, stdin io.Reader) (*snapshot.Snapshot, error) {
	m := snapshot.NewManifests()
	var err error
	for _, file := range files {
		if err = readInto(m, file, stdin); err != nil {
			err = fmt.Errorf("read the manifests: %w", err)
			break
		}
	}
	return m.Snapshot(err)
}

func readInto(m *snapshot.Manifests, path string, stdin io.Reader) error {
	if path == snapshotfile.Stream {
		return m.ReadStream("standard input", stdin)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if err := m.ReadDir(os.DirFS(path)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	file, err := os.Open(path) // #nosec G304 -- the user names the file
	if err != nil {
		return err
	}
	return errors.Join(m.ReadStream(path, file), file.Close())
}

// write prints a plan in the selected format.
func (f *flags) write(out io.Writer, p *plan.Plan) error {
	switch f.format {
	case output.JSON, output.YAML:
		return f.format.Write(out, p)
	case output.Markdown:
		return writeMarkdown(out, p)
	case output.Text, output.Wide, output.SARIF, output.GitHub:
	}
	return writeText(out, p, f.format)
}

// summary counts the consequences of each kind.
func summary(p *plan.Plan) string {
	var parts []string
	for _, kind := range plan.Kinds() {
		if n := len(ofKind(p, kind)); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, words(kind)))
		}
	}
	if len(parts) == 0 && len(p.Queues) > 0 {
		parts = append(parts, fmt.Sprintf("%d ClusterQueues admit differently", len(p.Queues)))
	}
	if len(parts) == 0 {
		return "nothing follows"
	}
	return strings.Join(parts, ", ")
}

func ofKind(p *plan.Plan, kind plan.Kind) []plan.Consequence {
	return slices.DeleteFunc(slices.Clone(p.Consequences), func(c plan.Consequence) bool { return c.Kind != kind })
}
