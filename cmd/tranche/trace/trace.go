// Package trace is the part of the verb `tranche simulate` that replays traces, and converts those of other systems.
package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/simulator/trace"
	"github.com/tranche-dev/tranche/snapshot"
)

// stream is the name of a file that stands for standard input.
const stream = "-"

// Flags are those of `tranche simulate` about traces.
type Flags struct {
	path, namespace, resource string
	policies                  []string
	quota                     map[string]string
	format                    output.Format
}

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.path, "trace", "", "replay this trace of jobs instead of a scenario, with the queues of --filename or --quota; - for standard input")
	addNamespace(cmd, &f.namespace, "with --trace: the namespace of jobs for which the trace names none")
	cmd.Flags().StringSliceVar(&f.policies, "policy", trace.Policies(), "with --trace: Staged admits JobSets stage by stage, Whole admits each for the sum of its stages. Settings of all queues may follow, as in Staged+StrictFIFO+Greedy: "+strings.Join(trace.Settings(), ", "))
	cmd.Flags().StringVar(&f.resource, "resource", "", "with --trace: the resource of sizes and utilization; defaults to the extended resource that most jobs ask for")
	cmd.Flags().StringToStringVar(&f.quota, "quota", nil, "with --trace: the quota of one ClusterQueue for all jobs, such as nvidia.com/gpu=64, instead of --filename")
	f.format.Add(cmd, output.JSON, output.YAML)
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(trace.Policies(), cobra.ShellCompDirectiveNoFileComp)) // only a flag that does not exist is refused
}

// IsSet reports whether a trace is to be replayed.
func (f *Flags) IsSet() bool { return f.path != "" }

// Refuse returns an error if flags are set that need a trace.
func (f *Flags) Refuse(cmd *cobra.Command) error {
	for _, name := range []string{"namespace", "policy", "resource", "quota", "output"} {
		if cmd.Flags().Changed(name) {
			return exitcode.AsBadInput(fmt.Errorf("--%s is for traces: name one with --trace", name))
		}
	}
	return nil
}

// Run replays the trace with the queues of directories, and prints the report.
func (f *Flags) Run(cmd *cobra.Command, directories []string) error {
	variants, err := f.variants()
	if err != nil {
		return exitcode.AsBadInput(err)
	}
	arrivals, err := readTrace(f.path, f.namespace, cmd.InOrStdin())
	if err != nil {
		return exitcode.AsBadInput(err)
	}
	queues, err := f.queues(cmd, directories, arrivals)
	if err != nil {
		return exitcode.AsBadInput(err)
	}
	report, err := trace.Replay(arrivals, queues, corev1.ResourceName(f.resource), variants...)
	if err != nil {
		return err
	}
	if !f.format.IsText() {
		err = f.format.Write(cmd.OutOrStdout(), report)
	} else {
		err = writeText(cmd.OutOrStdout(), report)
	}
	return cmp.Or(err, verdict(report))
}

// verdict returns an error if jobs never start, under the policy with the most of them.
func verdict(r *trace.Report) error {
	most := 0
	for i := range r.Policies {
		most = max(most, r.Policies[i].Pending+r.Policies[i].LeftOut)
	}
	if most == 0 {
		return nil
	}
	return fmt.Errorf("%d of %s never start", most, jobs(r.Jobs))
}

// addNamespace adds the flag of a namespace.
func addNamespace(cmd *cobra.Command, namespace *string, usage string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", metav1.NamespaceDefault, usage)
}

// variants reads the policies, each of them once.
func (f *Flags) variants() ([]trace.Variant, error) {
	var variants []trace.Variant
	for _, name := range f.policies {
		v, err := trace.ParseVariant(name)
		if err != nil {
			return nil, fmt.Errorf("--policy: %w", err)
		}
		if !slices.ContainsFunc(variants, func(other trace.Variant) bool { return other.Name == name }) {
			variants = append(variants, v)
		}
	}
	if len(variants) == 0 {
		return nil, fmt.Errorf("--policy is empty: it must be one of %s", strings.Join(trace.Policies(), ", "))
	}
	return variants, nil
}

func readTrace(path, namespace string, stdin io.Reader) ([]*replay.Arrival, error) {
	in, err := open(path, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // it was only read
	arrivals, err := trace.Read(in, namespace)
	return arrivals, inFile(path, err)
}

func open(path string, stdin io.Reader) (io.ReadCloser, error) {
	if path == stream {
		return io.NopCloser(stdin), nil
	}
	in, err := os.Open(path) // #nosec G304 -- the user names the file
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	return in, nil
}

// inFile puts the name of the file before each line of an error.
func inFile(path string, err error) error {
	if err == nil {
		return nil
	}
	if path == stream {
		path = "standard input"
	}
	return errors.New(path + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+path+": "))
}

// queues returns the queues of directories, or the assumed one.
func (f *Flags) queues(cmd *cobra.Command, directories []string, arrivals []*replay.Arrival) (*snapshot.Snapshot, error) {
	switch {
	case len(directories) > 0 && len(f.quota) > 0:
		return nil, errors.New("--filename and --quota both say which queues there are: leave one out")
	case len(directories) > 1:
		return nil, errors.New("--filename is there more than once: with --trace, name one directory or file")
	case len(directories) == 1:
		s, err := (&snapshotfile.Flags{Path: directories[0]}).Read(cmd.InOrStdin(), cmd.ErrOrStderr())
		if err != nil {
			return nil, err
		}
		queues := s.Clone()
		queues.JobSets, queues.Jobs, queues.Pods, queues.Workloads = nil, nil, nil, nil
		return queues, nil
	case len(f.quota) == 0:
		return nil, errors.New("there are no queues: name their manifests with --filename, or a quota for all jobs with --quota, such as nvidia.com/gpu=64")
	}
	quota := corev1.ResourceList{}
	for name, text := range f.quota {
		amount, err := resource.ParseQuantity(text)
		if err != nil || amount.Sign() < 0 {
			return nil, fmt.Errorf("--quota: %s=%s: it must be an amount such as 64 or 512Gi", name, text)
		}
		quota[corev1.ResourceName(name)] = amount
	}
	return trace.Assume(arrivals, quota)
}

// writeText prints a report.
func writeText(out io.Writer, r *trace.Report) error {
	var b strings.Builder
	for i := range r.Policies {
		writeNeverStart(&b, r, &r.Policies[i])
	}
	fmt.Fprintf(&b, "%s, submitted over %s. Quota: %s %s.\n\n", jobs(r.Jobs), span(r.SubmitSeconds), number(r.Quota), r.Resource)
	rows := [][]string{{"POLICY", "FINISHED", "STOPPED", "PENDING", "LEFT OUT", "EVICTIONS", "MAKESPAN", "HELD, HOURS", "OF QUOTA"}}
	for i := range r.Policies {
		p := &r.Policies[i]
		rows = append(rows, []string{
			p.Policy, strconv.Itoa(p.Finished), strconv.Itoa(p.Stopped), strconv.Itoa(p.Pending), strconv.Itoa(p.LeftOut), strconv.Itoa(p.Evictions),
			span(p.MakespanSeconds), fmt.Sprintf("%.1f", p.HeldSeconds/time.Hour.Seconds()), percent(p.Utilization),
		})
	}
	writeTable(&b, rows)
	b.WriteString("\nOf what is held:\n")
	rows = [][]string{{"POLICY", "IN USE", "IDLE", "NOT READY", "WAITS FOR STAGE", "NOT RUNNING"}}
	for i := range r.Policies {
		p := &r.Policies[i]
		row := []string{p.Policy}
		for _, part := range []float64{p.UsedSeconds, p.IdleSeconds.Sum(), p.IdleSeconds.NotReady, p.IdleSeconds.WaitsForStage, p.IdleSeconds.NotRunning} {
			row = append(row, percent(part/max(p.HeldSeconds, 1)))
		}
		rows = append(rows, row)
	}
	writeTable(&b, rows)
	writeSizes(&b, r)
	for i := range r.Policies {
		writeProblems(&b, &r.Policies[i])
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// writeSizes prints how long jobs of each size wait.
func writeSizes(b *strings.Builder, r *trace.Report) {
	fmt.Fprintf(b, "\nBy %s of the largest stage:\n", r.Resource)
	rows := [][]string{{"SIZE", "JOBS", "POLICY", "WAIT MEAN", "P50", "P95", "P99", "MAX", "ALL STAGES MEAN", "P50", "P95", "P99", "SLOWDOWN MEAN", "P50", "P95"}}
	for i := range r.Policies[0].Sizes {
		for j := range r.Policies {
			// Sizes depend on the trace alone.
			s := &r.Policies[j].Sizes[i]
			row := []string{s.String(), strconv.Itoa(s.Jobs), r.Policies[j].Policy}
			row = append(row, figures(s.Started, span, s.Wait.Mean, s.Wait.P50, s.Wait.P95, s.Wait.P99, s.Wait.Max)...)
			row = append(row, figures(s.Finished, span, s.WaitAll.Mean, s.WaitAll.P50, s.WaitAll.P95, s.WaitAll.P99)...)
			row = append(row, figures(s.Finished, factor, s.Slowdown.Mean, s.Slowdown.P50, s.Slowdown.P95)...)
			rows = append(rows, row)
		}
	}
	writeTable(b, rows)
}

// figures formats figures about some jobs, which are not known if there are none.
func figures(n int, format func(float64) string, values ...float64) []string {
	var texts []string
	for _, v := range values {
		if n == 0 {
			texts = append(texts, "–")
		} else {
			texts = append(texts, format(v))
		}
	}
	return texts
}

func factor(f float64) string { return fmt.Sprintf("%.1f", f) }

// writeNeverStart says how many jobs never start, and why the first of them does not.
func writeNeverStart(b *strings.Builder, r *trace.Report, p *trace.Policy) {
	if i := slices.IndexFunc(p.Results, func(result trace.Result) bool { return result.Why != "" }); i >= 0 {
		first := &p.Results[i]
		fmt.Fprintf(b, "%s: %d of %s never start: %s/%s: %s\n", p.Policy, p.Pending+p.LeftOut, jobs(r.Jobs), first.Namespace, first.Name, first.Why)
	}
}

// maxNamed is how many jobs a list of problems names.
const maxNamed = 5

// writeProblems names jobs that do not start.
func writeProblems(b *strings.Builder, p *trace.Policy) {
	var lines []string
	for _, why := range p.Inactive {
		lines = append(lines, why)
	}
	slices.Sort(lines)
	named, unnamed := 0, 0
	for i := range p.Results {
		result := &p.Results[i]
		if result.Why == "" {
			continue
		}
		if named++; named > maxNamed {
			unnamed++
			continue
		}
		lines = append(lines, fmt.Sprintf("%s/%s never starts: %s", result.Namespace, result.Name, result.Why))
	}
	if unnamed > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: see -o json", unnamed))
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n%s:\n- %s\n", p.Policy, strings.Join(lines, "\n- "))
	}
}

func writeTable(b *strings.Builder, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = io.WriteString(w, strings.Join(row, "\t")+"\n") // a strings.Builder takes all
	}
	_ = w.Flush()
}

func span(seconds float64) string { return (time.Duration(seconds) * time.Second).String() }

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func jobs(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// NewConvertCommand returns the verb that makes a trace from that of another system.
func NewConvertCommand() *cobra.Command {
	var from, processor string
	conversion := trace.Conversion{}
	cmd := &cobra.Command{
		Use:   "convert FILE",
		Short: "Make a trace from the accounting of another system",
		Long: "Make a trace for `tranche simulate --trace` from the accounting of another system, and print it:\n\n" +
			"  slurm  what sacct prints with --allusers --allocations --parsable2\n         --format=" + strings.Join(trace.SlurmFields(), ",") + "\n" +
			"  swf    the standard workload format of the Parallel Workloads Archive\n\n" +
			"Each job becomes a JobSet with one stage that runs as long as the job did. Jobs that never ran are left out. FILE - is standard input.\n\n" +
			"Exit code: 0 if the trace was printed, 2 on bad input.",
		Example: "  sacct --allusers --allocations --parsable2 --starttime=2026-11-01 --format=" + strings.Join(trace.SlurmFields(), ",") + " > jobs.txt\n" +
			"  tranche simulate convert --from slurm jobs.txt > trace.csv\n" +
			"  tranche simulate --trace trace.csv --quota nvidia.com/gpu=64,cpu=2000,memory=8Ti",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conversion.Processor = corev1.ResourceName(processor)
			return convert(cmd, args[0], from, &conversion)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "format of the file: slurm or swf")
	addNamespace(cmd, &conversion.Namespace, "namespace of all jobs")
	cmd.Flags().StringVar(&conversion.Queue, "queue", "", "LocalQueue of all jobs; defaults to the name of the partition, or queue-NUMBER")
	cmd.Flags().StringVar(&processor, "processor", string(corev1.ResourceCPU), "with --from swf: the resource that a processor becomes")
	_ = cmd.MarkFlagRequired("from")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{"slurm", "swf"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func convert(cmd *cobra.Command, path, from string, conversion *trace.Conversion) error {
	formats := map[string]func(io.Reader, *trace.Conversion) (*trace.Converted, error){"slurm": trace.FromSlurm, "swf": trace.FromSWF}
	read := formats[from]
	if read == nil {
		return exitcode.AsBadInput(fmt.Errorf("--from is %q: it must be slurm or swf", from))
	}
	in, err := open(path, cmd.InOrStdin())
	if err != nil {
		return exitcode.AsBadInput(err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	converted, err := read(in, conversion)
	if err != nil {
		return exitcode.AsBadInput(inFile(path, err))
	}
	var reasons []string
	for why, n := range converted.Skipped {
		reasons = append(reasons, fmt.Sprintf("left out: %s that %s", jobs(n), why))
	}
	slices.SortFunc(reasons, cmp.Compare[string])
	for _, line := range reasons {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), line); err != nil {
			return err
		}
	}
	return trace.Write(cmd.OutOrStdout(), converted.Jobs)
}
