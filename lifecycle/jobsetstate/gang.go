package jobsetstate

import (
	"cmp"
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// GangOf returns the name of the gang of a Job, or "".
func (s *Snapshot) GangOf(job *batchv1.Job) string {
	index, ok := childjob.Index(job)
	if !ok || s.Gangs == nil {
		return ""
	}
	return s.Gangs.GangSet.GangOf(ReplicatedJobOf(job), index)
}

// GangUpdates returns the labels and annotations that put the pods of a Job into their gang. They are not known if the Job belongs to
// another attempt than the status of the JobSet.
func (s *Snapshot) GangUpdates(job *batchv1.Job) (updates []childjob.Update, known bool) {
	index, ok := childjob.Index(job)
	if !ok || s.Gangs == nil {
		return nil, true
	}
	fields := s.Gangs.PodFields(ReplicatedJobOf(job), index)
	if len(fields.Labels)+len(fields.Annotations) == 0 {
		return nil, true
	}
	updates = []childjob.Update{{By: "its gang would", Update: kueue.PodSetUpdate{Labels: fields.Labels, Annotations: fields.Annotations}}}
	return updates, cmp.Or(job.Labels[JobRestartAttemptLabel], "0") == strconv.Itoa(int(JobRestartsOf(s.JobSet, ReplicatedJobOf(job), index)))
}

// JobRestartsOf returns how often a single Job was restarted.
func JobRestartsOf(js *jobsetapi.JobSet, replicatedJob string, index int32) int32 {
	for i := range js.Status.ReplicatedJobsStatus {
		if status := &js.Status.ReplicatedJobsStatus[i]; status.Name == replicatedJob && int(index) < len(status.JobRestarts) && index >= 0 {
			return status.JobRestarts[index]
		}
	}
	return 0
}

// WithGangs adds the conditions that report the gangs of the JobSet.
func WithGangs(s *Snapshot, all []metav1.Condition, wait GangWait) []metav1.Condition {
	reason, message := GangSchedulingOf(s)
	if wait.Reason != "" && (reason == jobsetstatus.GangsKept || reason == jobsetstatus.GangsOfUser) {
		reason, message = wait.Reason, wait.Message
		all = jobsetstatus.WithGangBlocked(all, message)
	}
	return jobsetstatus.WithGangs(s.JobSet, all, reason, message)
}

// GangSchedulingOf returns the reason and the message of the condition GangScheduling.
func GangSchedulingOf(s *Snapshot) (reason, message string) {
	switch {
	case s.JobSet.Spec.Scheduling != nil:
		return jobsetstatus.GangsOfJobSet, "spec.scheduling makes the JobSet controller keep the objects of its gangs: Tranche keeps none, and gangConfig changes nothing"
	case s.Scheduler.Problem != "":
		return jobsetstatus.GangsContradicted, s.Scheduler.Problem
	case !s.Scheduler.IsConfigured:
		return jobsetstatus.GangsNotConfigured, "neither gang.provider in the manager's configuration nor the annotation " + apis.GangProviderAnnotation +
			" of the LocalQueue or ResourceFlavor names a scheduler that does"
	case !s.Scheduler.IsServed:
		return jobsetstatus.GangsNotServed, notServed(s.Scheduler.API)
	case s.Gangs == nil:
		return jobsetstatus.GangsMisconfigured, s.Refusal
	}
	if why := s.contradiction(); why != "" {
		return jobsetstatus.GangsContradicted, why
	}
	if job, field := s.namelessJob(); job != "" {
		return jobsetstatus.GangsNotNamed, fmt.Sprintf("the pods of Job %q have no %s, and are placed one by one or not at all: the API server has left"+
			" it out, or the policy tranche-gang-jobs was not there when the Job was created", job, field)
	}
	if taken := s.Gangs.NotOurs(); taken != "" {
		return jobsetstatus.GangsOfUser, taken
	}
	return jobsetstatus.GangsKept, fmt.Sprintf("%s, each with a PodGroup of %s from when its stage is admitted", countGangs(s.Gangs.Gangs()), s.Scheduler.Version)
}

func countGangs(n int32) string {
	if n == 1 {
		return "1 gang"
	}
	return fmt.Sprintf("%d gangs", n)
}

func notServed(backend schedulergang.API) string {
	if backend.Name == string(configapi.GangProviderKube) {
		return "the API server has no PodGroups of scheduling.k8s.io that the manager knows; ask your administrator to turn on" +
			" the feature gate GenericWorkload and to serve scheduling.k8s.io/v1alpha2 (--runtime-config)"
	}
	return fmt.Sprintf("the API server has no PodGroups of %s; ask your administrator to install %s", backend.WantedVersion, backend.Name)
}

// namelessJob returns the first Job of the attempt that should be in a gang and lacks a field that can be set only at creation, and the
// name of that field.
func (s *Snapshot) namelessJob() (name, field string) {
	for _, job := range s.Owned.Jobs {
		index, ok := childjob.Index(job)
		if !ok || job.Labels[RestartAttemptLabel] != AttemptOf(s.JobSet) || name != "" && name < job.Name || s.IsOfOtherScheduler(job) {
			continue
		}
		if lacks := s.Gangs.Lacks(ReplicatedJobOf(job), index, &job.Spec.Template); lacks != "" {
			name, field = job.Name, lacks
		}
	}
	return name, field
}
