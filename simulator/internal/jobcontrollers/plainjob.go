package jobcontrollers

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// A PlainJobController plays the controller of jobs that are no JobSets, which is not part of Tranche: it starts the pods of a job when its quota
// Workload is admitted, and stops them when it is evicted.
type PlainJobController struct{ *cluster.Cluster }

// Submit creates the quota Workload of a job that is no JobSet. The Workload has no owner.
func (pc *PlainJobController) Submit(j *cluster.UserJob) {
	j.Plain = &cluster.PlainJob{Gates: j.Gates, Pods: map[string]*cluster.PodSet{}}
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: j.Name, Annotations: map[string]string{}, Finalizers: []string{kueue.ResourceInUseFinalizerName},
		},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(j.Queue), Priority: new(j.Priority), PriorityClassRef: j.ClassRef(), Active: new(true),
			MaximumExecutionTimeSeconds: j.MaxSeconds,
		},
	}
	for i := range j.Plan.Stages[0].PodSets {
		p := &j.Plan.Stages[0].PodSets[i]
		w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{Name: kueue.NewPodSetReference(p.Name), Count: p.Count, Template: *p.Template.DeepCopy()})
	}
	w.Spec.PodSets[0].MinCount = j.MinCount
	j.Plain.Gate(w)
	pc.PutWorkload(w)
}

// Reconcile does what the controller of the job does.
func (pc *PlainJobController) Reconcile(j *cluster.UserJob) {
	p, w := j.Plain, pc.Workloads[j.Key()]
	if w == nil || j.IsDeleted || p.HasEnded {
		return
	}
	if !slices.Equal(quotaworkload.Gates(w), p.AllGates()) {
		after := w.DeepCopy()
		p.Gate(after)
		pc.PutWorkload(after)
		w = after
	}
	switch {
	case quotaworkload.IsTrue(w, kueue.WorkloadEvicted) && quotaworkload.HoldsQuota(w) && !p.IsStopping:
		pc.Stop(j)
		return
	case p.MayRun(w):
		pc.release(j)
	case p.IsReleased && p.All((*cluster.PodSet).HaveSucceeded):
		pc.end(j, kueue.WorkloadFinishedReasonSucceeded)
		return
	}
	pc.reportReadiness(w, p)
}

// release starts the pods of a job.
func (pc *PlainJobController) release(j *cluster.UserJob) {
	j.Plain.IsReleased = true
	for _, name := range j.Plan.Stages[0].ReplicatedJobs {
		j.Plain.Pods[name] = &cluster.PodSet{}
	}
	for i, name := range j.Plan.Stages[0].ReplicatedJobs {
		pc.StartPods(j.Plain.Pods[name], j.Plan.Stages[0].PodSets[i].Count, pc.behaviorOf(j, name, pc.Now))
	}
}

// behaviorOf returns what the pods of a pod set do that were started at this time.
func (pc *PlainJobController) behaviorOf(j *cluster.UserJob, podSet string, started time.Duration) cluster.Behavior {
	c := pc.Course.OfPodSet(j, podSet, started)
	c.Changed, c.HasFailed = func() { pc.Reconcile(j) }, func() { pc.Fail(j) }
	return c
}

// Continue plans what the pods of a job do that exist when the run begins.
func (pc *PlainJobController) Continue(j *cluster.UserJob) {
	for _, name := range j.Plan.Stages[0].ReplicatedJobs {
		if pods := j.Plain.Pods[name]; pods != nil {
			for _, b := range pods.Batches {
				pc.PlanPods(pods, b, pc.behaviorOf(j, name, b.Started))
			}
		}
	}
	w := pc.Workloads[j.Key()]
	switch {
	case j.Plain.IsStopping:
		pc.planStop(j)
	case j.Plain.HasEnded && w != nil && !cluster.IsFinished(w):
		pc.planFailure(j)
	}
}

// planStop plans the end of the pods of a job that has been told to stop.
func (pc *PlainJobController) planStop(j *cluster.UserJob) {
	pc.Events.Add(j.Plain.StopsAt, func() { pc.hasStopped(j) })
}

// Fail lets a job fail.
func (pc *PlainJobController) Fail(j *cluster.UserJob) {
	pc.Log("fail %s", j.Name)
	pc.end(j, kueue.WorkloadFinishedReasonFailed)
}

// end finishes a job. A job that fails stops its other pods first.
func (pc *PlainJobController) end(j *cluster.UserJob, reason string) {
	p := j.Plain
	p.HasEnded = true
	isReleased := p.IsReleased
	p.IsReleased = false
	if reason == kueue.WorkloadFinishedReasonSucceeded || !isReleased {
		pc.finish(j, reason)
		return
	}
	clear(p.Pods)
	p.StopsAt = pc.Now + j.StopAfter
	pc.planFailure(j)
}

// planFailure plans the end of the pods of a job that has failed.
func (pc *PlainJobController) planFailure(j *cluster.UserJob) {
	pc.Events.Add(j.Plain.StopsAt, func() { pc.finish(j, kueue.WorkloadFinishedReasonFailed) })
}

// finish records that a job has finished.
func (pc *PlainJobController) finish(j *cluster.UserJob, reason string) {
	w := pc.Workloads[j.Key()]
	if w == nil || cluster.IsFinished(w) {
		return
	}
	switch {
	case reason == kueue.WorkloadFinishedReasonSucceeded:
		pc.Log("finish %s", j.Name)
	case quotaworkload.HoldsQuota(w):
		pc.Log("stop %s", j.Name)
	}
	after := cluster.WithOwnStatus(w)
	pc.SetFinished(after, reason)
	pc.PutWorkload(after)
}

// Stop stops the pods of a job, and releases its quota when they have terminated.
func (pc *PlainJobController) Stop(j *cluster.UserJob) {
	p := j.Plain
	for _, pods := range p.Pods {
		pods.Batches = nil
	}
	clear(p.Pods)
	p.IsReleased = false
	if p.IsStopping {
		return
	}
	p.IsStopping = true
	p.StopsAt = pc.Now + j.StopAfter
	pc.Reconcile(j)
	pc.planStop(j)
}

// hasStopped releases the quota of a job whose pods have terminated.
func (pc *PlainJobController) hasStopped(j *cluster.UserJob) {
	j.Plain.IsStopping = false
	w := pc.Workloads[j.Key()]
	switch {
	case w == nil:
	case j.IsDeleted:
		pc.DropWorkload(w)
	case quotaworkload.HoldsQuota(w) && !cluster.IsFinished(w):
		pc.Log("stop %s", j.Name)
		pc.PutWorkload(pc.WithoutQuota(w))
	}
	pc.Reconcile(j)
}

// Delete deletes a job. Its quota Workload stays until its pods have terminated.
func (pc *PlainJobController) Delete(j *cluster.UserJob) {
	w := pc.Workloads[j.Key()]
	switch {
	case w == nil:
	case !quotaworkload.HoldsQuota(w) || !j.Plain.IsReleased && !j.Plain.IsStopping:
		pc.DropWorkload(w)
	default:
		pc.DeleteWorkload(w)
		pc.Stop(j)
	}
}

// reportReadiness writes the condition PodsReady of an admitted quota Workload. A Workload that has never been ready need not have it.
func (pc *PlainJobController) reportReadiness(w *kueue.Workload, p *cluster.PlainJob) {
	ready := p.IsReleased && p.All((*cluster.PodSet).AreReady)
	if c, differs := cluster.Readiness(w, ready); differs && !p.IsStopping && quotaworkload.HoldsQuota(w) {
		after := cluster.WithOwnStatus(w)
		pc.SetPodsReady(after, c)
		pc.PutWorkload(after)
	}
}
