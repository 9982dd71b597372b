package main

import (
	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
)

func newDashboardCommand() *cobra.Command {
	return dashboard.NewCommand(dashboard.Program{Load: loadKubeconfig, Scheme: newScheme, Version: versionText(), BadInput: asBadInput})
}
