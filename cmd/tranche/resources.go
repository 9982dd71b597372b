package main

import (
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// gangSettings converts the configuration of gangs of pods.
func gangSettings(config *configapi.PodGroups) podgroup.Settings {
	return podgroup.Settings{Wait: config.WaitingTime.Duration, StopsAfterTimeout: config.AfterTimeout == configapi.PodGroupStop}
}
