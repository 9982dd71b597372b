package takeover

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/controllers/takeover"
)

// planTakeover prints what a takeover changes, or what stands in its way.
func planTakeover(out io.Writer, s *state) error {
	if obstacles := s.whyNot(); len(obstacles) > 0 {
		for _, obstacle := range obstacles {
			if _, err := fmt.Fprintln(out, "- "+obstacle); err != nil {
				return err
			}
		}
		return errors.New("what is listed above stands in the way")
	}
	var text strings.Builder
	text.WriteString("Tranche will admit instead of Kueue in:\n")
	for _, name := range s.names {
		fmt.Fprintf(&text, "- ClusterQueue %s: annotation %s: %s, spec.stopPolicy: Hold", name, apis.EngineAnnotation, apis.EngineTranche)
		if wasHeld(s.queues[name]) {
			fmt.Fprintf(&text, ", and annotation %s: Hold, because it is held", apis.StopPolicyAnnotation)
		}
		text.WriteString("\n")
	}
	if s.kueueVersion == "" {
		fmt.Fprintf(&text, "The version of Kueue's manager is not known: it must be %sx.\n", takeover.Supported)
	}
	text.WriteString("What runs goes on, and what waits keeps its place. What will differ:\n")
	for _, line := range s.differences() {
		text.WriteString("- " + line + "\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// whyNot returns all that stands in the way of a takeover.
func (s *state) whyNot() []string {
	obstacles := slices.Clone(s.obstacles)
	if !s.isBeside {
		obstacles = append(obstacles, "Tranche is not installed beside Kueue: ConfigMap tranche-guards has no kueueManager; install config/beside, with mode: Beside")
	}
	if problem := takeover.VersionProblem(s.kueueVersion); problem != "" {
		obstacles = append(obstacles, problem)
	}
	for _, name := range s.names {
		if ptr.Deref(s.queues[name].Spec.StopPolicy, kueue.None) == kueue.HoldAndDrain {
			obstacles = append(obstacles, fmt.Sprintf("ClusterQueue %s: spec.stopPolicy is HoldAndDrain, and would be Hold from then on; wait until its jobs are evicted, and set it to Hold", name))
		}
	}
	if err := s.checkMissing("takeover"); err != nil {
		obstacles = append(obstacles, err.Error())
	}
	return obstacles
}

// planHandBack prints what handing back changes.
func planHandBack(out io.Writer, s *state) error {
	if err := s.checkMissing("hand-back"); err != nil {
		return err
	}
	names := s.toHandBack()
	if len(names) == 0 {
		return exitcode.AsBadInput(fmt.Errorf("nothing to hand back: Kueue admits in ClusterQueue(s) %s already: no annotation %s, and no lock; to end a hold, set spec.stopPolicy to None",
			strings.Join(s.names, ", "), apis.EngineAnnotation))
	}
	var text strings.Builder
	text.WriteString("Kueue will admit instead of Tranche in:\n")
	for _, name := range s.names {
		if !slices.Contains(names, name) {
			fmt.Fprintf(&text, "- ClusterQueue %s: is Kueue's already, and stays as it is\n", name)
			continue
		}
		fmt.Fprintf(&text, "- ClusterQueue %s: no annotation %s", name, apis.EngineAnnotation)
		if isHeldForTranche(s.queues[name]) {
			text.WriteString(", spec.stopPolicy: Hold, because it is held for Tranche\n")
			continue
		}
		text.WriteString(", spec.stopPolicy: None\n")
	}
	text.WriteString("What runs goes on, and what waits keeps its place. Without an AdmissionCheck for stage safety, JobSets that have begun in stages can deadlock.\n")
	_, err := io.WriteString(out, text.String())
	return err
}

// checkMissing returns an error if the user has not named all ClusterQueues of a tree.
func (s *state) checkMissing(verb string) error {
	if len(s.missing) == 0 {
		return nil
	}
	all := slices.Sorted(slices.Values(slices.Concat(s.names, s.missing)))
	return fmt.Errorf("ClusterQueues of the same cohort tree are not named: %s; a tree changes as a whole: tranche %s %s",
		strings.Join(s.missing, ", "), verb, strings.Join(all, " "))
}

// differences lists what Tranche does otherwise than Kueue in these ClusterQueues.
func (s *state) differences() []string {
	has := func(is func(*kueue.ClusterQueue) bool) bool {
		return slices.ContainsFunc(s.names, func(name string) bool { return is(s.queues[name]) })
	}
	lines := []string{
		"as many Workloads are admitted at once as fit, not one for each ClusterQueue in a cycle",
		"a Workload tries all flavors on each attempt, not those behind the last one",
		"fairSharing and admissionFairSharing do not apply; resources are those of Tranche's configuration; waitForPodsReady stays Kueue's",
		"why a Workload waits is in its condition tranche.dev/Waiting; Kueue writes that the ClusterQueue is inactive",
	}
	if has(func(q *kueue.ClusterQueue) bool { return q.Spec.Preemption != nil }) {
		lines = append(lines, "the quota of a preemptor is reserved until its victims have terminated, and the same Workload is not preempted without end")
	}
	if has(func(q *kueue.ClusterQueue) bool { return q.Spec.QueueingStrategy == kueue.StrictFIFO }) {
		lines = append(lines, "the head of a StrictFIFO queue blocks no other if it can never fit, and does not keep quota that it would have to borrow")
	}
	if has(func(q *kueue.ClusterQueue) bool { return q.Spec.AdmissionChecksStrategy != nil }) {
		lines = append(lines, "AdmissionChecks for stage safety are Ready with the admission: stages are admitted only if that is safe")
	}
	return append(lines, "more: docs/migrate-from-kueue.md#different")
}
