package takeover

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/controllers/takeover"
)

// planTakeover returns what a takeover changes, or what stands in its way.
func planTakeover(s *state) (*Plan, error) {
	p := &Plan{Engine: apis.EngineTranche, Obstacles: s.whyNot(), Unsupported: s.unsupported, Differences: s.differences()}
	for _, name := range s.names {
		c := Change{Name: name, Annotations: map[string]*string{apis.EngineAnnotation: new(apis.EngineTranche)}, StopPolicy: kueue.Hold}
		if wasHeld(s.queues[name]) {
			c.Annotations[apis.StopPolicyAnnotation] = new(string(kueue.Hold))
		}
		p.ClusterQueues = append(p.ClusterQueues, c)
	}
	if s.kueueVersion == "" {
		p.Warnings = append(p.Warnings, fmt.Sprintf("The version of Kueue's manager is not known: it must be %sx.", takeover.Supported))
	}
	return p, nil
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

// planHandBack returns what handing back changes, or what stands in its way. It is bad input if nothing was taken over.
func planHandBack(s *state) (*Plan, error) {
	p := &Plan{Engine: apis.EngineKueue, Differences: []string{
		"without an AdmissionCheck for stage safety, JobSets that have begun in stages can deadlock", "more: docs/migrate-from-kueue.md#different",
	}}
	if err := s.checkMissing("hand-back"); err != nil {
		p.Obstacles = append(p.Obstacles, err.Error())
	}
	for _, name := range s.names {
		c := Change{Name: name}
		if s.isTaken(name) {
			c.Annotations = map[string]*string{apis.EngineAnnotation: nil, apis.StopPolicyAnnotation: nil}
			c.StopPolicy = kueue.None
			if isHeldForTranche(s.queues[name]) {
				c.StopPolicy = kueue.Hold
			}
		}
		p.ClusterQueues = append(p.ClusterQueues, c)
	}
	if len(p.Obstacles) == 0 && len(p.changed()) == 0 {
		return nil, exitcode.AsBadInput(fmt.Errorf("nothing to hand back: Kueue admits in ClusterQueue(s) %s already: no annotation %s, and no lock; to end a hold, set spec.stopPolicy to None",
			strings.Join(s.names, ", "), apis.EngineAnnotation))
	}
	return p, nil
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
