package admission

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/apis"
)

// Stage-admission policies.
const (
	// Safe admits a stage only if all JobSets that hold quota can still come to their end.
	Safe = "Safe"
	// Reserve keeps the peak of a hold segment free from its first stage on.
	Reserve = "Reserve"
	// Greedy only asks whether the stage itself fits. JobSets can wait for each other for ever.
	Greedy = "Greedy"
)

// A Config says how an Engine decides where objects do not say otherwise. Its zero value is sound.
type Config struct {
	// StageAdmission is Safe, Reserve or Greedy. Empty means Safe.
	StageAdmission string
	// FairSharing makes ClusterQueues and Cohorts share what they borrow from each other: who borrows least of it, by weight, is served
	// first (KEP-1714).
	FairSharing bool
	// PreemptionStrategies say when that allows to preempt. None means all, in the order of preempt.DefaultStrategies.
	PreemptionStrategies []preempt.Strategy
	// AdmissionFairSharing is nil where what LocalQueues have used in the past does not count.
	AdmissionFairSharing *UsagePolicy
	// BlockAdmission makes every admission wait until all pods of the stages admitted before are ready.
	BlockAdmission bool
	// Charges say what is charged for requests.
	Charges charge.Rules
	// Devices say what is charged for extended resources that devices serve.
	Devices device.Mapping
	// KeepPlaceAfterEviction makes a stage that was evicted because its pods were not ready in time take the place in line that it had.
	KeepPlaceAfterEviction bool
}

// strategies are those of the Finder: none means preemption without regard to shares.
func (c *Config) strategies() []preempt.Strategy {
	switch {
	case !c.FairSharing:
		return nil
	case len(c.PreemptionStrategies) == 0:
		return preempt.DefaultStrategies()
	}
	return c.PreemptionStrategies
}

func (c *Config) validate() error {
	if c.StageAdmission == "" {
		c.StageAdmission = Safe
	}
	if f := c.AdmissionFairSharing; f != nil {
		if f.UsageHalfLifeTime < 0 || f.UsageSamplingInterval < 0 {
			return fmt.Errorf("admission.Config: AdmissionFairSharing has times %v and %v, must not be negative", f.UsageHalfLifeTime, f.UsageSamplingInterval)
		}
		f.UsageSamplingInterval = cmp.Or(f.UsageSamplingInterval, defaultSampling)
	}
	if strictness(c.StageAdmission) < 0 {
		return fmt.Errorf("admission.Config: StageAdmission is %q, must be one of %v", c.StageAdmission, policies())
	}
	return nil
}

// policies from the most lenient to the strictest.
func policies() []string { return []string{Greedy, Safe, Reserve} }

// strictness is negative for what is no policy.
func strictness(policy string) int { return slices.Index(policies(), policy) }

// overruled says that a JobSet asks for a laxer policy than the one by which it is admitted, or nothing if it does not.
func (l *look) overruled() string {
	if l.j == nil || strictness(l.j.policy) < 0 || strictness(l.j.policy) >= strictness(l.policy) {
		return ""
	}
	return fmt.Sprintf("; its annotation %s is %s, but policy %s of ClusterQueue %s is stricter and stands",
		apis.StageAdmissionAnnotation, l.j.policy, l.policy, l.q.name)
}

// policy is that of the ClusterQueue, unless the JobSet asks for a stricter one.
func (e *Engine) policy(q *clusterQueue, j *jobSet) string {
	policy := e.config.StageAdmission
	if strictness(q.policy) >= 0 {
		policy = q.policy
	}
	if j != nil && strictness(j.policy) > strictness(policy) {
		policy = j.policy
	}
	return policy
}
