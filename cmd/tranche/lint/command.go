// Package lint is the verb that checks manifests: its flags, its help and its exit codes.
package lint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/lint"
	"github.com/tranche-dev/tranche/snapshot"
)

// exitFindings is the exit code if there are findings that count.
const exitFindings = 1

// flags are those of the verb.
type flags struct {
	files           []string
	format          output.Format
	snapshot        snapshotfile.Flags
	nodes, config   string
	isStrict, fixes bool
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	f := flags{}
	cmd := &cobra.Command{
		Use:   "lint FILE...",
		Short: "Check manifests of queues, JobSets, Jobs and pods without a cluster",
		Long:  help(),
		Example: "  tranche lint queues/                                # a directory with subdirectories\n" +
			"  kubectl get nodes -o yaml > nodes.yaml\n" +
			"  tranche lint queues/ --nodes nodes.yaml -o github   # annotations in a GitHub workflow\n" +
			"  kustomize build . | tranche lint -\n" +
			"  tranche lint jobset.yaml --snapshot cluster.tar.gz  # the queues of the cluster count, too",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.files = append(f.files, args...)
			return f.run(cmd)
		},
	}
	cmd.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "directory or file with manifests, or - for standard input, as FILE; may be repeated")
	f.format.Add(cmd, output.JSON, output.YAML, output.SARIF, output.GitHub)
	f.snapshot.AddAs(cmd, "snapshot of the cluster (a directory or an archive of tranche snapshot, or manifests), whose objects the manifests may refer to; - for standard input")
	cmd.Flags().StringVar(&f.nodes, "nodes", "", "file with the nodes of the cluster (kubectl get nodes -o yaml), to compare flavors with; defaults to those of the snapshot")
	cmd.Flags().StringVar(&f.config, "config", "", "file with the configuration of the manager; defaults to that of the snapshot, then to the default configuration")
	cmd.Flags().BoolVar(&f.isStrict, "strict", false, "exit with 1 also if there are only warnings")
	cmd.Flags().BoolVar(&f.fixes, "fix", false, "first rewrite objects of earlier versions of kueue.x-k8s.io in v1beta2, in their files; all other text stays")
	return cmd
}

// help describes what is checked.
func help() string {
	var b strings.Builder
	b.WriteString(`Check manifests of queues, JobSets, Jobs, CronJobs, pods, Deployments and the like: everything that the API server, the admission policies of Tranche
and its admission engine would object to, and what they would accept although it has no effect. Nothing is sent to a cluster.

The command reads YAML and JSON, and lists of objects as kubectl prints them. It checks the kinds of Kueue and JobSet that Tranche installs, and reads
Jobs, CronJobs, pods, Deployments, StatefulSets, ReplicaSets, ReplicationControllers, DaemonSets, Namespaces, Nodes, LimitRanges, RuntimeClasses,
DeviceClasses and ResourceClaimTemplates. It skips other kinds, and Jobs, pods and ReplicaSets that a controller has created. Text that is not
readable is an error with its line, and the rest is checked.

References are checked only to kinds of which at least one object is given: JobSets without any LocalQueue are checked alone. What names an object
with errors is not checked. With --snapshot, the queues, flavors, AdmissionChecks, namespaces, nodes, LimitRanges and classes of the cluster count as
given, unless a manifest has another version of the object, and the configuration of its manager counts. There are no findings about objects
that only the snapshot has.

Rules (error or warning, and what holds if there is no finding):

`)
	for _, rule := range lint.Rules() {
		fmt.Fprintf(&b, "  %-22s %-8s %s\n", rule.ID, rule.Severity, rule.Text)
	}
	b.WriteString(`
Policies are evaluated with the parameters that Tranche installs by default. Not checked: what depends on the user, on previous versions of
an object, or on objects that other programs create, such as PersistentVolumeClaims; pod templates beyond the schema of JobSets, and the values in Jobs, pods and
Deployments that only the API server checks; whether the pods of a gang fit together; the policies of Workloads.

Exit code: 0 without errors (with --strict: without findings); 1 with findings, or if the command fails; 2 on bad input: flags, files that cannot be
opened, nodes, a configuration or a snapshot that are not readable.`)
	return b.String()
}

func (f *flags) run(cmd *cobra.Command) error {
	if len(f.files) == 0 {
		return exitcode.AsUsage(cmd, errors.New("name a file or a directory with manifests"))
	}
	isNoStream := func(path string) bool { return path != snapshotfile.Stream }
	if streams := slices.DeleteFunc(slices.Concat(f.files, []string{f.nodes, f.snapshot.Path}), isNoStream); len(streams) > 1 {
		return exitcode.AsBadInput(errors.New("standard input can be read only once: name files instead, as manifests, for --nodes or for --snapshot"))
	}
	in := &input{stdin: cmd.InOrStdin(), report: cmd.ErrOrStderr(), fixes: f.fixes}
	for _, path := range f.files {
		if err := in.read(path); err != nil {
			return exitcode.AsBadInput(err)
		}
	}
	options, err := f.options(cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return exitcode.AsBadInput(err)
	}
	result, err := lint.Run(in.objects, in.unreadable, options)
	if err != nil {
		return fmt.Errorf("check the manifests: %w", err)
	}
	for _, skipped := range result.Skipped {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "skipped:", skipped); err != nil {
			return fmt.Errorf("print the skipped objects: %w", err)
		}
	}
	if err := f.write(cmd.OutOrStdout(), result); err != nil {
		return fmt.Errorf("print the findings: %w", err)
	}
	return f.verdict(result)
}

// write prints the findings in the selected format.
func (f *flags) write(out io.Writer, result *lint.Result) error {
	switch f.format {
	case output.Text, output.Wide, output.Markdown:
		return lint.WriteText(out, result)
	case output.SARIF:
		return lint.WriteSARIF(out, result)
	case output.GitHub:
		return lint.WriteGitHub(out, result)
	case output.JSON, output.YAML:
	}
	return f.format.Write(out, result)
}

// verdict returns an error if the findings make the command fail.
func (f *flags) verdict(result *lint.Result) error {
	errs, warnings := lint.Count(result.Findings, lint.Error), lint.Count(result.Findings, lint.Warning)
	switch {
	case errs > 0:
		return &exitcode.Error{Code: exitFindings, Err: fmt.Errorf("the manifests have %s", lint.Plural(errs, "error"))}
	case warnings > 0 && f.isStrict:
		return &exitcode.Error{Code: exitFindings, Err: fmt.Errorf("the manifests have %s", lint.Plural(warnings, "warning"))}
	}
	return nil
}

// options reads the snapshot, the configuration and the nodes.
func (f *flags) options(stdin io.Reader, warnings io.Writer) (options lint.Options, err error) {
	if f.snapshot.Path != "" {
		if options.Cluster, err = f.snapshot.Read(stdin, warnings); err != nil {
			return options, err
		}
		if options.Cluster.IsAnonymized {
			return options, fmt.Errorf("the names in the snapshot %s are pseudonyms, which manifests do not have: take one without --anonymize", f.snapshot.Path)
		}
	}
	config, err := f.configuration(options.Cluster)
	if err != nil {
		return options, err
	}
	options.Engine = admission.ConfigOf(config)
	if f.nodes != "" {
		options.Nodes, err = readNodes(f.nodes, stdin)
	}
	return options, err
}

// configuration returns that of the file, of the snapshot, or the default one.
func (f *flags) configuration(cluster *snapshot.Snapshot) (*configapi.Configuration, error) {
	config := &configapi.Configuration{}
	switch {
	case f.config != "":
		content, err := os.ReadFile(f.config)
		if err == nil {
			config, err = configapi.Decode(content)
		}
		if err != nil {
			return nil, fmt.Errorf("read the configuration %s: %w", f.config, err)
		}
		return config, nil
	case cluster != nil && cluster.Configuration != nil:
		config = cluster.Configuration
	}
	config.SetDefaults()
	return config, nil
}

// readNodes reads nodes from a file.
func readNodes(path string, stdin io.Reader) ([]*corev1.Node, error) {
	in := &input{stdin: stdin}
	if err := in.read(path); err != nil {
		return nil, fmt.Errorf("read the nodes: %w", err)
	}
	if len(in.unreadable) > 0 {
		return nil, fmt.Errorf("read the nodes: %w", in.unreadable[0])
	}
	return lint.Nodes(in.objects)
}
