package schedulergang

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/apis"
)

const (
	volcanoVersion        = "scheduling.volcano.sh/v1beta1"
	volcanoAnnotation     = "scheduling.k8s.io/group-name"
	volcanoTaskAnnotation = "volcano.sh/task-spec"
)

// Volcano is the provider for Volcano. Its controller would make a PodGroup of one pod for each Job whose pods do not name one.
type Volcano struct {
	// SchedulerName defaults to volcano.
	SchedulerName string
	// Queue of Volcano that the PodGroups are in. It defaults to that of Volcano.
	Queue string
}

// Kinds are PodGroups.
func (Volcano) Kinds() []Kind { return mutableKind(volcanoVersion) }

// Objects returns a PodGroup for each gang. The PodGroup of several ReplicatedJobs also has the number of pods of each.
func (v Volcano) Objects(gangSet *GangSet, stage int) []Object {
	var objects []Object
	for _, gang := range gangSet.gangsOf(stage) {
		object := gangSet.newPodGroup(volcanoVersion, gang.PodGroupTemplate, gang.name)
		tasks := map[string]any{}
		if len(gang.Members) > 1 {
			for m := range gang.Members {
				tasks[gang.Members[m].ReplicatedJob] = int64(gang.Members[m].Pods())
			}
		}
		object.Spec = withoutEmpty(map[string]any{
			"minMember":         int64(gang.MinCount),
			"minTaskMember":     tasks,
			"minResources":      minResources(gang.podSets()...),
			"priorityClassName": gang.priorityClass(),
			"queue":             v.Queue,
		})
		objects = append(objects, object)
	}
	return objects
}

// priorityClass returns the PriorityClass that all pods of the template name, or "": then Volcano uses the class of each pod.
func (p *PodGroupTemplate) priorityClass() string {
	first := p.Members[0].Template.Spec.PriorityClassName
	if slices.ContainsFunc(p.Members, func(m Member) bool { return m.Template.Spec.PriorityClassName != first }) {
		return ""
	}
	return first
}

// Pods returns the annotations with the names of the PodGroup and of the task.
func (v Volcano) Pods(_ *GangSet, podGroupTemplate *PodGroupTemplate, member *Member, gang string) PodFields {
	fields := PodFields{
		Annotations:   map[string]string{volcanoAnnotation: gang},
		SchedulerName: cmp.Or(v.SchedulerName, apis.VolcanoScheduler),
	}
	if len(podGroupTemplate.Members) > 1 {
		fields.Annotations[volcanoTaskAnnotation] = member.ReplicatedJob
	}
	return fields
}

// UserGangName returns the PodGroup that the template names.
func (Volcano) UserGangName(template *corev1.PodTemplateSpec) string {
	return template.Annotations[volcanoAnnotation]
}
