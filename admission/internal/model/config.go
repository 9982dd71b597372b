package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/preempt"
)

// Stage-admission policies.
const (
	// Safe admits a stage only if all JobSets that hold quota can still finish.
	Safe = "Safe"
	// Reserve reserves the peak of a hold segment from its first stage on.
	Reserve = "Reserve"
	// Greedy only checks whether the stage itself fits. JobSets can deadlock.
	Greedy = "Greedy"
)

// A Config has the defaults of an Engine, for what objects leave open. Its zero value is valid.
type Config struct {
	// StageAdmission is Safe, Reserve or Greedy. Empty means Safe.
	StageAdmission string
	// Leader admits in all cohort trees, but for those that were taken over from Kueue.
	Leader queuespec.Leader
	// FairSharing makes ClusterQueues and Cohorts share the quota that they borrow from each other: the one that borrows least, by weight, is
	// served first (KEP-1714).
	FairSharing bool
	// PreemptionStrategies say when fair sharing allows preemption. None means all, in the order of preempt.DefaultStrategies.
	PreemptionStrategies []preempt.Strategy
	// AdmissionFairSharing is nil if the past usage of LocalQueues does not count.
	AdmissionFairSharing *fairshare.UsagePolicy
	// BlockAdmission makes every admission wait until all pods of the stages admitted before are ready.
	BlockAdmission bool
	// Charges are the rules by which requests are charged.
	Charges charge.Rules
	// Devices map extended resources that devices serve to charged resources.
	Devices device.Mapping
	// KeepPlaceAfterEviction makes a stage that was evicted because its pods were not ready in time keep its queue position.
	KeepPlaceAfterEviction bool
}

// strategies returns the strategies of the Finder: none means preemption without regard to shares.
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
	if Strictness(c.StageAdmission) < 0 {
		return fmt.Errorf("admission.Config: StageAdmission is %q, must be one of %v", c.StageAdmission, policies())
	}
	return nil
}

// policies from the most lenient to the strictest.
func policies() []string { return []string{Greedy, Safe, Reserve} }

// Strictness is negative for an unknown policy.
func Strictness(policy string) int { return slices.Index(policies(), policy) }
