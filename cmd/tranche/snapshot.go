package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

// exitIncomplete is the exit code of `tranche snapshot` if kinds are missing.
const exitIncomplete = 3

// takeFlags are those of `tranche snapshot`.
type takeFlags struct {
	query.Flags
	output, configMap string
	namespaces        []string
	anonymize, pods   bool
}

func newSnapshotCommand() *cobra.Command {
	flags := takeFlags{Flags: query.Flags{Version: versionText()}}
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save all objects that decide admission",
		Long: "Save all objects of the cluster that decide admission, so that questions about it can be answered elsewhere and later: queues, flavors,\n" +
			"checks, priority classes, namespaces, nodes, JobSets with their Jobs, quota Workloads, and the configuration of the manager.\n" +
			"The command reads with your own rights, and writes only the fields that decide: no images, commands or environment variables. It\n" +
			"lists the kinds that you may not read with the right that is missing.\n\n" +
			"With --anonymize, all names become pseudonyms that are the same throughout the snapshot and differ in each snapshot. Names of\n" +
			"resources, amounts, priorities and times stay.\n\n" +
			"Exit code: 0 if the snapshot is complete; 3 if it lacks kinds; 1 if there is no snapshot; 2 on bad input.",
		Example: "  tranche snapshot -o cluster.tar.gz\n" +
			"  tranche snapshot -o snapshot-dir --anonymize\n" +
			"  tranche snapshot -o - -n team-a -n team-b | ssh host 'cat > teams.tar.gz'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.take(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags.AddKubeconfig(cmd)
	cmd.Flags().StringVarP(&flags.output, "output", "o", "tranche-snapshot.tar.gz",
		"new directory, or file with the extension .tar.gz or .tgz to write or replace; - for an archive on standard output")
	cmd.Flags().StringArrayVarP(&flags.namespaces, "namespace", "n", nil, "namespace whose objects are read; may be repeated; defaults to all namespaces")
	flags.CompleteFlag(cmd, "namespace", query.Namespaces)
	cmd.Flags().BoolVar(&flags.pods, "pods", false, "also save the running pods of JobSets and queued Jobs, for tranche what-if node-loss")
	cmd.Flags().BoolVar(&flags.anonymize, "anonymize", false, "replace names by pseudonyms")
	cmd.Flags().StringVar(&flags.configMap, "config-map", apis.SystemNamespace+"/tranche-manager", "NAMESPACE/NAME of the ConfigMap with the configuration of the manager")
	return cmd
}

// take takes a snapshot.
func (f *takeFlags) take(ctx context.Context, out, progress io.Writer) error {
	namespace, name, isFull := strings.Cut(f.configMap, "/")
	if !isFull {
		return exitcode.AsBadInput(fmt.Errorf("--config-map is %q: write NAMESPACE/NAME", f.configMap))
	}
	draft, err := snapshotfile.NewDraft(f.output)
	if err != nil {
		return exitcode.AsBadInput(err)
	}
	defer draft.Discard()
	defer context.AfterFunc(ctx, draft.Discard)() // also while a request goes on after a signal
	reader, err := f.ConnectToRead()
	if err != nil {
		return err
	}
	w := &snapshot.Writer{Create: draft.Create}
	if f.anonymize {
		w.Anonymizer = snapshot.NewAnonymizer()
	}
	show := snapshotfile.NewProgress(progress)
	about, err := collect.Collect(ctx, &collect.Config{
		Reader: reader, Scheme: reader.Scheme(), Namespaces: f.namespaces, ConfigMap: types.NamespacedName{Namespace: namespace, Name: name}, Progress: show.Report, AllPods: f.pods,
	}, f.Version, w)
	if err != nil {
		return fmt.Errorf("take the snapshot: %w", err)
	}
	show.Finish()
	size, err := draft.Commit(out)
	if err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	if f.output == snapshotfile.Stream {
		out = progress
	}
	return summarize(out, f.output, size, w, about)
}

// summarize prints what the snapshot has and what is missing.
func summarize(out io.Writer, place string, size int64, w *snapshot.Writer, about *snapshot.Snapshot) error {
	total, lines := 0, []string{}
	for _, kind := range w.Counts() {
		isMissing := slices.ContainsFunc(about.Gaps, func(g snapshot.Gap) bool { return g.Resource == kind.Resource })
		if kind.Objects > 0 || !isMissing {
			lines = append(lines, fmt.Sprintf("  %7d %s", kind.Objects, kind.Resource))
		}
		total += kind.Objects
	}
	form := "named"
	if w.Anonymizer != nil {
		form = "anonymized"
	}
	headline := fmt.Sprintf("%s: %s, %s, %s, taken at %s", place, count(total, "object"), sizeText(size), form, about.TakenAt.Format(time.RFC3339))
	if _, err := fmt.Fprintln(out, strings.Join(append([]string{headline}, lines...), "\n")); err != nil {
		return fmt.Errorf("print the summary: %w", err)
	}
	if len(about.Gaps) == 0 {
		return nil
	}
	return errors.Join(snapshotfile.PrintGaps(out, about.Gaps),
		&exitcode.Error{Code: exitIncomplete, Err: fmt.Errorf("the snapshot is incomplete: %s, see the lines \"missing\"", count(len(about.Gaps), "gap"))})
}

// sizeText returns a number of bytes for users.
func sizeText(bytes int64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case bytes < kib:
		return fmt.Sprintf("%d B", bytes)
	case bytes < mib:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/kib)
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/mib)
}
