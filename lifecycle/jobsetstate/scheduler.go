package jobsetstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// A Scheduler is the scheduler that places the gangs of a JobSet. The manager chooses it when it starts the JobSet, and writes it into the
// pod templates: fields that Jobs need from their creation on cannot change when a stage gets other flavors. In order of precedence:
//
//	flavors of the stages that are admitted at the start, then the LocalQueue, then gang.provider
type Scheduler struct {
	schedulergang.API
	// Default is the name of the scheduler in the configuration.
	Default string
	// SchedulerName of the pods, or "" if they keep their own.
	SchedulerName string
	// Problem says what is wrong with the annotation that names the scheduler, and what to change.
	Problem string
}

// Of returns the scheduler that a pod template names.
func (c *Scheduler) Of(template *corev1.PodTemplateSpec) string {
	return cmp.Or(template.Annotations[apis.GangProviderAnnotation], c.Default)
}

// contradiction says which flavor names another scheduler than the one for which the JobSet was started.
func (s *Snapshot) contradiction() string {
	for _, flavor := range slices.Sorted(maps.Keys(s.Flavors)) {
		if name := s.Flavors[flavor].Annotations[apis.GangProviderAnnotation]; name != "" && name != s.Scheduler.Name {
			return fmt.Sprintf("ResourceFlavor %q names %s for them (%s), but the Jobs were made for %s: a JobSet keeps the scheduler that it was started with; "+
				"let all flavors of the JobSet name one, or submit it again", flavor, name, apis.GangProviderAnnotation, s.Scheduler.Name)
		}
	}
	return ""
}

// GangMembers returns the indexes of the ReplicatedJobs whose pods are in gangs.
func GangMembers(js *jobsetapi.JobSet) []int {
	var members []int
	for i := range js.Spec.ReplicatedJobs {
		if js.Spec.ReplicatedJobs[i].Template.Annotations[apis.GangGroupAnnotation] != "" {
			members = append(members, i)
		}
	}
	return members
}

// PodTemplateOf returns the pod template of the ReplicatedJob with this index.
func PodTemplateOf(js *jobsetapi.JobSet, i int) *corev1.PodTemplateSpec {
	return &js.Spec.ReplicatedJobs[i].Template.Spec.Template
}

// IsMisnamed reports whether the pod templates of a JobSet name another scheduler than the one that places its gangs.
func (s *Snapshot) IsMisnamed() bool {
	return slices.ContainsFunc(GangMembers(s.JobSet), func(i int) bool {
		return s.Scheduler.Of(PodTemplateOf(s.JobSet, i)) != s.Scheduler.Name
	})
}

// IsOfOtherScheduler reports whether a held Job was created for another scheduler. It has to be recreated.
func (s *Snapshot) IsOfOtherScheduler(job *batchv1.Job) bool {
	return job.Annotations[apis.GangGroupAnnotation] != "" && s.Scheduler.Of(&job.Spec.Template) != s.Scheduler.Name
}
