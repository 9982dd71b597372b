package scenario

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/preempt"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// A Config has the settings of a scenario: the engine's configuration, and how long pods may take to be ready.
type Config struct {
	admission.Config
	WaitForPodsReady configapi.WaitForPodsReady
}

// defaultConfig returns the settings of a manager without a configuration file.
func defaultConfig() Config {
	file := configapi.Configuration{}
	file.SetDefaults()
	return Config{Config: admission.ConfigOf(&file)}
}

// Complete sets the defaults. A scenario that sets a field about pods that are not ready enables the timeouts, unless it sets that, too.
func (c *Config) Complete() error {
	if c.WaitForPodsReady != (configapi.WaitForPodsReady{}) && c.WaitForPodsReady.Enable == nil {
		c.WaitForPodsReady.Enable = new(true)
	}
	file := configapi.Configuration{WaitForPodsReady: c.WaitForPodsReady}
	file.SetDefaults()
	if err := file.Validate().ToAggregate(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	c.WaitForPodsReady = file.WaitForPodsReady
	c.BlockAdmission = c.BlockAdmission || *c.WaitForPodsReady.BlockAdmission
	c.KeepPlaceAfterEviction = c.KeepPlaceAfterEviction || c.WaitForPodsReady.RequeuingStrategy.Timestamp == configapi.RequeuingTimestampCreation
	return nil
}

// settings are the fields of a config line.
func settings(c *Config) []Option {
	pods := &c.WaitForPodsReady
	usage := func() *admission.UsagePolicy {
		if c.AdmissionFairSharing == nil {
			c.AdmissionFairSharing = &admission.UsagePolicy{}
		}
		return c.AdmissionFairSharing
	}
	return []Option{
		{Key: "admission-fair-sharing.usage-half-life-time", set: then(duration, func(d time.Duration) { usage().UsageHalfLifeTime = d })},
		{Key: "admission-fair-sharing.usage-sampling-interval", set: then(duration, func(d time.Duration) { usage().UsageSamplingInterval = d })},
		{Key: "block-admission", set: into(&c.BlockAdmission, truth)},
		{Key: "charges.excluded-prefixes", set: into(&c.Charges.ExcludedPrefixes, list(anyText[string]))},
		{Key: "co-start.accelerators", set: into(&c.Accelerators, list(resourceName))},
		{Key: "co-start.enable", set: into(&c.CoStart.IsEnabled, truth)},
		{Key: "co-start.reserve-for", set: into(&c.CoStart.ReserveFor, duration)},
		{Key: "devices", set: into(&c.Devices, deviceMapping)},
		{Key: "fair-sharing", set: into(&c.FairSharing, truth)},
		{Key: "keep-place-after-eviction", set: into(&c.KeepPlaceAfterEviction, truth)},
		{Key: "look-ahead.max-ahead", set: then(count, func(n int32) { c.LookAhead.MaxAhead = int(n) })},
		{Key: "look-ahead.stalled-after", set: into(&c.LookAhead.StalledAfter, duration)},
		{Key: "look-ahead.stages", set: then(lookAhead, func(v string) { c.LookAhead.IsEnabled = v == "1" })},
		{Key: "preemption.least-work", set: into(&c.LeastWork, truth)},
		{Key: "preemption.minimum-runtime", set: into(&c.MinimumRuntime, duration)},
		{Key: "preemption.notice", set: into(&c.PreemptionNotice, duration)},
		{Key: "preemption-strategies", set: into(&c.PreemptionStrategies, list(anyText[preempt.Strategy]))},
		{Key: "reservation.after", set: then(span, func(v string) { c.Reservation = reservation(v) })},
		{Key: "stage-admission", set: into(&c.StageAdmission, anyText)},
		{Key: "wait-for-pods-ready.block-admission", set: intoPointer(&pods.BlockAdmission, truth)},
		{Key: "wait-for-pods-ready.enable", set: intoPointer(&pods.Enable, truth)},
		{Key: "wait-for-pods-ready.recovery-timeout", set: intoPointer(&pods.RecoveryTimeout, apiDuration)},
		{Key: "wait-for-pods-ready.requeuing-strategy.backoff-base-seconds", set: intoPointer(&pods.RequeuingStrategy.BackoffBaseSeconds, number)},
		{Key: "wait-for-pods-ready.requeuing-strategy.backoff-limit-count", set: intoPointer(&pods.RequeuingStrategy.BackoffLimitCount, number)},
		{Key: "wait-for-pods-ready.requeuing-strategy.backoff-max-seconds", set: intoPointer(&pods.RequeuingStrategy.BackoffMaxSeconds, number)},
		{Key: "wait-for-pods-ready.requeuing-strategy.timestamp", set: into(&pods.RequeuingStrategy.Timestamp, anyText)},
		{Key: "wait-for-pods-ready.timeout", set: intoPointer(&pods.Timeout, apiDuration)},
	}
}

// reservation converts a duration, or Never.
func reservation(after string) admission.Reservation {
	d, err := time.ParseDuration(after)
	return admission.Reservation{IsEnabled: err == nil, After: d}
}

func lookAhead(stages string) (string, error) { return oneOf[string](stages, "0|1") }

// Settings returns the names of all settings.
func Settings() []string { return keysOf(settings(&Config{})) }

func apiDuration(text string) (metav1.Duration, error) {
	d, err := duration(text)
	return metav1.Duration{Duration: d}, err
}

// deviceMapping reads CLASS:RESOURCE, several with commas.
func deviceMapping(text string) (device.Mapping, error) {
	mapping := device.Mapping{}
	for pair := range strings.SplitSeq(text, ",") {
		class, resource, ok := strings.Cut(pair, ":")
		if !ok {
			return nil, fmt.Errorf("%q must be KEY:VALUE", pair)
		}
		mapping[class] = corev1.ResourceName(resource)
	}
	return mapping, nil
}
