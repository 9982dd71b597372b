package snapshotfile

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/snapshot"
)

// PrintGaps prints a line for each gap of a snapshot, and then what can be answered nevertheless.
func PrintGaps(out io.Writer, gaps []snapshot.Gap) error {
	var lines []string
	for i := range gaps {
		lines = append(lines, "missing: "+gaps[i].String())
	}
	for _, e := range effects() {
		var lacks []string
		for i := range gaps {
			if kind, _, _ := strings.Cut(gaps[i].Resource, "."); slices.Contains(e.without, kind) && !slices.Contains(lacks, kind) {
				lacks = append(lacks, kind)
			}
		}
		if len(lacks) > 0 {
			lines = append(lines, fmt.Sprintf("without %s: %s", strings.Join(lacks, ", "), e.answers))
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return fmt.Errorf("print what the snapshot lacks: %w", err)
		}
	}
	return nil
}

// An effect is what answers from a snapshot are worth that lacks objects of some kinds.
type effect struct {
	without []string
	answers string
}

// effects lists the effects of all kinds, the worst first.
func effects() []effect {
	return []effect{
		{
			[]string{"namespaces", "resourceflavors", "admissionchecks", "cohorts", "clusterqueues", "localqueues"},
			"answers are wrong where these objects decide: reasons, positions, expected starts and plans. The states of quota Workloads are right",
		},
		{[]string{"workloads"}, "answers are those about queues in which nothing waits and nothing holds quota"},
		{[]string{"jobsets", "jobs"}, "answers about the quota Workloads that exist are right for now, but not when their stages end and which follow"},
		{
			[]string{"workloadpriorityclasses", "priorityclasses", "limitranges", "runtimeclasses", "deviceclasses", "resourceclaimtemplates"},
			"answers are right but for JobSets that have no quota Workloads yet",
		},
		{[]string{"pods"}, "answers are right but for when gangs of pods, and pods that terminate, release quota"},
		{[]string{"configmaps"}, "answers are those of a manager with the default configuration"},
		{[]string{"nodes"}, "all but tranche what-if node-loss is answered"},
	}
}
