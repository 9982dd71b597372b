package schedulergang

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A Provider makes the objects and pod fields for the gangs of one scheduler.
type Provider interface {
	// Kinds returns the kinds of its objects, which the API server must serve.
	Kinds() []Kind

	// Objects returns the objects that must exist before a stage starts, in the order in which to create them.
	Objects(gangSet *GangSet, stage int) []Object

	// Pods returns the fields that the pods of a Job of a member must have in addition: those pods are in this gang of the template.
	Pods(gangSet *GangSet, podGroupTemplate *PodGroupTemplate, member *Member, gang string) PodFields

	// UserGangName returns the name of the gang that a pod template already belongs to, or "".
	UserGangName(template *corev1.PodTemplateSpec) string
}

// A Kind is a kind of objects that a scheduler reads.
type Kind struct {
	metav1.TypeMeta
	// Fixed is true if the spec of an object cannot be changed.
	Fixed bool
}

// mutableKind returns the one kind of a scheduler whose objects may be changed.
func mutableKind(apiVersion string) []Kind {
	return []Kind{{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: PodGroupKind}}}
}

// PodGroupKind is the kind of the objects that make a gang, in all APIs.
const PodGroupKind = "PodGroup"

// An Object is an object that the scheduler reads. There are no Go types for most of them that could be imported together, so its spec has JSON
// types: maps from string, []any, string, int64.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec map[string]any `json:"spec"`
}

// PodFields are the fields that the pods of a Job must have to be members of their gang.
type PodFields struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// SchedulerName is the scheduler that supports the gang, or "" if any does.
	SchedulerName string `json:"schedulerName,omitempty"`
	// SchedulingGroup is spec.schedulingGroup of Kubernetes 1.36 and later.
	SchedulingGroup *corev1.PodSchedulingGroup `json:"schedulingGroup,omitempty"`
}

// newObject returns an object that is owned by its JobSet.
func (s *GangSet) newObject(apiVersion, kind, name string) Object {
	object := Object{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.JobSet.Namespace,
			Name:      name,
			Labels:    map[string]string{},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(&metav1.ObjectMeta{Name: s.JobSet.Name, UID: s.UID}, jobset.GroupVersion.WithKind("JobSet")),
			},
		},
		Spec: map[string]any{},
	}
	if len(s.JobSet.Name) <= maxNameLength {
		object.Labels[apis.JobSetLabel] = s.JobSet.Name
	}
	return object
}

// A gang is one gang of a template: all members of the template, or one of their Jobs.
type gang struct {
	*PodGroupTemplate
	name string
}

// gangsOf lists the gangs that start with a stage.
func (s *GangSet) gangsOf(stage int) []gang {
	var gangs []gang
	for g := range s.PodGroupTemplates {
		podGroupTemplate := &s.PodGroupTemplates[g]
		if podGroupTemplate.Stage != stage {
			continue
		}
		for job := range podGroupTemplate.Gangs() {
			gangs = append(gangs, gang{podGroupTemplate, s.gangName(podGroupTemplate, &podGroupTemplate.Members[0], job)})
		}
	}
	return gangs
}

// newPodGroup returns the object of one gang, or of a part of it.
func (s *GangSet) newPodGroup(apiVersion string, podGroupTemplate *PodGroupTemplate, name string) Object {
	object := s.newObject(apiVersion, PodGroupKind, name)
	object.Labels[apis.StageLabel] = podGroupTemplate.StageName
	return object
}

// podSets returns the pods of one gang of the template, to be added up.
func (p *PodGroupTemplate) podSets() []stageplan.PodSet {
	var podSets []stageplan.PodSet
	for i := range p.Members {
		member := &p.Members[i]
		count := member.Pods()
		if p.Mode == jobsetapi.GangModeReplicatedGang {
			count = member.PodsPerJob
		}
		podSets = append(podSets, stageplan.PodSet{Name: member.ReplicatedJob, Count: count, Requests: member.Requests})
	}
	return podSets
}

// minResources returns the total requests of pods, in the form of the field of that name of several PodGroups.
func minResources(podSets ...stageplan.PodSet) map[string]any {
	resources := map[string]any{}
	for name, quantity := range (&stageplan.Stage{PodSets: podSets}).Requests() {
		resources[string(name)] = quantity.String()
	}
	return resources
}

// withoutEmpty removes empty fields.
func withoutEmpty(spec map[string]any) map[string]any {
	maps.DeleteFunc(spec, func(_ string, value any) bool {
		fields, isMap := value.(map[string]any)
		return value == "" || isMap && len(fields) == 0
	})
	return spec
}
