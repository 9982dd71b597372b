package cluster

import (
	"cmp"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
)

// A JobName is the name of a Job, which is unique among the Jobs of a JobSet. That of a queued Job has the namespace, and no JobSet.
type JobName struct {
	JobSet types.UID
	Name   string
}

// NameOfJob returns the name of a Job.
func NameOfJob(job *batchv1.Job) JobName {
	if queuedjob.IsQueued(job) {
		return JobName{Name: job.Namespace + "/" + job.Name}
	}
	return JobName{job.OwnerReferences[0].UID, job.Name}
}

// QueuedJob returns the queued Job of a name, or nil.
func (cl *Cluster) QueuedJob(key types.NamespacedName) *batchv1.Job {
	return cl.JobNamed(JobName{Name: key.Namespace + "/" + key.Name})
}

// SubmissionOf returns the name of the submission to which a Job belongs: its JobSet, or the Job itself.
func SubmissionOf(job *batchv1.Job) types.NamespacedName {
	return types.NamespacedName{Namespace: job.Namespace, Name: cmp.Or(job.Labels[jobset.JobSetNameKey], job.Name)}
}

// JobNamed returns the Job of a name, or nil.
func (cl *Cluster) JobNamed(name JobName) *batchv1.Job { return cl.Jobs[cl.JobsByName[name]] }

// PodsOf returns the pods of a Job.
func (cl *Cluster) PodsOf(job *batchv1.Job) *PodSet {
	p := cl.Pods[job.UID]
	if p == nil {
		p = &PodSet{}
		cl.Pods[job.UID] = p
	}
	return p
}

// PodsChanged reconciles a Job whose pods have changed, if it still exists, and its JobSet, since the manager watches the pods.
func (cl *Cluster) PodsChanged(job *batchv1.Job) {
	if now := cl.Jobs[job.UID]; now != nil {
		cl.JobQueue[now.UID] = true
		cl.touchOwner(now)
	}
}

// touchOwner queues the submission to which a Job belongs.
func (cl *Cluster) touchOwner(job *batchv1.Job) {
	owner := SubmissionOf(job)
	cl.Touch(owner.Namespace, owner.Name)
}

// SetJobCondition sets a condition of a Job.
func SetJobCondition(job *batchv1.Job, condition batchv1.JobConditionType, status corev1.ConditionStatus) {
	for i := range job.Status.Conditions {
		if c := &job.Status.Conditions[i]; c.Type == condition {
			c.Status = status
			return
		}
	}
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: condition, Status: status})
}

// PutJob writes a Job. A write that changes nothing is not observed by anyone.
func (cl *Cluster) PutJob(job *batchv1.Job) {
	if before := cl.Jobs[job.UID]; before != nil && equality.Semantic.DeepEqual(before, job) {
		return
	}
	isNew := job.UID == ""
	cl.rememberJob(job)
	cl.Stamp(job)
	cl.Jobs[job.UID] = job
	if isNew {
		cl.AddJob(job)
	}
	cl.JobQueue[job.UID] = true
	cl.touchOwner(job)
}

// AddJob adds a Job with its UID, and no pods.
func (cl *Cluster) AddJob(job *batchv1.Job) {
	name := NameOfJob(job)
	cl.Jobs[job.UID], cl.JobsByName[name] = job, job.UID
	if name.JobSet != "" {
		cl.JobsByJobSet[name.JobSet] = append(cl.JobsByJobSet[name.JobSet], job.UID)
	}
}

// rememberJob keeps the version of a Job that is about to be replaced.
func (cl *Cluster) rememberJob(job *batchv1.Job) {
	if queuedjob.IsQueued(job) {
		return
	}
	cl.remember(SubmissionOf(job), ObjectName{jobKind, job.Name}, Version{Job: cl.Jobs[job.UID]})
}

// DropJob removes a deleted Job whose pods have terminated.
func (cl *Cluster) DropJob(job *batchv1.Job) {
	owner := NameOfJob(job).JobSet
	cl.rememberJob(job)
	cl.JobsByJobSet[owner] = slices.DeleteFunc(cl.JobsByJobSet[owner], func(uid types.UID) bool { return uid == job.UID })
	if len(cl.JobsByJobSet[owner]) == 0 {
		delete(cl.JobsByJobSet, owner)
	}
	delete(cl.JobsByName, NameOfJob(job))
	delete(cl.Jobs, job.UID)
	delete(cl.Pods, job.UID)
	cl.touchOwner(job)
}

// IsFailed reports whether a Job has failed.
func IsFailed(job *batchv1.Job) bool { return childjob.IsFinished(job, batchv1.JobFailed) }

// ChildJobs returns the existing Jobs of a JobSet: those of its current attempt, and those of earlier attempts.
func (cl *Cluster) ChildJobs(js *jobsetapi.JobSet) (current, previous []*batchv1.Job) {
	for _, job := range cl.JobsOf(js.UID) {
		if job.Labels[constants.RestartsKey] == strconv.Itoa(int(js.Status.Restarts)) {
			current = append(current, job)
		} else {
			previous = append(previous, job)
		}
	}
	return current, previous
}

// DeleteJob deletes a Job in the foreground.
func (cl *Cluster) DeleteJob(job *batchv1.Job) {
	if !job.DeletionTimestamp.IsZero() {
		return
	}
	after := job.DeepCopy()
	after.DeletionTimestamp = new(cl.Timestamp())
	after.Finalizers = append(after.Finalizers, metav1.FinalizerDeleteDependents)
	cl.PutJob(after)
}

// SubjectOfJob returns the name of a Job's stage in the timeline.
func (cl *Cluster) SubjectOfJob(job *batchv1.Job) string {
	j := cl.OwnerOfJob(job)
	return j.Name + "/" + j.StageOf(job).Name
}

// OwnerOfJob returns the submission to which a Job belongs.
func (cl *Cluster) OwnerOfJob(job *batchv1.Job) *UserJob {
	if queuedjob.IsQueued(job) {
		return cl.QueuedJobs[SubmissionOf(job)]
	}
	return cl.UserJobs[SubmissionOf(job)]
}

// AttemptOf returns the attempt of its JobSet to which a Job belongs, counted from 0.
func AttemptOf(job *batchv1.Job) int {
	attempt, _ := strconv.Atoi(job.Labels[constants.RestartsKey])
	return attempt
}

// JobsOf returns the Jobs of a JobSet in the order of their creation.
func (cl *Cluster) JobsOf(jobSet types.UID) []*batchv1.Job {
	var all []*batchv1.Job
	for _, uid := range cl.JobsByJobSet[jobSet] {
		all = append(all, cl.Jobs[uid])
	}
	return all
}
