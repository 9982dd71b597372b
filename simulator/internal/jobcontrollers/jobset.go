package jobcontrollers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// A JobSetController plays the JobSet controller, as far as it matters for quota: it creates, suspends and deletes child Jobs, and restarts and
// ends JobSets. The admission policies keep its writes from starting held Jobs, so it never resumes one.
type JobSetController struct{ *cluster.Cluster }

// Reconcile reconciles a JobSet as the JobSet controller does.
func (sc *JobSetController) Reconcile(js *jobsetapi.JobSet) {
	current, previous := sc.ChildJobs(js)
	if js.Status.TerminalState != "" {
		sc.deleteActive(current)
		return
	}
	sc.deleteActive(previous)
	if failed := slices.IndexFunc(current, cluster.IsFailed); failed >= 0 {
		sc.applyFailurePolicy(js, current[failed])
		return
	}
	if sc.isComplete(js, current) {
		sc.end(js, jobset.JobSetCompleted, "AllJobsCompleted", "jobset completed successfully")
		return
	}
	sc.createJobs(js, current)
	for _, job := range current {
		sc.resizeJob(js, job)
		if ptr.Deref(js.Spec.Suspend, false) && !ptr.Deref(job.Spec.Suspend, false) && !childjob.IsFinished(job, batchv1.JobComplete) {
			after := job.DeepCopy()
			after.Spec.Suspend = new(true)
			sc.PutJob(after)
		}
	}
}

// createJobs creates the Jobs that are missing, and that the start conditions of JobSet and ReplicatedJobs allow to be created.
func (sc *JobSetController) createJobs(js *jobsetapi.JobSet, current []*batchv1.Job) {
	suspended := ptr.Deref(js.Spec.Suspend, false)
	inOrder := js.Spec.StartupPolicy != nil && js.Spec.StartupPolicy.StartupPolicyOrder == jobset.InOrder
	for i := range js.Spec.ReplicatedJobs {
		r := &js.Spec.ReplicatedJobs[i]
		if slices.ContainsFunc(r.DependsOn, func(d jobset.DependsOn) bool {
			return !HasReached(current, d.Name, d.Status == jobset.DependencyComplete)
		}) {
			continue
		}
		if !suspended && inOrder && HasReached(current, r.Name, false) {
			continue
		}
		for index := range r.Replicas {
			if job := newJob(js, r, index); sc.JobNamed(cluster.NameOfJob(job)) == nil {
				sc.PutJob(job)
			}
		}
		if !suspended && inOrder {
			return
		}
	}
}

// HasReached reports whether all Jobs of a ReplicatedJob are ready, or have succeeded.
func HasReached(jobs []*batchv1.Job, replicatedJob string, succeeded bool) bool { //nolint:revive // the status of a start condition
	replicas, reached := 1, 0
	for _, job := range jobs {
		if job.Labels[jobset.ReplicatedJobNameKey] != replicatedJob {
			continue
		}
		if number, err := strconv.Atoi(job.Labels[jobset.ReplicatedJobReplicas]); err == nil {
			replicas = number
		}
		if childjob.IsFinished(job, batchv1.JobComplete) || !succeeded && childjob.IsReady(job) {
			reached++
		}
	}
	return reached >= replicas
}

// newJob returns a Job of a ReplicatedJob, held, with the labels that identify it.
func newJob(js *jobsetapi.JobSet, r *jobsetapi.ReplicatedJob, index int32) *batchv1.Job {
	labels := map[string]string{}
	maps.Copy(labels, r.Template.Labels)
	maps.Copy(labels, map[string]string{
		jobset.JobSetNameKey: js.Name, jobset.JobSetUIDKey: string(js.UID), jobset.ReplicatedJobNameKey: r.Name,
		jobset.ReplicatedJobReplicas: strconv.Itoa(int(r.Replicas)), jobset.JobIndexKey: strconv.Itoa(int(index)),
		constants.RestartsKey: strconv.Itoa(int(js.Status.Restarts)),
	})
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: js.Namespace, Name: fmt.Sprintf("%s-%s-%d", js.Name, r.Name, index), Labels: labels, Annotations: maps.Clone(r.Template.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobset.GroupVersion.WithKind("JobSet"))},
		},
		Spec: *r.Template.Spec.DeepCopy(),
	}
	job.Spec.Suspend = new(true)
	return job
}

// resizeJob gives a Job the number of pods that the JobSet asks for. An admission policy turns the write into a no-op for a running Job that
// would get more pods.
func (sc *JobSetController) resizeJob(js *jobsetapi.JobSet, job *batchv1.Job) {
	i := slices.IndexFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return r.Name == job.Labels[jobset.ReplicatedJobNameKey] })
	if i < 0 || !childjob.IsHeld(job) && !childjob.IsRunning(job) {
		return
	}
	spec := &js.Spec.ReplicatedJobs[i].Template.Spec
	if spec.Parallelism == nil || !ptr.Equal(spec.Parallelism, spec.Completions) {
		return
	}
	want := *spec.Parallelism
	if now := childjob.PodsAtOnce(job); want == now || want > now && childjob.IsRunning(job) {
		return
	}
	if childjob.IsRunning(job) {
		sc.Log("resize %s/%s pods=%d", js.Name, job.Labels[jobset.ReplicatedJobNameKey], want)
	}
	sc.PutJob(childjob.Resized(job, want))
}

// isComplete reports whether the success policy of a JobSet is satisfied.
func (sc *JobSetController) isComplete(js *jobsetapi.JobSet, current []*batchv1.Job) bool {
	policy := jobset.SuccessPolicy{Operator: jobset.OperatorAll}
	if js.Spec.SuccessPolicy != nil {
		policy = *js.Spec.SuccessPolicy
	}
	counts := func(replicatedJob string) bool {
		return len(policy.TargetReplicatedJobs) == 0 || slices.Contains(policy.TargetReplicatedJobs, replicatedJob)
	}
	expected, succeeded := int32(0), int32(0)
	for i := range js.Spec.ReplicatedJobs {
		if r := &js.Spec.ReplicatedJobs[i]; counts(r.Name) {
			expected += r.Replicas
		}
	}
	for _, job := range current {
		if counts(job.Labels[jobset.ReplicatedJobNameKey]) && childjob.IsFinished(job, batchv1.JobComplete) {
			succeeded++
		}
	}
	return succeeded > 0 && (policy.Operator == jobset.OperatorAny || succeeded == expected)
}

// applyFailurePolicy restarts a JobSet of which a Job has failed, or ends it.
func (sc *JobSetController) applyFailurePolicy(js *jobsetapi.JobSet, failed *batchv1.Job) {
	if js.Spec.FailurePolicy == nil || js.Status.Restarts >= js.Spec.FailurePolicy.MaxRestarts {
		sc.Log("fail %s", sc.SubjectOfJob(failed))
		sc.end(js, jobset.JobSetFailed, "FailedJobs", fmt.Sprintf("jobset failed due to one or more job failures (first failed job: %s)", failed.Name))
		return
	}
	sc.Log("restart %s", js.Name)
	after := js.DeepCopy()
	after.Status.Restarts++
	sc.PutJobSet(after)
	for _, job := range sc.JobsOf(js.UID) {
		sc.DeleteJob(job)
	}
}

// end records that a JobSet has succeeded or failed, and ends the Jobs that still run.
func (sc *JobSetController) end(js *jobsetapi.JobSet, condition jobset.JobSetConditionType, reason, message string) {
	if condition == jobset.JobSetCompleted && js.Spec.SuccessPolicy != nil {
		sc.Log("complete %s", js.Name)
	}
	after := js.DeepCopy()
	after.Status.TerminalState = string(condition)
	apimeta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{
		Type: string(condition), Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: sc.Timestamp(),
	})
	sc.PutJobSet(after)
	sc.deleteActive(sc.JobsOf(js.UID))
}

// deleteActive deletes the Jobs that have not finished, as foreground deletion does: each disappears when its pods have terminated.
func (sc *JobSetController) deleteActive(jobs []*batchv1.Job) {
	for _, job := range jobs {
		if !childjob.IsFinished(job, batchv1.JobComplete) && !cluster.IsFailed(job) {
			sc.DeleteJob(job)
		}
	}
}
