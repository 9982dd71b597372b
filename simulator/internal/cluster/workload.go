package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// IsEvictable reports whether a quota Workload holds quota and is not being evicted.
func IsEvictable(w *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(w) && !IsFinished(w) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
}

// OwnerOf returns the job that a quota Workload belongs to.
func (cl *Cluster) OwnerOf(w *kueue.Workload) *UserJob {
	if name := w.Labels[apis.JobSetLabel]; name != "" {
		return cl.UserJobs[types.NamespacedName{Namespace: w.Namespace, Name: name}]
	}
	if j := cl.QueuedJobs[jobOf(w)]; j != nil {
		return j
	}
	return cl.PlainJobs[KeyOf(w)]
}

// jobOf returns the name of the Job that a quota Workload names, or no name.
func jobOf(w *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Labels[apis.JobLabel]}
}

// WorkloadsOf returns the quota Workloads of a job, those of a stage before those of its growths.
func (cl *Cluster) WorkloadsOf(j *UserJob) []*kueue.Workload {
	if j.IsJobSet {
		return cl.WorkloadsOfJobSet(j.Key())
	}
	if j.IsQueued {
		return cl.WorkloadsOfJob(j.Key())
	}
	if w := cl.Workloads[j.Key()]; w != nil {
		return []*kueue.Workload{w}
	}
	return nil
}

func compareWorkloads(a, b *kueue.Workload) int {
	return cmp.Or(cmp.Compare(StageIndex(a), StageIndex(b)), cmp.Compare(jobsetstate.GrowthNumber(a), jobsetstate.GrowthNumber(b)), cmp.Compare(a.Name, b.Name))
}

// StageIndex returns the index of its stage in the plan.
func StageIndex(w *kueue.Workload) int {
	index, _ := strconv.Atoi(w.Labels[apis.StageIndexLabel])
	return index
}

// SubjectOf returns the name of a quota Workload in the timeline: after its stage.
func SubjectOf(w *kueue.Workload) string {
	stage, growth, job := w.Labels[apis.StageLabel], jobsetstate.GrowthNumber(w), w.Labels[apis.JobLabel]
	switch {
	case job != "" && growth > 0:
		return fmt.Sprintf("%s+%d", job, growth)
	case job != "":
		return job
	case stage == "":
		return w.Name
	case growth > 0:
		return fmt.Sprintf("%s/%s+%d", w.Labels[apis.JobSetLabel], stage, growth)
	}
	return w.Labels[apis.JobSetLabel] + "/" + stage
}

// Subject returns the name of a quota Workload in the timeline, by its key.
func (cl *Cluster) Subject(key admission.StageKey) string {
	if w := cl.Workloads[key]; w != nil {
		return SubjectOf(w)
	}
	return key.String()
}

// Concerns reports whether a target names a quota Workload: the job names all, and a stage or a ReplicatedJob of it that of the stage.
func (cl *Cluster) Concerns(t scenario.Target, w *kueue.Workload) bool {
	j := cl.OwnerOf(w)
	switch {
	case j == nil || t.Key() != j.Key():
		return false
	case t.Part == "":
		return true
	}
	stage := &j.Plan.Stages[StageIndex(w)]
	return t.Growth == jobsetstate.GrowthNumber(w) && (t.Part == stage.Name || slices.Contains(stage.ReplicatedJobs, t.Part))
}

// PutWorkload writes a quota Workload, which must not be changed from then on: the engine refers to its pod sets.
func (cl *Cluster) PutWorkload(w *kueue.Workload) {
	cl.Stamp(w)
	key := KeyOf(w)
	before := cl.Workloads[key]
	cl.Workloads[key] = w
	cl.WorkloadQueue.Add(key)
	owner := w.Name
	if name := w.Labels[apis.JobSetLabel]; name != "" {
		owner = name
		js := types.NamespacedName{Namespace: w.Namespace, Name: name}
		cl.remember(js, ObjectName{workloadKind, w.Name}, Version{Workload: before})
		index(cl.WorkloadsByJobSet, js, key)
	} else if job := jobOf(w); cl.QueuedJobs[job] != nil {
		owner = job.Name
		index(cl.WorkloadsByJob, job, key)
	}
	cl.Touch(w.Namespace, owner)
	cl.Observe(admission.WorkloadObserved{Workload: w})
}

// index adds a quota Workload to those of an owner.
func index(all map[types.NamespacedName][]admission.StageKey, owner types.NamespacedName, key admission.StageKey) {
	if !slices.Contains(all[owner], key) {
		all[owner] = append(all[owner], key)
	}
}

// unindex removes a quota Workload from those of an owner.
func unindex(all map[types.NamespacedName][]admission.StageKey, owner types.NamespacedName, key admission.StageKey) {
	all[owner] = slices.DeleteFunc(all[owner], func(k admission.StageKey) bool { return k == key })
}

// KeyOf returns the namespace and name of a quota Workload.
func KeyOf(w *kueue.Workload) admission.StageKey {
	return admission.StageKey{Namespace: w.Namespace, Name: w.Name}
}

// DeleteWorkload deletes a quota Workload, which stays as long as it has a finalizer.
func (cl *Cluster) DeleteWorkload(w *kueue.Workload) {
	if len(w.Finalizers) == 0 {
		cl.DropWorkload(w)
		return
	}
	after := w.DeepCopy()
	after.DeletionTimestamp = new(cl.Timestamp())
	cl.PutWorkload(after)
}

// RemoveFinalizer removes the finalizer of a quota Workload, which disappears if it is deleted.
func (cl *Cluster) RemoveFinalizer(w *kueue.Workload) {
	now := cl.Workloads[KeyOf(w)]
	if now == nil {
		return
	}
	after := now.DeepCopy()
	after.Finalizers = nil
	if after.DeletionTimestamp.IsZero() {
		cl.PutWorkload(after)
		return
	}
	cl.DropWorkload(after)
}

// DropWorkload removes a quota Workload permanently.
func (cl *Cluster) DropWorkload(w *kueue.Workload) {
	owner := cl.OwnerOf(w)
	isDeleted := owner == nil || owner.IsDeleted
	switch {
	case jobsetstate.GrowthNumber(w) > 0 && !isDeleted:
		cl.Log("drop %s", SubjectOf(w))
	case quotaworkload.HoldsQuota(w) && !IsFinished(w):
		cl.Log("stop %s", SubjectOf(w))
	}
	key := KeyOf(w)
	before := cl.Workloads[key]
	delete(cl.Workloads, key)
	if name := w.Labels[apis.JobSetLabel]; name != "" {
		js := types.NamespacedName{Namespace: w.Namespace, Name: name}
		cl.remember(js, ObjectName{workloadKind, w.Name}, Version{Workload: before})
		unindex(cl.WorkloadsByJobSet, js, key)
		cl.Touch(w.Namespace, name)
	} else if job := jobOf(w); cl.QueuedJobs[job] != nil {
		unindex(cl.WorkloadsByJob, job, key)
		cl.Touch(job.Namespace, job.Name)
	}
	cl.Observe(admission.WorkloadGone{Key: key})
}

// Counts formats numbers of pods as a scenario does: 2, or ps:1,train:2.
func Counts(podSets []kueue.PodSet) string {
	if len(podSets) == 1 {
		return strconv.Itoa(int(podSets[0].Count))
	}
	words := make([]string, len(podSets))
	for i := range podSets {
		words[i] = fmt.Sprintf("%s:%d", podSets[i].Name, podSets[i].Count)
	}
	return strings.Join(words, ",")
}

// WorkloadsOfJobSet returns the quota Workloads of the JobSets of a name, ordered by stage and growth.
func (cl *Cluster) WorkloadsOfJobSet(key types.NamespacedName) []*kueue.Workload {
	return cl.sorted(cl.WorkloadsByJobSet[key])
}

// WorkloadsOfJob returns the quota Workloads of the queued Jobs of a name, the growths in the order of their numbers.
func (cl *Cluster) WorkloadsOfJob(key types.NamespacedName) []*kueue.Workload {
	return cl.sorted(cl.WorkloadsByJob[key])
}

func (cl *Cluster) sorted(keys []admission.StageKey) []*kueue.Workload {
	var all []*kueue.Workload
	for _, k := range keys {
		all = append(all, cl.Workloads[k])
	}
	slices.SortFunc(all, compareWorkloads)
	return all
}

// IndexWorkload adds a quota Workload to those of its JobSet or queued Job.
func (cl *Cluster) IndexWorkload(w *kueue.Workload) {
	if name := w.Labels[apis.JobSetLabel]; name != "" {
		index(cl.WorkloadsByJobSet, types.NamespacedName{Namespace: w.Namespace, Name: name}, KeyOf(w))
	} else if job := jobOf(w); cl.QueuedJobs[job] != nil {
		index(cl.WorkloadsByJob, job, KeyOf(w))
	}
}

// WorkloadKeys returns the keys of all quota Workloads in order.
func (cl *Cluster) WorkloadKeys() []admission.StageKey {
	return slices.SortedFunc(maps.Keys(cl.Workloads), CompareKeys)
}

// IsFinished reports whether a quota Workload has finished.
func IsFinished(w *kueue.Workload) bool { return quotaworkload.IsTrue(w, kueue.WorkloadFinished) }

// SetFinished records that a stage has finished.
func (cl *Cluster) SetFinished(w *kueue.Workload, reason string) {
	apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
		Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: w.Generation,
		LastTransitionTime: cl.Timestamp(),
	})
}

// WithoutQuota releases the quota of a quota Workload whose pods have terminated.
func (cl *Cluster) WithoutQuota(w *kueue.Workload) *kueue.Workload {
	status := workloadstatus.Suspended(w, cl.Time())
	if quotaworkload.IsTrue(w, kueue.WorkloadEvicted) {
		status = workloadstatus.QuotaReleased(w, cl.Time())
	}
	after := workloadstatus.Merge(w, &status)
	if apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady) != nil {
		cl.SetPodsReady(after, workloadstatus.PodsNotStarted())
	}
	return after
}

// WithOwnStatus returns a copy of a quota Workload whose status may be changed. It shares all else with the original, so that neither may be changed.
func WithOwnStatus(w *kueue.Workload) *kueue.Workload {
	after := *w
	after.Status = *w.Status.DeepCopy()
	return &after
}

// Readiness returns the condition PodsReady of a quota Workload, and whether it has to be written.
func Readiness(w *kueue.Workload, areReady bool) (c metav1.Condition, differs bool) {
	old := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	c = workloadstatus.PodsReady(old, areReady)
	return c, old == nil && c.Status == metav1.ConditionTrue || old != nil && (old.Status != c.Status || old.Reason != c.Reason)
}

// SetPodsReady writes the condition PodsReady of a quota Workload.
func (cl *Cluster) SetPodsReady(w *kueue.Workload, c metav1.Condition) {
	status := workloadstatus.Progress(w, c, nil, cl.Time())
	for i := range status.Conditions {
		apimeta.SetStatusCondition(&w.Status.Conditions, status.Conditions[i])
	}
}
