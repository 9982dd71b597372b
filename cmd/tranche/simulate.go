package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/trace"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// exitDiffers is the exit code of `tranche simulate` if the timeline differs.
const exitDiffers = 1

func newSimulateCommand() *cobra.Command {
	var manifests []string
	traces := trace.Flags{}
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "Run a scenario or a trace on virtual time",
		Long:  simulateHelp(),
		Example: "  tranche simulate scenario.txt                      # print the timeline, and compare it with the expected timeline in the file\n" +
			"  tranche simulate what-if.txt -f config/queues      # the same, with the queues of a cluster\n" +
			"  tranche simulate --trace trace.csv -f config/queues  # replay a trace, and report how long jobs wait\n" +
			"  tranche simulate --trace trace.csv -f config/queues --policy Staged,Staged+StrictFIFO  # compare settings of the queues",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case traces.IsSet() && len(args) > 0:
				return exitcode.AsBadInput(errors.New("a scenario and --trace are both given: leave one out"))
			case traces.IsSet():
				return traces.Run(cmd, manifests)
			case len(args) == 0:
				return exitcode.AsBadInput(errors.New("name the file of a scenario, or a trace with --trace"))
			}
			if err := traces.Refuse(cmd); err != nil {
				return err
			}
			return simulate(cmd, args[0], manifests)
		},
	}
	traces.Add(cmd)
	cmd.AddCommand(trace.NewConvertCommand())
	cmd.Flags().StringArrayVarP(&manifests, "filename", "f", nil, "directory with Kueue manifests to load before the scenario starts; may be repeated")
	return cmd
}

// simulateHelp describes the language as far as a first scenario needs it.
func simulateHelp() string {
	var b strings.Builder
	b.WriteString(`Run a scenario with the admission engine of the manager, in virtual time and without a cluster. The command prints the
timeline: a line for each decision, with the reason of each refusal, and at the end the quota that is held.

A scenario is a text such as

  # Both want 2, then 6 more while the 2 stay held. Of 9 GPUs only one may begin.
  queue ml gpu=9
  submit a queue=ml stages=ps(gpu=2)=Ready=>train(gpu=6)
  submit b queue=ml stages=ps(gpu=2)=Ready=>train(gpu=6)
  ready a/ps at=1m
  run until=2m

Its first line describes the scenario. A line of four dashes may follow, and after it the expected timeline, with which
the command compares the timeline of the run.

With -f the scenario starts with the queues of a cluster: the command reads all YAML files in the directory and its
subdirectories, and loads the kinds ClusterQueue, Cohort, LocalQueue, ResourceFlavor, WorkloadPriorityClass,
AdmissionCheck and Namespace. It lists other objects as skipped. Nothing is sent to a cluster.

With --trace it replays jobs from comma-separated values instead, once for each --policy, and reports how long jobs of each
size wait and how much quota is held idle (docs/reference/trace.md has the columns):

  submit,queue,stages,run,limit
  0,main,2*nvidia.com/gpu=8,2h,3h
  90s,main,prepare(cpu=8)=Succeeded=>train(nvidia.com/gpu=8),"prepare:10m,train:1h",

Lines of a scenario (docs/reference/scenario.md has all their fields):

`)
	verbs := scenario.Verbs()
	for i := range verbs {
		fields := ""
		if len(verbs[i].Options) > 0 {
			fields = " FIELD=VALUE..."
		}
		fmt.Fprintf(&b, "  %s\n      %s\n", verbs[i].Usage+fields, verbs[i].Text)
	}
	fmt.Fprintf(&b, "\nSettings for config lines: %s.\n", strings.Join(scenario.Settings(), ", "))
	b.WriteString("\nExit code: 0 if the timeline matches, or the file has none; 1 if it differs, if a job of a trace never starts, or if the run violates an invariant; 2 on\nbad input.")
	return b.String()
}

func simulate(cmd *cobra.Command, path string, directories []string) error {
	text, err := os.ReadFile(path) // #nosec G304 -- the user names the file
	if err != nil {
		return exitcode.AsBadInput(fmt.Errorf("read the scenario: %w", err))
	}
	script, err := scenario.Parse(string(text))
	if err != nil {
		return exitcode.AsBadInput(inFile(path, err))
	}
	manifests, err := readManifests(cmd.ErrOrStderr(), directories)
	if err != nil {
		return exitcode.AsBadInput(err)
	}
	result, err := simulator.Run(script, manifests)
	if err != nil {
		return exitcode.AsBadInput(inFile(path, err))
	}
	if _, err := io.WriteString(cmd.OutOrStdout(), result.String()); err != nil {
		return fmt.Errorf("print the timeline: %w", err)
	}
	return compare(path, script, result)
}

// inFile puts the name of the file before each line of an error.
func inFile(path string, err error) error {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = path + ": " + lines[i]
	}
	return errors.New(strings.Join(lines, "\n"))
}

func readManifests(warnings io.Writer, directories []string) (*simulator.Manifests, error) {
	manifests := &simulator.Manifests{}
	for _, directory := range directories {
		if err := manifests.Read(os.DirFS(directory)); err != nil {
			return nil, fmt.Errorf("%s: %w", directory, err)
		}
	}
	for _, skipped := range manifests.Skipped {
		if _, err := fmt.Fprintln(warnings, "skipped:", skipped); err != nil {
			return nil, fmt.Errorf("print the skipped objects: %w", err)
		}
	}
	return manifests, nil
}

// compare checks whether the run matches the file.
func compare(path string, script *scenario.Scenario, result *simulator.Result) error {
	if len(result.Violations) > 0 {
		return &exitcode.Error{Code: exitDiffers, Err: fmt.Errorf("%s: the run violates %d invariants; please report this bug with the scenario:\n%s",
			path, len(result.Violations), strings.Join(result.Violations, "\n"))}
	}
	if !script.HasGolden {
		return nil
	}
	if diff := scenario.Diff(script.Golden, result.String()); diff != "" {
		return &exitcode.Error{Code: exitDiffers, Err: fmt.Errorf("%s: the timeline differs from the expected one (- expected, + actual):\n%s", path, diff)}
	}
	return nil
}
