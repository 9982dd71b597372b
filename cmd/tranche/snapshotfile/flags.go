package snapshotfile

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/snapshot"
)

// Flags select the snapshot that a verb answers about.
type Flags struct {
	// Path is empty if the verb answers about the cluster.
	Path string
}

// Add adds the flag to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	f.AddAs(cmd, "answer about a snapshot (a directory or an archive of tranche snapshot) or about manifests (a directory, a file in YAML or JSON) instead of the cluster; - for standard input")
}

// AddAs adds the flag to a command with another description.
func (f *Flags) AddAs(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&f.Path, "snapshot", "", usage)
}

// Read reads the snapshot, and prints what is missing from it. Manifests count as taken now. Errors are bad input.
func (f *Flags) Read(in io.Reader, warnings io.Writer) (*snapshot.Snapshot, error) {
	s, err := Read(f.Path, in)
	if err != nil {
		return nil, exitcode.AsBadInput(fmt.Errorf("read the snapshot: %w", err))
	}
	isManifests := s.TakenAt.IsZero()
	if isManifests {
		s.TakenAt = time.Now()
	}
	for _, skipped := range slices.Concat(s.Skipped, s.Creators) {
		if _, err := fmt.Fprintln(warnings, "skipped:", skipped); err != nil {
			return nil, fmt.Errorf("print the skipped objects: %w", err)
		}
	}
	if isManifests && len(s.ClusterQueues) == 0 && len(s.Workloads)+len(s.JobSets) > 0 {
		_, err = fmt.Fprintln(warnings, "the manifests have no ClusterQueue: answers are those for a cluster without one, in which nothing is admitted")
	}
	return s, errors.Join(err, printNamespaces(warnings, s), PrintGaps(warnings, s.Gaps))
}
