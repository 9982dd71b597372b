// Package main is the one binary of Tranche: the manager and the command-line verbs.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
	"github.com/tranche-dev/tranche/cmd/tranche/doctor"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/cmd/tranche/lint"
	"github.com/tranche-dev/tranche/cmd/tranche/pending"
	"github.com/tranche-dev/tranche/cmd/tranche/plan"
	"github.com/tranche-dev/tranche/cmd/tranche/shadow"
	"github.com/tranche-dev/tranche/cmd/tranche/takeover"
)

func main() {
	if err := execute(ctrl.SetupSignalHandler(), newCommand()); err != nil {
		fmt.Fprintln(os.Stderr, "tranche:", err)
		os.Exit(exitcode.Of(err))
	}
}

// isPlugin reports whether kubectl runs the program: it finds plugins by the name of their file.
func isPlugin(program string) bool {
	return strings.HasPrefix(filepath.Base(program), "kubectl-")
}

// newCommand returns the command with all its verbs.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "tranche",
		Short:         "Admission and quota for staged JobSets",
		Long:          "Tranche admits staged JobSets against GPU and TPU quota, one stage at a time.",
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{},
	}
	root.SetVersionTemplate(versionLine())
	if isPlugin(os.Args[0]) {
		root.Annotations[cobra.CommandDisplayNameAnnotation] = "kubectl tranche"
	}
	root.AddCommand(newManagerCommand(), newBarrierCommand(), pending.NewCommand(versionText()), explain.NewCommand(versionText()), newSimulateCommand(), newSnapshotCommand(),
		lint.NewCommand(), plan.NewCommand(versionText()), plan.NewWhatIfCommand(versionText()), dashboard.NewCommand(versionText()), shadow.NewCommand(versionText()), takeover.NewCommand(versionText()), takeover.NewHandBackCommand(versionText()),
		newUninstallCommand(), doctor.NewCommand(versionText()), newVersionCommand())
	return root
}
