package schedulergang

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

const (
	koordinatorVersion = "scheduling.sigs.k8s.io/v1alpha1"
	koordinatorLabel   = "pod-group.scheduling.sigs.k8s.io"
	koordinatorPrefix  = "gang.scheduling.koordinator.sh/"
)

// A KoordinatorMode determines what happens to members that have a node when another member has none.
type KoordinatorMode string

const (
	// Strict releases the nodes of all members.
	Strict KoordinatorMode = "Strict"
	// NonStrict keeps them. Gangs may then deadlock.
	NonStrict KoordinatorMode = "NonStrict"
)

// Koordinator is the provider for Koordinator. A gang of several ReplicatedJobs is a group of gangs there, one for each.
type Koordinator struct {
	// SchedulerName defaults to koord-scheduler.
	SchedulerName string
	// Mode defaults to Strict.
	Mode KoordinatorMode
	// TimeoutSeconds is how long placed members wait for the others. It defaults to that of Koordinator.
	TimeoutSeconds *int32
}

// A part is what Koordinator calls a gang: a whole gang, or the pods of one ReplicatedJob in a gang.
type part struct {
	name     string
	minCount int32
	podSet   stageplan.PodSet
}

// partsOf returns the parts of a gang. ReplicatedJobs without pods have no part.
func (Koordinator) partsOf(gangSet *GangSet, g gang) []part {
	podSets := g.podSets()
	if len(podSets) == 1 {
		return []part{{g.name, g.MinCount, podSets[0]}}
	}
	var parts []part
	for m := range podSets {
		if podSets[m].Count > 0 {
			parts = append(parts, part{gangSet.roleName(&g.Members[m]), podSets[m].Count, podSets[m]})
		}
	}
	return parts
}

// Kinds returns PodGroups.
func (Koordinator) Kinds() []Kind { return mutableKind(koordinatorVersion) }

// Objects returns a PodGroup for each gang, or for each ReplicatedJob of a gang of several.
func (k Koordinator) Objects(gangSet *GangSet, stage int) []Object {
	var objects []Object
	for _, gang := range gangSet.gangsOf(stage) {
		parts := k.partsOf(gangSet, gang)
		for _, part := range parts {
			object := gangSet.newPodGroup(koordinatorVersion, gang.PodGroupTemplate, part.name)
			object.Annotations = k.annotations(gangSet, part, parts)
			object.Spec = withoutEmpty(map[string]any{
				"minMember":    int64(part.minCount),
				"minResources": minResources(part.podSet),
			})
			addTimeout(object.Spec, k.TimeoutSeconds)
			objects = append(objects, object)
		}
	}
	return objects
}

// annotations returns those of one PodGroup. By default Koordinator forgets a gang once it was complete, so that pods that are recreated in the
// same attempt, after an eviction or a suspension, would be placed one by one. If it counts waiting and running pods, it does not forget the
// gang, and still places a single pod that was lost and recreated.
func (k Koordinator) annotations(gangSet *GangSet, p part, all []part) map[string]string {
	annotations := map[string]string{
		koordinatorPrefix + "mode":         string(cmp.Or(k.Mode, Strict)),
		koordinatorPrefix + "total-number": fmt.Sprint(p.minCount),
		koordinatorPrefix + "match-policy": "waiting-and-running",
	}
	if len(all) > 1 {
		var names []string
		for _, other := range all {
			names = append(names, fmt.Sprintf("%q", gangSet.JobSet.Namespace+"/"+other.name))
		}
		annotations[koordinatorPrefix+"groups"] = "[" + strings.Join(names, ",") + "]"
	}
	return annotations
}

// Pods returns the label with the name of the PodGroup.
func (k Koordinator) Pods(gangSet *GangSet, podGroupTemplate *PodGroupTemplate, member *Member, gang string) PodFields {
	if len(podGroupTemplate.Members) > 1 {
		gang = gangSet.roleName(member)
	}
	return PodFields{
		Labels:        map[string]string{koordinatorLabel: gang},
		SchedulerName: cmp.Or(k.SchedulerName, apis.KoordinatorScheduler),
	}
}

// UserGangName returns the gang that the template names, in any of the ways that Koordinator supports.
func (Koordinator) UserGangName(template *corev1.PodTemplateSpec) string {
	return cmp.Or(template.Labels[koordinatorLabel], template.Labels[koordinatorLabel+"/name"], template.Annotations[koordinatorPrefix+"name"])
}
