package snapshotfile

import (
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/snapshot"
)

// PrintGaps prints a line for each gap of a snapshot, and then what can be answered nevertheless.
func PrintGaps(out io.Writer, gaps []snapshot.Gap) error {
	var lines []string
	for i := range gaps {
		lines = append(lines, "missing: "+gaps[i].String())
	}
	for _, e := range effects() {
		if lacks := lackedKinds(gaps, e.without); len(lacks) > 0 {
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
			foundation(),
			"tranche explain shows only what the manager has written to JobSets and quota Workloads, and tranche lint does not check references to these objects; " +
				"there are no reasons, positions and plans",
		},
		{[]string{"jobsets", "jobs"}, "answers about the quota Workloads that exist are right for now, but not when their stages end and which follow"},
		{
			[]string{"workloadpriorityclasses", "priorityclasses", "limitranges", "runtimeclasses", "deviceclasses", "resourceclaimtemplates"},
			"answers are right but for JobSets that have no quota Workloads yet",
		},
		{[]string{"pods"}, "answers are right but for when gangs of pods, and pods that terminate, release quota"},
		{[]string{configMaps}, "answers are those of a manager with the default configuration"},
		{[]string{nodes}, "all but tranche what-if node-loss is answered"},
	}
}

const (
	configMaps = "configmaps"
	nodes      = "nodes"
)

// foundation returns the kinds without which no reason, position or plan is right.
func foundation() []string {
	return []string{"namespaces", "resourceflavors", "admissionchecks", "cohorts", "clusterqueues", "localqueues", "workloads"}
}

// lackedKinds returns which of some kinds have gaps, in the order of the gaps.
func lackedKinds(gaps []snapshot.Gap, of []string) []string {
	var lacks []string
	for i := range gaps {
		if kind, _, _ := strings.Cut(gaps[i].Resource, "."); slices.Contains(of, kind) && !slices.Contains(lacks, kind) {
			lacks = append(lacks, kind)
		}
	}
	return lacks
}

// present returns the gaps that hide objects that exist.
func present(gaps []snapshot.Gap) []snapshot.Gap {
	return slices.DeleteFunc(slices.Clone(gaps), func(g snapshot.Gap) bool { return g.IsAbsent })
}

// LacksFoundation says which kinds a snapshot lacks without which no reason, position or plan is right. It returns "" if it has them all.
func LacksFoundation(s *snapshot.Snapshot) string {
	if lacks := lackedKinds(present(s.Gaps), foundation()); len(lacks) > 0 {
		return "the snapshot lacks " + strings.Join(lacks, ", ")
	}
	return ""
}

// LacksForPlan says what a snapshot lacks that may change what follows from a change. It returns "" for nothing.
func LacksForPlan(s *snapshot.Snapshot) string {
	var kinds []string
	for _, e := range effects() {
		if !slices.Contains(e.without, nodes) {
			kinds = append(kinds, e.without...)
		}
	}
	if lacks := lackedKinds(present(s.Gaps), kinds); len(lacks) > 0 {
		return "the snapshot lacks " + strings.Join(lacks, ", ")
	}
	if len(s.OnlyNamespaces) > 0 {
		return "the snapshot has only the namespaces " + strings.Join(s.OnlyNamespaces, ", ")
	}
	return ""
}

// LacksForNodeLoss says what a snapshot lacks that shows what runs on nodes. It returns "" for nothing.
func LacksForNodeLoss(s *snapshot.Snapshot) string {
	if lacks := lackedKinds(present(s.Gaps), []string{nodes}); len(lacks) > 0 {
		return "the snapshot lacks " + nodes
	}
	running := map[types.UID]bool{}
	for _, job := range s.Jobs {
		if job.Status.Active > 0 {
			running[job.UID] = true
		}
	}
	if len(running) > 0 && !slices.ContainsFunc(s.Pods, func(pod *corev1.Pod) bool {
		owner := metav1.GetControllerOf(pod)
		return owner != nil && running[owner.UID]
	}) {
		return "the snapshot lacks the running pods of JobSets and Jobs: take it with --pods"
	}
	return ""
}

// printNamespaces prints what answers are worth from a snapshot of some namespaces.
func printNamespaces(out io.Writer, s *snapshot.Snapshot) error {
	if len(s.OnlyNamespaces) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "only the namespaces %s were read: answers are those for a cluster in which nothing of other namespaces waits or holds quota\n",
		strings.Join(s.OnlyNamespaces, ", "))
	return err
}
