package schedulergang

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/apis"
)

const (
	coschedulingVersion = "scheduling.x-k8s.io/v1alpha1"
	coschedulingLabel   = "scheduling.x-k8s.io/pod-group"
)

// Coscheduling is the provider for the plugin of that name of kubernetes-sigs/scheduler-plugins.
type Coscheduling struct {
	// SchedulerName is the profile that has the plugin. It defaults to the name in the chart of the project.
	SchedulerName string
	// TimeoutSeconds is how long placed members wait for the others. It defaults to that of the plugin.
	TimeoutSeconds *int32
}

// Kinds returns PodGroups.
func (Coscheduling) Kinds() []Kind { return mutableKind(coschedulingVersion) }

// Objects returns a PodGroup for each gang.
func (c Coscheduling) Objects(gangSet *GangSet, stage int) []Object {
	var objects []Object
	for _, gang := range gangSet.gangsOf(stage) {
		object := gangSet.newPodGroup(coschedulingVersion, gang.PodGroupTemplate, gang.name)
		object.Spec = withoutEmpty(map[string]any{
			"minMember":    int64(gang.MinCount),
			"minResources": minResources(gang.podSets()...),
		})
		addTimeout(object.Spec, c.TimeoutSeconds)
		objects = append(objects, object)
	}
	return objects
}

func addTimeout(spec map[string]any, seconds *int32) {
	if seconds != nil {
		spec["scheduleTimeoutSeconds"] = int64(*seconds)
	}
}

// Pods returns the label with the name of the PodGroup.
func (c Coscheduling) Pods(_ *GangSet, _ *PodGroupTemplate, _ *Member, gang string) PodFields {
	return PodFields{
		Labels:        map[string]string{coschedulingLabel: gang},
		SchedulerName: cmp.Or(c.SchedulerName, apis.CoschedulingScheduler),
	}
}

// UserGangName returns the PodGroup that the template names.
func (Coscheduling) UserGangName(template *corev1.PodTemplateSpec) string {
	return template.Labels[coschedulingLabel]
}
