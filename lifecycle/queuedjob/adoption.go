package queuedjob

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// A Job that names a queue and was there before the admission policies is adopted:
//
//	runs  ->  quota Workload created, gated  ->  admitted to what its pods use  ->  labelled as a queued Job, which runs on
//	is suspended  ->  labelled as a queued Job, which waits for quota
//
// Before the label is written, the other Workloads are deleted that Kueue has for the Job.
//
// Of an elastic Job that runs, Kueue gates the pods for which it has no quota. Those that are not gated are charged. The Job gets their number, and
// its annotations record its size, as if its user had enlarged it: it grows when there is quota.

// IsForeign reports whether a Job names a queue and is not held, so that it can only have been created before the admission policies. The pods of a
// Job whose template names a group wait for quota themselves.
func IsForeign(job *batchv1.Job) bool {
	if job.Labels[apis.QueueLabel] == "" || job.Labels[apis.HoldLabel] != "" || jobsetstate.JobSetOfJob(job) != "" || outcomeOf(job) != nil {
		return false
	}
	template := &job.Spec.Template
	_, ofGroup := podgroup.RefOf(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
	return !ofGroup || template.Labels[apis.QueueLabel] == ""
}

// adopt takes the next step of a Job that was there before the admission policies. Nothing of it is stopped, whatever is wrong.
func (w *Step) adopt(s *Snapshot) {
	workload := s.workload()
	switch {
	case outcomeOf(s.Job) != nil || childjob.IsEnding(s.Job):
	case ptr.Deref(s.Job.Spec.ManualSelector, false):
		w.refuseAdoption("spec.manualSelector is not supported in a queued Job: the Job runs without quota; delete it, and submit it again without the field")
	case s.Refusal != "":
		w.refuseAdoption(s.Refusal)
		if childjob.IsHeld(s.Job) {
			w.dropForeign(s) // they would get quota that no pod uses
		}
	case childjob.IsHeld(s.Job) || w.charge(s, workload):
		w.complete(s, workload)
	}
}

// charge takes the next step to charge a Job that runs, and reports whether it is charged.
func (w *Step) charge(s *Snapshot, workload *kueue.Workload) bool {
	w.readsPods = hasElasticGate(s.Job)
	switch {
	case workload == nil:
		created := adoption.Marked(newWorkload(s))
		created.Spec.PodSets[0].Count = s.runningSize()
		w.Do(quotastep.Create, created)
	case !workload.DeletionTimestamp.IsZero():
		w.Do(quotastep.RemoveFinalizer, workload)
	case quotaworkload.IsTrue(workload, kueue.WorkloadFinished) || s.isOfAnother(workload):
		w.Do(quotastep.Reopen, workload)
	case !adoption.IsMarked(workload) || !quotaworkload.HoldsQuota(workload):
		w.AdmitAsItIs(s.Target, workload)
	default:
		return true
	}
	return false
}

// complete makes a Job a queued Job when Kueue has no other Workload for it: the engine would count that, too.
func (w *Step) complete(s *Snapshot, workload *kueue.Workload) {
	if len(s.Foreign) == 0 {
		w.Job = &JobWrite{Kind: Adopt, Before: s.Job, After: s.adopted(workload)}
		return
	}
	w.dropForeign(s)
}

// dropForeign deletes the other Workloads of Kueue. Those of a Job that was suspended pay for its pods until these have terminated.
func (w *Step) dropForeign(s *Snapshot) {
	if childjob.IsHeld(s.Job) && (childjob.HasPods(s.Job) || len(s.Owned.Pods) > 0) {
		w.RequeueWithin(podsEvery)
		return
	}
	w.Do(quotastep.Delete, s.Foreign...)
	w.RequeueWithin(recheckDeleted)
}

// IsForeignWorkload reports whether Kueue has made a Workload for a Job under another name than that of its quota Workload: a slice of an elastic
// Job, or a Workload that was prebuilt.
func IsForeignWorkload(job *batchv1.Job, workload *kueue.Workload) bool {
	return metav1.IsControlledBy(workload, job) && workload.Labels[apis.JobLabel] == "" && workload.Name != WorkloadName(job)
}

// runningSize returns how many pods at once are charged for a Job that runs: those of an elastic Job that are not gated, and all of other Jobs.
func (s *Snapshot) runningSize() int32 {
	all := childjob.PodsAtOnce(s.Job)
	if !hasElasticGate(s.Job) || !Elastic(s.Job) {
		return all
	}
	ungated := int32(0)
	for _, pod := range s.Owned.Pods {
		if !hasGate(&pod.Spec) {
			ungated++
		}
	}
	return min(max(ungated, 1), all)
}

func (w *Step) refuseAdoption(why string) {
	w.Refusal = why
	w.RequeueWithin(recheckForeign)
}

// isOfAnother reports whether a quota Workload that Kueue has left is for other pods than those of the Job.
func (s *Snapshot) isOfAnother(workload *kueue.Workload) bool {
	wanted := s.podSet()
	wanted.Count = s.runningSize()
	if len(workload.Spec.PodSets) == 1 && hasElasticGate(s.Job) && Elastic(s.Job) {
		// Pods that have terminated since are replaced by gated ones.
		wanted.Count = min(max(wanted.Count, workload.Spec.PodSets[0].Count), childjob.PodsAtOnce(s.Job))
	}
	return len(workload.Spec.PodSets) != 1 || !isSamePodSet(&workload.Spec.PodSets[0], &wanted) || workload.Spec.QueueName != queueOf(s.Job)
}

// adopted returns the Job as a queued Job. What another manager has added to its pods is recorded, so that an eviction removes it. The name of a prebuilt
// Workload is removed: the Job has a quota Workload that the manager has made.
func (s *Snapshot) adopted(workload *kueue.Workload) *batchv1.Job {
	after := childjob.ReplacingLate(s.Job)
	if workload != nil && hasElasticGate(s.Job) && Elastic(s.Job) && childjob.IsRunning(s.Job) {
		after = sized(after, workload.Spec.PodSets[0].Count)
	}
	delete(after.Labels, apis.PrebuiltWorkloadKey)
	delete(after.Annotations, apis.PrebuiltWorkloadKey)
	metav1.SetMetaDataLabel(&after.ObjectMeta, apis.HoldLabel, apis.HoldQueued)
	var original *corev1.PodTemplateSpec
	if workload != nil {
		original = &workload.Spec.PodSets[0].Template
	}
	return childjob.WithForeignAdditions(after, original)
}
