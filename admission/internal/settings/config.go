package settings

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
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

// A Config has the defaults of an Engine. Its zero value is valid.
type Config struct {
	// StageAdmission is Safe, Reserve or Greedy. Empty means Safe.
	StageAdmission string
	// CoStart is how policy Safe treats stages that hold accelerators and start others, unless the ClusterQueue overrides it.
	CoStart queuespec.CoStart
	// Accelerators are the resources that count as accelerators. None means all that not every node has (charge.IsAccelerator).
	Accelerators []corev1.ResourceName
	// MinimumRuntime is how long a stage runs before it may be preempted, unless its ClusterQueue overrides it.
	MinimumRuntime time.Duration
	// PreemptionNotice is how long a victim runs after its preemption was decided, unless its ClusterQueue overrides it.
	PreemptionNotice time.Duration
	// LeastWork is true if, at equal priority, stages are preempted first that lose the least time of accelerators.
	LeastWork bool
	// Reservation is when quota is reserved for a stage that waits, unless the ClusterQueue overrides it.
	Reservation queuespec.Reservation
	// LookAhead bounds how many JobSets are prepared ahead.
	LookAhead LookAhead
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

// A LookAhead bounds how many JobSets of a ClusterQueue run their stages without accelerators before their accelerators are free.
type LookAhead struct {
	IsEnabled bool
	MaxAhead  int
	// StalledAfter is how long after the last admission of one of its stages a JobSet keeps others waiting.
	StalledAfter time.Duration
}

// CoStartOf returns the setting of a ClusterQueue.
func (c *Config) CoStartOf(q *queuespec.Spec) queuespec.CoStart {
	if q.CoStart != nil {
		return *q.CoStart
	}
	return c.CoStart
}

// MinimumRuntimeOf returns the setting of a ClusterQueue.
func (c *Config) MinimumRuntimeOf(q *queuespec.Spec) time.Duration {
	if q.MinimumRuntime != nil {
		return *q.MinimumRuntime
	}
	return c.MinimumRuntime
}

// PreemptionNoticeOf returns the setting of a ClusterQueue.
func (c *Config) PreemptionNoticeOf(q *queuespec.Spec) time.Duration {
	if q.PreemptionNotice != nil {
		return *q.PreemptionNotice
	}
	return c.PreemptionNotice
}

// ReservationOf returns the setting of a ClusterQueue.
func (c *Config) ReservationOf(q *queuespec.Spec) queuespec.Reservation {
	if q.Reservation != nil {
		return *q.Reservation
	}
	return c.Reservation
}

// HasAccelerators reports whether a usage has accelerators.
func (c *Config) HasAccelerators(index *quota.Index, usage quota.Usage) bool {
	return slices.ContainsFunc(usage, func(u quota.Charge) bool { return u.Amount > 0 && c.IsAccelerator(index.Name(u.ID).Resource) })
}

// WorkOn returns what is lost if a stage that has started is preempted, if that counts: the time of its accelerators, of all kinds together, since it
// started, or since its work was saved.
func (c *Config) WorkOn(index *quota.Index, usage quota.Usage, started, saved time.Time) []preempt.Work {
	if !c.LeastWork || started.IsZero() {
		return nil
	}
	w := preempt.Work{Since: started, SavedAt: saved}
	for _, u := range usage {
		if c.IsAccelerator(index.Name(u.ID).Resource) {
			w.Accelerators = w.Accelerators.Plus(u.Amount)
		}
	}
	return []preempt.Work{w}
}

// IsAccelerator reports whether a resource counts as an accelerator.
func (c *Config) IsAccelerator(name corev1.ResourceName) bool {
	if len(c.Accelerators) > 0 {
		return slices.Contains(c.Accelerators, name)
	}
	return charge.IsAccelerator(name)
}

// Strategies returns the strategies of the Finder: none means preemption without regard to shares.
func (c *Config) Strategies() []preempt.Strategy {
	switch {
	case !c.FairSharing:
		return nil
	case len(c.PreemptionStrategies) == 0:
		return preempt.DefaultStrategies()
	}
	return c.PreemptionStrategies
}

// Complete sets the defaults. The error names the field that has an invalid value.
func (c *Config) Complete() error {
	if c.StageAdmission == "" {
		c.StageAdmission = Safe
	}
	if f := c.AdmissionFairSharing; f != nil {
		if f.UsageHalfLifeTime < 0 || f.UsageSamplingInterval < 0 {
			return fmt.Errorf("admission.Config: AdmissionFairSharing has times %v and %v, must not be negative", f.UsageHalfLifeTime, f.UsageSamplingInterval)
		}
		f.UsageSamplingInterval = cmp.Or(f.UsageSamplingInterval, defaultSampling)
	}
	if c.CoStart.ReserveFor < 0 {
		return fmt.Errorf("admission.Config: CoStart.ReserveFor is %v, must not be negative", c.CoStart.ReserveFor)
	}
	if c.MinimumRuntime < 0 {
		return fmt.Errorf("admission.Config: MinimumRuntime is %v, must not be negative", c.MinimumRuntime)
	}
	if c.PreemptionNotice < 0 {
		return fmt.Errorf("admission.Config: PreemptionNotice is %v, must not be negative", c.PreemptionNotice)
	}
	if c.Reservation.After < 0 {
		return fmt.Errorf("admission.Config: Reservation.After is %v, must not be negative", c.Reservation.After)
	}
	if c.LookAhead.MaxAhead < 0 {
		return fmt.Errorf("admission.Config: LookAhead.MaxAhead is %d, must not be negative", c.LookAhead.MaxAhead)
	}
	if c.LookAhead.StalledAfter < 0 {
		return fmt.Errorf("admission.Config: LookAhead.StalledAfter is %v, must not be negative", c.LookAhead.StalledAfter)
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

// defaultSampling is the default of UsagePolicy.UsageSamplingInterval.
const defaultSampling = 5 * time.Minute
