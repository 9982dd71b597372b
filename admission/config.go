package admission

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/preempt"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// ConfigOf returns the part of the manager's configuration, with its defaults, that decisions depend on.
func ConfigOf(config *configapi.Configuration) Config {
	c := Config{
		StageAdmission:         string(config.StageAdmission),
		CoStart:                CoStart{IsEnabled: *config.CoStart.Enable, ReserveFor: config.CoStart.ReserveFor.Duration},
		Accelerators:           config.CoStart.Accelerators,
		MinimumRuntime:         config.Preemption.MinimumRuntime.Duration,
		PreemptionNotice:       config.Preemption.Notice.Duration,
		LeastWork:              *config.Preemption.LeastWork,
		Reservation:            reservationOf(&config.Reservation),
		LookAhead:              LookAhead{IsEnabled: *config.LookAhead.Stages > 0, MaxAhead: int(*config.LookAhead.MaxAhead), StalledAfter: config.LookAhead.StalledAfter.Duration},
		BlockAdmission:         *config.WaitForPodsReady.Enable && *config.WaitForPodsReady.BlockAdmission,
		Charges:                chargesOf(&config.Resources),
		Devices:                DevicesOf(&config.Resources),
		KeepPlaceAfterEviction: config.WaitForPodsReady.RequeuingStrategy.Timestamp == configapi.RequeuingTimestampCreation,
	}
	if config.Mode == configapi.ModeBeside {
		c.Leader = LedByKueue
	}
	if f := config.FairSharing; f != nil {
		c.FairSharing = true
		for _, s := range f.PreemptionStrategies {
			c.PreemptionStrategies = append(c.PreemptionStrategies, preempt.Strategy(s))
		}
	}
	if f := config.AdmissionFairSharing; f != nil {
		c.AdmissionFairSharing = &UsagePolicy{
			UsageHalfLifeTime: f.UsageHalfLifeTime.Duration, UsageSamplingInterval: f.UsageSamplingInterval.Duration, ResourceWeights: f.ResourceWeights,
		}
	}
	return c
}

// reservationOf converts a setting that has been validated.
func reservationOf(config *configapi.Reservation) Reservation {
	after, err := time.ParseDuration(config.After)
	return Reservation{IsEnabled: err == nil, After: after} // otherwise it is Never
}

// chargesOf converts the configuration of requests.
func chargesOf(config *configapi.Resources) charge.Rules {
	rules := charge.Rules{ExcludedPrefixes: config.ExcludeResourcePrefixes, Transformations: map[corev1.ResourceName]charge.Transformation{}}
	for i := range config.Transformations {
		t := &config.Transformations[i]
		rules.Transformations[t.Input] = charge.Transformation{Replace: t.Strategy == configapi.Replace, MultiplyBy: t.MultiplyBy, Outputs: t.Outputs}
	}
	return rules
}

// DevicesOf returns which resources are charged for the devices of each DeviceClass.
func DevicesOf(config *configapi.Resources) device.Mapping {
	mapping := device.Mapping{}
	for i := range config.DeviceClassMappings {
		for _, class := range config.DeviceClassMappings[i].DeviceClassNames {
			mapping[string(class)] = config.DeviceClassMappings[i].Name
		}
	}
	return mapping
}
