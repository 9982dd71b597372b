package plan

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/snapshot"
)

// NewWhatIfCommand returns `tranche what-if`.
func NewWhatIfCommand(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "what-if",
		Short: "Predict what a single change would do",
		Long:  "Predict what follows from a single change, with the answers and formats of tranche plan. Nothing is written to the cluster." + exitCodes,
		Args:  cobra.NoArgs,
		// All flags are those of the questions. After a wrong name the name is the mistake, not its flags.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		// A command that does not run would print its help after a wrong name, too, and exit as if nothing followed.
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exitcode.AsUsage(cmd, errors.New("name a question: submit, quota or node-loss"))
		},
	}
	exitcode.SetUsage(cmd, exitcode.Failure)
	cmd.AddCommand(newSubmitCommand(version), newQuotaCommand(version), newNodeLossCommand(version))
	return cmd
}

func newSubmitCommand(version string) *cobra.Command {
	f := &flags{cluster: query.Flags{Version: version}}
	var files []string
	cmd := &cobra.Command{
		Use:   "submit FILE...",
		Short: "Predict when JobSets and Jobs would start, and for whom they would be in the way",
		Long: "Predict when JobSets and Jobs would start if they were submitted now, and which others would be delayed or preempted for them. They need not\n" +
			"exist.\n\n" + limits + exitCodes,
		Example: "  tranche what-if submit jobset.yaml\n" +
			"  tranche what-if submit jobset.yaml --snapshot cluster.tar.gz -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			files = append(files, args...)
			if err := f.checkFiles(cmd, files); err != nil {
				return err
			}
			return f.answer(cmd, func(s *snapshot.Snapshot) (*plan.Change, error) {
				manifests, err := readManifests(files, cmd.InOrStdin())
				if err != nil {
					return nil, err
				}
				return plan.Submit(s, manifests)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "directory or file with JobSets or Jobs, or - for standard input, as FILE; may be repeated")
	return cmd
}

func newQuotaCommand(version string) *cobra.Command {
	f := &flags{cluster: query.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:     "quota CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT...",
		Short:   "Predict what other nominal quotas would do",
		Long:    "Predict what follows if ClusterQueues had other nominal quotas.\n\n" + limits + exitCodes,
		Example: "  tranche what-if quota team-a/a100/nvidia.com/gpu=16 team-b/a100/nvidia.com/gpu=24",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var quotas []plan.Quota
			for _, text := range args {
				quota, err := plan.ParseQuota(text)
				if err != nil {
					return err
				}
				quotas = append(quotas, quota)
			}
			return f.answer(cmd, func(s *snapshot.Snapshot) (*plan.Change, error) { return plan.Quotas(s, quotas) })
		},
		ValidArgsFunction: f.completeQuota,
	}
	f.add(cmd)
	return cmd
}

func newNodeLossCommand(version string) *cobra.Command {
	f := &flags{cluster: query.Flags{Version: version}, withPods: true}
	var selector string
	cmd := &cobra.Command{
		Use:   "node-loss -l SELECTOR",
		Short: "Predict what the loss of nodes would do",
		Long: "Predict what follows if nodes are lost. Quota decides what is admitted, not nodes. So the answer is what would follow if an administrator\n" +
			"subtracted the allocatable resources of the nodes from the nominal quotas of their flavor, in proportion to the quotas, and if what runs on\n" +
			"the nodes were evicted. The flavor of a node is the one whose node labels it has; of several, the one with the most labels.\n\n" +
			"What runs on the nodes is read from the cluster. A snapshot has it if it was taken with --pods.\n\n" + limits + exitCodes,
		Example: "  tranche what-if node-loss -l topology.kubernetes.io/zone=a\n" +
			"  tranche what-if node-loss -l 'kubernetes.io/hostname in (gpu-17, gpu-18)' --snapshot cluster.tar.gz",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parsed, err := labels.Parse(selector)
			if err != nil {
				return fmt.Errorf("--selector is %q: %w", selector, err)
			}
			return f.answer(cmd, func(s *snapshot.Snapshot) (*plan.Change, error) { return plan.LoseNodes(s, parsed) })
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "labels of the lost nodes, such as topology.kubernetes.io/zone=a")
	_ = cmd.MarkFlagRequired("selector") // the flag exists
	return cmd
}
