package cluster

import (
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// A UserJob is a job that a user has submitted. The state of a JobSet is in the objects.
type UserJob struct {
	*scenario.Submission
	Created time.Time
	// Settings are the changes of set lines, which also apply to quota Workloads that are recreated.
	Settings  []scenario.Set
	IsDeleted bool
	// PriorityClass is that of its quota Workloads. If it is nil, that which the submission names counts.
	PriorityClass *kueue.PriorityClassRef
	// Plain is the state of a job that is no JobSet, or nil.
	Plain *PlainJob
}

// Key returns the namespace and name.
func (j *UserJob) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: j.Namespace, Name: j.Name}
}

// ClassRef returns the reference to the priority class, or nil.
func (j *UserJob) ClassRef() *kueue.PriorityClassRef {
	if j.PriorityClass != nil || j.Class == "" {
		return j.PriorityClass
	}
	return kueue.NewWorkloadPriorityClassRef(j.Class)
}

// NewJobSet returns the JobSet of a submission as the admission policies change it: suspended, and with held Jobs.
func (j *UserJob) NewJobSet() *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: j.Name, Labels: map[string]string{apis.QueueLabel: j.Queue}, Annotations: map[string]string{},
		},
		Spec: *j.Spec.DeepCopy(),
	}
	if j.Class != "" {
		js.Labels[apis.PriorityClassLabel] = j.Class
	}
	if j.MaxSeconds != nil {
		js.Labels[apis.MaxExecTimeLabel] = strconv.Itoa(int(*j.MaxSeconds))
	}
	if j.StageAdmission != "" {
		js.Annotations[apis.StageAdmissionAnnotation] = j.StageAdmission
	}
	quotaworkload.SetGates(js, j.Gates)
	js.Spec.Suspend = new(true)
	for i := range js.Spec.ReplicatedJobs {
		js.Spec.ReplicatedJobs[i].Template.Labels = map[string]string{apis.HoldLabel: apis.HoldValue}
	}
	return js
}

// Named returns the job that a target names, or nil if it is not submitted yet.
func (cl *Cluster) Named(t scenario.Target) *UserJob {
	for _, jobs := range []map[types.NamespacedName]*UserJob{cl.UserJobs, cl.QueuedJobs} {
		if j := jobs[t.Key()]; j != nil {
			return j
		}
	}
	return cl.PlainJobs[t.Key()]
}

// NewJob returns the queued Job of a submission as the admission policies change it: held, with the label of queued Jobs.
func (j *UserJob) NewJob() *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: j.Name, Annotations: map[string]string{},
			Labels: map[string]string{apis.QueueLabel: j.Queue, apis.HoldLabel: apis.HoldQueued},
		},
		Spec: *j.Job.DeepCopy(),
	}
	if j.Class != "" {
		job.Labels[apis.PriorityClassLabel] = j.Class
	}
	if j.MaxSeconds != nil {
		job.Labels[apis.MaxExecTimeLabel] = strconv.Itoa(int(*j.MaxSeconds))
	}
	if j.MinCount != nil {
		job.Annotations[apis.MinParallelismAnnotation] = strconv.Itoa(int(*j.MinCount))
	}
	if j.IsElastic {
		job.Annotations[apis.ElasticJobAnnotation] = "true"
	}
	quotaworkload.SetGates(job, j.Gates)
	job.Spec.Suspend = new(true)
	return job
}

// StageOf returns the stage to which a Job belongs.
func (j *UserJob) StageOf(job *batchv1.Job) *stageplan.Stage {
	i := slices.IndexFunc(j.Plan.Stages, func(st stageplan.Stage) bool {
		return slices.Contains(st.ReplicatedJobs, job.Labels[jobset.ReplicatedJobNameKey])
	})
	return &j.Plan.Stages[i]
}

// A PlainJob is the state of a job that is no JobSet: it has one quota Workload, starts its pods when
// the Workload is admitted, and stops them when it is evicted.
type PlainJob struct {
	Gates []string
	// IsSuspended is true if the user has suspended the job, IsStopping lasts until stopped pods have terminated, and IsReleased is true
	// while its pods run.
	IsSuspended, IsStopping, IsReleased, HasEnded bool
	// StopsAt is when stopped pods have terminated.
	StopsAt time.Duration
	// Pods by pod set. There are none before the job is released.
	Pods map[string]*PodSet
}

// AllGates returns the gates that the quota Workload of a job has to have.
func (p *PlainJob) AllGates() []string {
	if p.IsSuspended {
		return append(slices.Clone(p.Gates), apis.SuspendedGate)
	}
	return p.Gates
}

// Gate writes the gates of a job into its quota Workload.
func (p *PlainJob) Gate(w *kueue.Workload) { quotaworkload.SetGates(w, p.AllGates()) }

// MayRun reports whether the job is to start its pods.
func (p *PlainJob) MayRun(w *kueue.Workload) bool {
	return !p.IsReleased && !p.IsStopping && len(quotaworkload.Gates(w)) == 0 && quotaworkload.HoldsQuota(w) &&
		quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
}

// All reports whether there are pods, and a predicate is true for each pod set.
func (p *PlainJob) All(is func(*PodSet) bool) bool {
	for _, pods := range p.Pods {
		if !is(pods) {
			return false
		}
	}
	return len(p.Pods) > 0
}
