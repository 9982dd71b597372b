// Package main is the one binary of Tranche: the manager and the command-line verbs.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/cmd/tranche/pending"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "tranche:", err)
		os.Exit(exitcode.Of(err))
	}
}

// newCommand returns the command with all its verbs.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "tranche",
		Short:         "Admission and quota for staged JobSets",
		Long:          "Tranche admits staged JobSets against GPU and TPU quota, one stage at a time.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newManagerCommand(), newBarrierCommand(), pending.NewCommand(versionText()), explain.NewCommand(versionText()), newSimulateCommand(), newSnapshotCommand(),
		newUninstallCommand(), newVersionCommand())
	return root
}
