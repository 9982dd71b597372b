package schedulergang

import (
	"cmp"

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

// Objects returns a PodGroup for each gang. That of several ReplicatedJobs also says how many pods of each it takes.
func (v Volcano) Objects(shape *Shape, stage int) []Object {
	var objects []Object
	for _, gang := range shape.gangsOf(stage) {
		object := shape.newPodGroup(volcanoVersion, gang.Group, gang.name)
		tasks := map[string]any{}
		if len(gang.Members) > 1 {
			for m := range gang.Members {
				tasks[gang.Members[m].ReplicatedJob] = int64(gang.Members[m].Pods())
			}
		}
		object.Spec = withoutNothing(map[string]any{
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

// priorityClass is the one that all pods of the group name, or "": then Volcano goes by what each of them has.
func (g *Group) priorityClass() string {
	first := g.Members[0].Template.Spec.PriorityClassName
	for m := range g.Members {
		if g.Members[m].Template.Spec.PriorityClassName != first {
			return ""
		}
	}
	return first
}

// Pods returns the annotations with the names of the PodGroup and of the task.
func (v Volcano) Pods(shape *Shape, replicatedJob string, job int32) PodFields {
	group, member := shape.find(replicatedJob, job)
	if group == nil {
		return PodFields{}
	}
	fields := PodFields{
		Annotations:   map[string]string{volcanoAnnotation: shape.gangName(group, member, job)},
		SchedulerName: cmp.Or(v.SchedulerName, apis.VolcanoScheduler),
	}
	if len(group.Members) > 1 {
		fields.Annotations[volcanoTaskAnnotation] = replicatedJob
	}
	return fields
}

// Named returns the PodGroup that the template names.
func (Volcano) Named(template *corev1.PodTemplateSpec) string {
	return template.Annotations[volcanoAnnotation]
}

// Refuse refuses nothing.
func (Volcano) Refuse(*Shape, *Group) string { return "" }
