package manager

import (
	"errors"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// errCut ends a Step of a manager that dies in the middle of it.
var errCut = errors.New("the manager dies")

// ReconcileJobSet takes the next step of the manager for the JobSet of a name.
func (m *Manager) ReconcileJobSet(key types.NamespacedName) {
	snapshot := m.snapshot(key)
	step := stages.Next(snapshot)
	w := &stepWriter{Manager: m, snapshot: snapshot}
	if err := step.Write(w.writer()); errors.Is(err, errCut) {
		m.Restart()
		// The new manager may decide before it reconciles this JobSet again.
		for _, decision := range m.Decide() {
			m.Write(decision)
		}
		return
	}
	delete(m.JobSetQueue.Awaited, key)
	if step.RequeueAfter > 0 {
		m.JobSetQueue.Awaited[key] = m.Now + step.RequeueAfter
	}
}

// snapshot returns the objects that belong to the JobSet of a name, or to deleted JobSets of that name.
func (m *Manager) snapshot(key types.NamespacedName) *jobsetstate.Snapshot {
	snapshot := &jobsetstate.Snapshot{
		Key: key, Orphans: map[types.UID]jobsetstate.Objects{}, Now: m.Time(), Charged: map[types.UID]bool{},
		Flavors: map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{},
	}
	owned := map[types.UID]jobsetstate.Objects{}
	if js := m.JobSets[key]; js != nil {
		j := m.UserJobs[key.Name]
		snapshot.JobSet, snapshot.Plan, snapshot.Priority = js, j.Plan, jobsetstate.Priority{Value: j.Priority, Class: j.ClassRef()}
		owned[js.UID] = jobsetstate.Objects{}
	}
	for _, w := range m.WorkloadsOfJobSet(key) {
		uid := types.UID(w.Labels[apis.JobUIDLabel])
		objects := owned[uid]
		objects.Workloads = append(objects.Workloads, w)
		owned[uid] = objects
		snapshot.Charged[w.UID] = m.Engine.Charged(cluster.KeyOf(w), w.UID)
	}
	for uid, objects := range owned {
		objects.Jobs = m.JobsOf(uid)
		objects.Pods = m.excessPods(objects.Jobs)
		if snapshot.JobSet != nil && uid == snapshot.JobSet.UID {
			snapshot.Owned = objects
		} else {
			snapshot.Orphans[uid] = objects
		}
	}
	for name, flavor := range m.Flavors {
		snapshot.Flavors[kueue.ResourceFlavorReference(name)] = flavor
	}
	return snapshot
}

// excessPods returns the pods that terminate, and those that a Job still runs beyond its size. The status of a Job counts all others.
func (m *Manager) excessPods(jobs []*batchv1.Job) []*corev1.Pod {
	var all []*corev1.Pod
	for _, job := range jobs {
		p := m.Pods[job.UID]
		if p == nil {
			continue
		}
		excess := p.Terminating + max(0, p.Count(cluster.IsRunning)-childjob.PodsAtOnce(job))
		for i := range excess {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Labels: map[string]string{}}}
			for _, label := range []string{jobset.JobSetUIDKey, jobset.ReplicatedJobNameKey, jobset.JobIndexKey, constants.RestartsKey} {
				pod.Labels[label] = job.Labels[label]
			}
			pod.Labels[batchv1.JobNameLabel] = job.Name
			pod.Labels[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(int(childjob.PodsAtOnce(job) + i))
			all = append(all, pod)
		}
	}
	return all
}

// A stepWriter writes one Step to the objects.
type stepWriter struct {
	*Manager
	snapshot *jobsetstate.Snapshot
}

func (w *stepWriter) writer() *stages.Writer {
	return &stages.Writer{
		CreateWorkloads: w.createWorkloads, EvictWorkloads: w.evictWorkloads, ChangeWorkloads: w.changeWorkloads,
		Pause: w.pause, Start: w.start,
		ReleaseJobs: w.releaseJobs, ResizeJobs: w.resizeJobs, HoldJobs: w.holdJobs, SkipJobs: w.skipJobs,
		ConcludeJobs: w.concludeJobs, RecreateJobs: w.recreateJobs, RestoreJobs: w.restoreJobs,
		RecordTimes: w.recordTimes, Progress: w.progress, Reclaim: w.reclaim, ReleaseQuota: w.releaseQuota,
		Reopen: w.reopen, RemoveFinalizers: w.removeFinalizers, DeleteWorkloads: w.deleteWorkloads,
		Report: w.report, CreateGrowths: w.createGrowths,
	}
}

// each writes objects one by one. It stops where the manager is to die.
func each[T any](w *stepWriter, all []T, write func(T)) error {
	for _, one := range all {
		if w.dies() {
			return errCut
		}
		write(one)
	}
	return nil
}

// dies reports whether the manager dies before its next write.
func (m *Manager) dies() bool {
	if m.Writes == m.DiesAfter {
		m.DiesAfter = -1
		return true
	}
	m.Writes++
	return false
}

func (w *stepWriter) createWorkloads(step *stages.Step) error {
	all := slices.Clone(step.CreateWorkloads)
	slices.Reverse(all)
	return each(w, all, w.create)
}

// create writes a quota Workload for the first time, unless its name is taken.
func (w *stepWriter) create(workload *kueue.Workload) {
	if w.Workloads[cluster.KeyOf(workload)] != nil {
		return
	}
	for _, setting := range w.UserJobs[w.snapshot.Key.Name].Settings {
		if w.Concerns(setting.Target, workload) {
			// The fields were validated when the scenario was read.
			_ = setting.Fields.Apply(workload)
		}
	}
	w.PutWorkload(workload)
}

func (w *stepWriter) evictWorkloads(step *stages.Step) error {
	return each(w, step.EvictWorkloads, func(e stages.EvictWorkload) {
		status := workloadstatus.Evicted(e.Workload, e.Eviction, w.Time())
		w.Log("evict %s with %s", cluster.SubjectOf(e.Workload), cluster.SubjectOf(e.Cause))
		w.PutWorkload(workloadstatus.Merge(e.Workload, &status))
	})
}

func (w *stepWriter) changeWorkloads(step *stages.Step) error {
	return each(w, step.ChangeWorkloads, func(c stages.ChangeWorkload) {
		if jobsetstate.GrowthNumber(c.After) > 0 && cluster.Counts(c.Before.Spec.PodSets) != cluster.Counts(c.After.Spec.PodSets) {
			w.Log("ask %s pods=%s", cluster.SubjectOf(c.After), cluster.Counts(c.After.Spec.PodSets))
		}
		w.PatchWorkload(c.Before, c.After)
	})
}

// pause and start write the JobSet, like the functions after them that have one object to write.
func (w *stepWriter) pause(*stages.Step) error {
	return each(w, []bool{true}, func(suspend bool) {
		js := w.snapshot.JobSet.DeepCopy()
		js.Spec.Suspend = &suspend
		delete(js.Annotations, apis.StartedAnnotation)
		w.PutJobSet(js)
	})
}

func (w *stepWriter) start(*stages.Step) error {
	return each(w, []bool{false}, func(suspend bool) {
		js := w.snapshot.JobSet.DeepCopy()
		js.Spec.Suspend = &suspend
		metav1.SetMetaDataAnnotation(&js.ObjectMeta, apis.StartedAnnotation, "true")
		w.PutJobSet(js)
	})
}

func (w *stepWriter) releaseJobs(step *stages.Step) error {
	for _, release := range step.ReleaseJobs {
		if err := each(w, release.Jobs, w.PutJob); err != nil {
			return err
		}
	}
	return nil
}

func (w *stepWriter) resizeJobs(step *stages.Step) error {
	for _, resize := range step.ResizeJobs {
		err := each(w, resize.After, func(job *batchv1.Job) {
			w.Log("resize %s/%s pods=%d", w.snapshot.Key.Name, job.Labels[jobset.ReplicatedJobNameKey], childjob.PodsAtOnce(job))
			w.PutJob(job)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *stepWriter) holdJobs(step *stages.Step) error {
	return each(w, step.HoldJobs, func(job *batchv1.Job) { w.PutJob(suspended(job, true)) })
}

func (w *stepWriter) concludeJobs(step *stages.Step) error {
	return each(w, step.ConcludeJobs, func(job *batchv1.Job) { w.PutJob(suspended(job, false)) })
}

func suspended(job *batchv1.Job, suspend bool) *batchv1.Job {
	after := job.DeepCopy()
	after.Spec.Suspend = &suspend
	return after
}

func (w *stepWriter) skipJobs(step *stages.Step) error {
	return each(w, step.SkipJobs, func(job *batchv1.Job) {
		after := suspended(job, false)
		cluster.SetJobCondition(after, batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue)
		w.PutJob(after)
	})
}

func (w *stepWriter) recreateJobs(step *stages.Step) error {
	return each(w, step.RecreateJobs, w.DeleteJob)
}

func (w *stepWriter) restoreJobs(step *stages.Step) error {
	return each(w, step.RestoreJobs, func(job *batchv1.Job) { w.PutJob(childjob.Restored(job)) })
}

func (w *stepWriter) recordTimes(step *stages.Step) error {
	return each(w, []*stages.Step{step}, func(step *stages.Step) {
		after, _, err := step.RecordTimesOn(w.JobSets[w.snapshot.Key], w.snapshot.Plan, w.Time())
		if err != nil {
			w.Fail(err)
			return
		}
		w.PutJobSet(after)
	})
}

func (w *stepWriter) progress(step *stages.Step) error {
	return each(w, step.Progress, func(p stages.ReportProgress) {
		before := w.Workloads[cluster.KeyOf(p.Workload)]
		status := workloadstatus.Progress(before, p.Ready, p.Finished, w.Time())
		after := before.DeepCopy()
		for _, condition := range []string{kueue.WorkloadPodsReady, kueue.WorkloadFinished} {
			apimeta.RemoveStatusCondition(&after.Status.Conditions, condition)
		}
		after.Status.Conditions = append(after.Status.Conditions, status.Conditions...)
		switch {
		case p.Finished == nil:
		case p.HasSucceeded:
			w.Log("finish %s", cluster.SubjectOf(after))
		case quotaworkload.HoldsQuota(before):
			w.Log("stop %s", cluster.SubjectOf(after))
		}
		w.PutWorkload(after)
	})
}

func (w *stepWriter) reclaim(step *stages.Step) error {
	return each(w, step.Reclaim, func(r stages.ReclaimPods) {
		after := w.Workloads[cluster.KeyOf(r.Workload)].DeepCopy()
		after.Status.ReclaimablePods = r.Pods
		w.PutWorkload(after)
	})
}

func (w *stepWriter) releaseQuota(step *stages.Step) error {
	return each(w, step.ReleaseQuota, func(workload *kueue.Workload) {
		before := w.Workloads[cluster.KeyOf(workload)]
		w.Log("stop %s", cluster.SubjectOf(before))
		w.PutWorkload(w.WithoutQuota(before))
	})
}

func (w *stepWriter) reopen(step *stages.Step) error {
	return each(w, step.Reopen, func(workload *kueue.Workload) { w.DeleteWorkload(w.Workloads[cluster.KeyOf(workload)]) })
}

func (w *stepWriter) removeFinalizers(step *stages.Step) error {
	return each(w, step.RemoveFinalizers, func(workload *kueue.Workload) { w.RemoveFinalizer(workload) })
}

func (w *stepWriter) deleteWorkloads(step *stages.Step) error {
	err := each(w, step.DeleteWorkloads, func(workload *kueue.Workload) {
		if workload.DeletionTimestamp.IsZero() {
			w.DeleteWorkload(w.Workloads[cluster.KeyOf(workload)])
		}
	})
	if err != nil {
		return err
	}
	return each(w, step.DeleteWorkloads, w.RemoveFinalizer)
}

func (w *stepWriter) report(step *stages.Step) error {
	js := w.JobSets[w.snapshot.Key]
	if js == nil {
		return nil
	}
	after := js.DeepCopy()
	after.Status.Conditions = slices.DeleteFunc(after.Status.Conditions, func(c metav1.Condition) bool { return jobsetstatus.IsOwned(c.Type) })
	after.Status.Conditions = append(after.Status.Conditions, step.Conditions...)
	w.PutJobSet(after)
	return nil
}

func (w *stepWriter) createGrowths(step *stages.Step) error {
	return each(w, step.CreateGrowths, func(growth *kueue.Workload) {
		w.Log("ask %s pods=%s", cluster.SubjectOf(growth), cluster.Counts(growth.Spec.PodSets))
		w.create(growth)
	})
}
