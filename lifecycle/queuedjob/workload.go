package queuedjob

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadname"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// WorkloadName returns the name of the quota Workload of a Job.
func WorkloadName(job *batchv1.Job) string {
	return workloadname.Of(workloadname.Owner{Kind: "Job", Group: batchv1.GroupName, Name: job.Name, UID: job.UID}, "")
}

// growthName returns the name of a growth of a Job.
func growthName(job *batchv1.Job, number int) string {
	return workloadname.Of(workloadname.Owner{Kind: "Job", Group: batchv1.GroupName, Name: job.Name, UID: job.UID}, "growth-"+strconv.Itoa(number))
}

// newWorkload makes the quota Workload of the Job.
func newWorkload(s *Snapshot) *kueue.Workload {
	job := s.Job
	workload := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: WorkloadName(job),
			Labels:          map[string]string{apis.JobUIDLabel: string(job.UID), apis.JobLabel: job.Name},
			Finalizers:      []string{kueue.ResourceInUseFinalizerName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: kueue.WorkloadSpec{Priority: &s.Priority.Value, PriorityClassRef: s.Priority.Class, Active: new(true)},
	}
	s.follow(workload)
	s.gate(workload)
	return workload
}

// follow writes into a quota Workload without quota what the Job asks for.
func (s *Snapshot) follow(workload *kueue.Workload) {
	workload.Spec.QueueName = queueOf(s.Job)
	workload.Spec.MaximumExecutionTimeSeconds = executionTimeOf(s.Job)
	wanted := s.podSet()
	if len(workload.Spec.PodSets) != 1 || !isSamePodSet(&workload.Spec.PodSets[0], &wanted) {
		workload.Spec.PodSets = []kueue.PodSet{wanted}
	}
}

func queueOf(job *batchv1.Job) kueue.LocalQueueName {
	return kueue.LocalQueueName(job.Labels[apis.QueueLabel])
}

// podSet returns the pod set of the Job.
func (s *Snapshot) podSet() kueue.PodSet {
	template := s.Template.DeepCopy()
	// The Job controller has added these labels.
	for _, key := range []string{"controller-uid", "job-name", batchv1.ControllerUidLabel} {
		delete(template.Labels, key)
	}
	own := Restored(s.Job)
	return kueue.PodSet{
		Name: kueue.DefaultPodSetName, Count: childjob.PodsAtOnce(own), MinCount: minPods(own), Template: *template,
		TopologyRequest: workloadstatus.TopologyRequest(template),
	}
}

// isSamePodSet compares the demand of two pod sets. It ignores defaults that the API server has added.
func isSamePodSet(a, b *kueue.PodSet) bool {
	return a.Name == b.Name && a.Count == b.Count && ptr.Equal(a.MinCount, b.MinCount) && device.IsSame(&a.Template, &b.Template) &&
		equality.Semantic.DeepEqual(stageplan.PodRequests(&a.Template.Spec), stageplan.PodRequests(&b.Template.Spec))
}

// executionTimeOf returns the maximum execution time of a Job in seconds, or nil.
func executionTimeOf(job *batchv1.Job) *int32 {
	seconds, err := strconv.ParseInt(job.Labels[apis.MaxExecTimeLabel], 10, 32)
	if err != nil || seconds <= 0 {
		return nil
	}
	return new(int32(seconds))
}

// gate writes the gates that the quota Workload should have: those of other controllers on the Job, and that of a suspension by the user.
func (s *Snapshot) gate(workload *kueue.Workload) {
	gates := quotaworkload.GatesOfOthers(s.Job)
	if IsSuspendedByUser(s.Job) {
		gates = append(gates, apis.SuspendedGate)
	}
	quotaworkload.SetGates(workload, gates)
}

// adjust changes the quota Workload if it differs from what the Job asks for.
func (w *Step) adjust(s *Snapshot, workload *kueue.Workload) {
	after := workload.DeepCopy()
	s.gate(after)
	s.prioritize(after)
	if !quotaworkload.HoldsQuota(workload) {
		s.follow(after)
	}
	// The exemption ends before the quota is released: otherwise the engine could admit the Job again with it.
	if !quotaworkload.HoldsQuota(workload) || quotaworkload.IsTrue(workload, kueue.WorkloadEvicted) || IsSuspendedByUser(s.Job) {
		delete(after.Annotations, apis.AdoptedAnnotation)
	}
	w.changeTo(workload, after)
}

// prioritize writes the priority of the Job into a quota Workload that may change it.
func (s *Snapshot) prioritize(workload *kueue.Workload) {
	if !quotaworkload.IsTrue(workload, kueue.WorkloadQuotaReserved) || workloadstatus.MayReplaceClass(workload.Spec.PriorityClassRef, s.Priority.Class) {
		workload.Spec.Priority, workload.Spec.PriorityClassRef = &s.Priority.Value, s.Priority.Class
	}
}

// changeTo changes a quota Workload if it differs, unless another one is changed in this Step.
func (w *Step) changeTo(before, after *kueue.Workload) {
	if !w.Has(quotastep.Change) && (!equality.Semantic.DeepEqual(after.Annotations, before.Annotations) || !equality.Semantic.DeepEqual(after.Spec, before.Spec)) {
		w.Change(before, after)
	}
}

// needed returns how many pods of the Job can still run at once. The indexes of an Indexed Job that have failed do not run again.
func needed(job *batchv1.Job) int32 {
	parallelism := ptr.Deref(job.Spec.Parallelism, 1)
	completions := ptr.Deref(job.Spec.Completions, parallelism)
	ended := job.Status.Succeeded
	if childjob.IsIndexed(&job.Spec) {
		ended = countIndexes(completions, job.Status.CompletedIndexes, ptr.Deref(job.Status.FailedIndexes, ""))
	}
	return min(parallelism, max(completions-ended, 0))
}

// countIndexes returns how many indexes below a limit are in lists such as "0-3,5". It ignores what is no range.
func countIndexes(limit int32, lists ...string) int32 {
	var ranges [][2]int32
	for _, list := range lists {
		for text := range strings.SplitSeq(list, ",") {
			first, last, isRange := strings.Cut(text, "-")
			if !isRange {
				last = first
			}
			from, err1 := strconv.ParseInt(first, 10, 32)
			to, err2 := strconv.ParseInt(last, 10, 32)
			if err1 == nil && err2 == nil && from >= 0 {
				ranges = append(ranges, [2]int32{int32(from), min(int32(to), limit-1)})
			}
		}
	}
	slices.SortFunc(ranges, func(a, b [2]int32) int { return cmp.Compare(a[0], b[0]) })
	count, next := int32(0), int32(0)
	for _, r := range ranges {
		if first := max(r[0], next); first <= r[1] {
			count, next = count+r[1]-first+1, r[1]+1
		}
	}
	return count
}

// reclaimable returns the pods of a quota Workload that the Job no longer needs. A Job that needs none is about to finish.
func (s *Snapshot) reclaimable(workload *kueue.Workload) []kueue.ReclaimablePod {
	name, left := kueue.DefaultPodSetName, needed(admitted(s.Job, workload))
	if !quotaworkload.HoldsQuota(workload) {
		left = needed(Restored(s.Job))
	}
	// A quota Workload that was admitted with fewer pods than it asks for holds no quota for the others. Pods that terminate still use theirs.
	held, terminates := elastic.Held(workload, string(name)), ptr.Deref(s.Job.Status.Terminating, 0) > 0
	if left == 0 || quotaworkload.HoldsQuota(workload) && (left >= held || terminates) {
		return workload.Status.ReclaimablePods
	}
	if pods := workload.Spec.PodSets[0].Count - left; pods > 0 {
		return []kueue.ReclaimablePod{{Name: name, Count: pods}}
	}
	return nil
}

// hasOtherClaims reports whether a quota Workload that holds quota was charged for devices of other ResourceClaimTemplates than those that pods of the
// Job would claim now. Existing pods may use either.
func (s *Snapshot) hasOtherClaims(workload *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(workload) && !device.IsSame(&workload.Spec.PodSets[0].Template, s.Template)
}

// lacksQuota reports whether a quota Workload that holds quota may be charged for less than the Job needs: the Job was enlarged while it waited for
// its AdmissionChecks or its release, its ResourceClaimTemplates were replaced, or pods that were reported as reclaimable have to run again. An elastic
// Job that runs is resized instead if its size differs.
func (s *Snapshot) lacksQuota(workload *kueue.Workload) bool {
	if s.hasOtherClaims(workload) {
		return true
	}
	if s.isResizable() || !quotaworkload.HoldsQuota(workload) {
		return false
	}
	job := admitted(s.Job, workload)
	return needed(job) > elastic.Held(workload, string(kueue.DefaultPodSetName)) ||
		childjob.IsHeld(job) && childjob.PodsAtOnce(job) > chargedTemplate(workload).Pods
}

// isResizable reports whether the size of the Job can change now.
func (s *Snapshot) isResizable() bool { return Elastic(s.Job) && childjob.IsRunning(s.Job) }

// hasMoved reports whether a quota Workload that holds quota is not for the queue or the maximum execution time of a held Job: its user has
// changed them since the reservation, and neither can change in a quota Workload that holds quota.
func (s *Snapshot) hasMoved(workload *kueue.Workload) bool {
	return childjob.IsHeld(s.Job) && quotaworkload.HoldsQuota(workload) &&
		(workload.Spec.QueueName != queueOf(s.Job) || !ptr.Equal(workload.Spec.MaximumExecutionTimeSeconds, executionTimeOf(s.Job)))
}

// reclaim reports the reclaimable pods if they have changed.
func (w *Step) reclaim(s *Snapshot, workload *kueue.Workload) {
	if Elastic(s.Job) && quotaworkload.HoldsQuota(workload) {
		return // see resize: the pods of a Job that was made smaller can still run
	}
	pods := s.reclaimable(workload)
	if !equality.Semantic.DeepEqual(pods, workload.Status.ReclaimablePods) && len(pods)+len(workload.Status.ReclaimablePods) > 0 {
		w.Reclaim(workload, pods)
	}
}
