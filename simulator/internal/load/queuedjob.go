package load

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// addQueuedJob adds a queued Job, unless the manager would refuse or not manage it: then its quota Workload is that of a job of another kind.
func (l *loader) addQueuedJob(original *batchv1.Job, terminating termination) {
	j, why := l.queuedJob(original)
	if why != "" {
		l.leaveOut("Job", original, why)
		return
	}
	job := original.DeepCopy()
	l.QueuedJobs[j.Key()] = j
	l.AddJob(job)
	l.Pods[job.UID] = l.podsOf(job, terminating)
	l.JobQueue[job.UID] = true
	l.JobSetQueue.Add(j.Key())
}

// queuedJob returns the submission of a queued Job, or why the manager would refuse or not manage it.
func (l *loader) queuedJob(job *batchv1.Job) (j *cluster.UserJob, why string) {
	if why = l.unmanagedNamespace(job.Namespace); why != "" {
		return nil, why
	}
	if why = queuedjob.Misuse(job); why != "" {
		return nil, why
	}
	own := queuedjob.Restored(job)
	template := own.Spec.Template.DeepCopy()
	if charged := l.chargedTemplate(job.UID, string(kueue.DefaultPodSetName)); charged != nil && len(template.Spec.ResourceClaims) > 0 {
		template = charged.DeepCopy()
	} else if problem := l.addDefaults(template, job.Namespace); problem != nil {
		return nil, "spec.template.spec.resourceClaims: " + problem.Message
	}
	priority, why := l.priorityOf(job, []podClass{{own.Spec.Template.Spec.PriorityClassName, "its pod template"}})
	if why != "" {
		return nil, why
	}
	main := string(kueue.DefaultPodSetName)
	stage := stageplan.Stage{Name: main, ReplicatedJobs: []string{main}, PodSets: []stageplan.PodSet{{
		Name: main, Count: childjob.PodsAtOnce(own), Requests: stageplan.PodRequests(&template.Spec), Template: template,
	}}}
	return &cluster.UserJob{
		Submission: &scenario.Submission{
			Name: job.Name, Namespace: job.Namespace, Queue: job.Labels[apis.QueueLabel], IsQueued: true, IsElastic: queuedjob.Elastic(job), Job: &own.Spec,
			Plan: &stageplan.Plan{Stages: []stageplan.Stage{stage}}, Priority: priority.Value, Gates: quotaworkload.Gates(job),
			MaxSeconds: maxSecondsOf(job), StopAfter: l.stopAfter,
		},
		PriorityClass: priority.Class, Created: job.CreationTimestamp.Time, IsDeleted: !job.DeletionTimestamp.IsZero(),
	}, ""
}

func maxSecondsOf(job *batchv1.Job) *int32 {
	seconds, err := strconv.ParseInt(job.Labels[apis.MaxExecTimeLabel], 10, 32)
	if err != nil {
		return nil
	}
	return new(int32(seconds))
}
