package main

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// chargesOf converts the configuration of requests.
func chargesOf(config *configapi.Resources) charge.Rules {
	rules := charge.Rules{ExcludedPrefixes: config.ExcludeResourcePrefixes, Transformations: map[corev1.ResourceName]charge.Transformation{}}
	for i := range config.Transformations {
		t := &config.Transformations[i]
		rules.Transformations[t.Input] = charge.Transformation{Replace: t.Strategy == configapi.Replace, MultiplyBy: t.MultiplyBy, Outputs: t.Outputs}
	}
	return rules
}

// devicesOf converts the configuration of devices.
func devicesOf(config *configapi.Resources) device.Mapping {
	mapping := device.Mapping{}
	for i := range config.DeviceClassMappings {
		for _, class := range config.DeviceClassMappings[i].DeviceClassNames {
			mapping[string(class)] = config.DeviceClassMappings[i].Name
		}
	}
	return mapping
}

// gangSettings converts the configuration of gangs of pods.
func gangSettings(config *configapi.PodGroups) podgroup.Settings {
	return podgroup.Settings{Wait: config.WaitingTime.Duration, StopsAfterTimeout: config.AfterTimeout == configapi.PodGroupStop}
}
