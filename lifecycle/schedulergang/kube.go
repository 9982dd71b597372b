package schedulergang

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// A KubeVersion is a version of the group scheduling.k8s.io. Each release of Kubernetes serves a different one, and only one.
type KubeVersion string

const (
	// V1alpha2 is served by Kubernetes 1.36.
	V1alpha2 KubeVersion = "v1alpha2"
	// V1beta1 is served by Kubernetes 1.37.
	V1beta1 KubeVersion = "v1beta1"
)

const kubeGroup = "scheduling.k8s.io/"

// maxTemplates is the limit of templates in a gang Workload.
const maxTemplates = 8

// Kube is the provider for the scheduler of Kubernetes itself. A JobSet has one gang Workload with its templates, and more if there
// are more templates than its limit. From the templates come PodGroups, one for each gang and attempt.
type Kube struct {
	// Version that the API server serves.
	Version KubeVersion
}

// Kinds returns gang Workloads and PodGroups.
func (k Kube) Kinds() []Kind {
	apiVersion := kubeGroup + string(k.Version)
	return []Kind{
		{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "Workload"}, Fixed: true},
		{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: PodGroupKind}, Fixed: true},
	}
}

// Objects returns the gang Workloads with the templates of a stage, and then its PodGroups. A gang Workload has all of its templates, also those of
// other stages: its templates cannot be changed.
func (k Kube) Objects(gangSet *GangSet, stage int) []Object {
	var objects []Object
	for first := 0; first < len(gangSet.PodGroupTemplates); first += maxTemplates {
		podGroupTemplates := gangSet.PodGroupTemplates[first:min(first+maxTemplates, len(gangSet.PodGroupTemplates))]
		if slices.ContainsFunc(podGroupTemplates, func(p PodGroupTemplate) bool { return p.Stage == stage }) {
			objects = append(objects, k.workload(gangSet, first/maxTemplates, podGroupTemplates))
		}
	}
	for _, gang := range gangSet.gangsOf(stage) {
		object := gangSet.newPodGroup(kubeGroup+string(k.Version), gang.PodGroupTemplate, gang.name)
		object.Spec["schedulingPolicy"] = gangPolicy(gang.PodGroupTemplate)
		workload, template := workloadOf(gangSet, gang.PodGroupTemplate), gang.Name
		if k.Version == V1alpha2 {
			object.Spec["podGroupTemplateRef"] = map[string]any{
				"workload": map[string]any{"workloadName": workload, "podGroupTemplateName": template},
			}
		} else {
			object.Spec["workloadRef"] = map[string]any{"workloadName": workload, "templateName": template}
		}
		objects = append(objects, object)
	}
	return objects
}

func (k Kube) workload(gangSet *GangSet, number int, podGroupTemplates []PodGroupTemplate) Object {
	var templates []any
	for g := range podGroupTemplates {
		templates = append(templates, map[string]any{"name": podGroupTemplates[g].Name, "schedulingPolicy": gangPolicy(&podGroupTemplates[g])})
	}
	object := gangSet.newObject(kubeGroup+string(k.Version), "Workload", workloadName(gangSet, number))
	object.Spec["controllerRef"] = map[string]any{"apiGroup": jobset.GroupVersion.Group, "kind": "JobSet", "name": gangSet.JobSet.Name}
	object.Spec["podGroupTemplates"] = templates
	return object
}

func gangPolicy(podGroupTemplate *PodGroupTemplate) map[string]any {
	return map[string]any{"gang": map[string]any{"minCount": int64(podGroupTemplate.MinCount)}}
}

// workloadName returns the name of a gang Workload. It is the same in all attempts: nothing in it changes by a restart.
func workloadName(gangSet *GangSet, number int) string {
	if number == 0 {
		return gangSet.name("", "gangs")
	}
	return gangSet.name("", fmt.Sprintf("gangs%d", number))
}

func workloadOf(gangSet *GangSet, podGroupTemplate *PodGroupTemplate) string {
	index := slices.IndexFunc(gangSet.PodGroupTemplates, func(p PodGroupTemplate) bool { return p.Name == podGroupTemplate.Name })
	return workloadName(gangSet, index/maxTemplates)
}

// Pods returns the name of the PodGroup.
func (Kube) Pods(_ *GangSet, _ *PodGroupTemplate, _ *Member, gang string) PodFields {
	return PodFields{SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: &gang}}
}

// UserGangName returns the PodGroup that the template names.
func (Kube) UserGangName(template *corev1.PodTemplateSpec) string {
	group := template.Spec.SchedulingGroup
	if group == nil || group.PodGroupName == nil {
		return ""
	}
	return *group.PodGroupName
}
