package manager

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// ReconcileQueuedJob takes the next step of the manager for the queued Job of a name.
func (m *Manager) ReconcileQueuedJob(key types.NamespacedName) {
	s := m.queuedSnapshot(key)
	step := queuedjob.Next(s)
	if step.NeedsLive() {
		s.Owned.Pods = m.podsOfQueued(s.Job)
		for uid, b := range s.Orphans {
			b.Pods = m.podsOfQueued(m.Jobs[uid])
			s.Orphans[uid] = b
		}
		step = queuedjob.Next(s)
	}
	w := &queuedWriter{&stepWriter{Manager: m}, s}
	m.wrote(key, step.Write(w.writer()), step.RequeueAfter)
}

// queuedSnapshot returns the objects that belong to the queued Job of a name, or to deleted ones of that name, without pods.
func (m *Manager) queuedSnapshot(key types.NamespacedName) *queuedjob.Snapshot {
	s := &queuedjob.Snapshot{
		Key: key, Orphans: map[types.UID]queuedjob.Objects{}, Charged: map[types.UID]bool{}, Now: m.Time(),
		Flavors: map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{},
	}
	for name, flavor := range m.Flavors {
		s.Flavors[kueue.ResourceFlavorReference(name)] = flavor
	}
	for _, workload := range m.WorkloadsOfJob(key) {
		uid := types.UID(workload.Labels[apis.JobUIDLabel])
		b := s.Orphans[uid]
		b.Workloads = append(b.Workloads, workload)
		s.Orphans[uid] = b
		// The manager asks the engine, not the cache.
		s.Charged[workload.UID] = m.Engine.ChargedAs(workload)
	}
	job := m.QueuedJob(key)
	switch {
	case job == nil:
	case !job.DeletionTimestamp.IsZero():
		s.Leaving = job
	default:
		j := m.QueuedJobs[key]
		s.Job, s.Priority = job, jobsetstate.Priority{Value: j.Priority, Class: j.ClassRef()}
		s.Template = j.Plan.Stages[0].PodSets[0].Template
		s.Owned = s.Orphans[job.UID]
		delete(s.Orphans, job.UID)
	}
	return s
}

// podsOfQueued returns the pods of a Job that are not terminal.
func (m *Manager) podsOfQueued(job *batchv1.Job) []*corev1.Pod {
	if job == nil {
		return nil
	}
	var all []*corev1.Pod
	p := m.PodsOf(job)
	for range p.Count(cluster.IsRunning) + p.Terminating {
		all = append(all, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace}})
	}
	return all
}

// A queuedWriter writes one Step of a queued Job to the objects. Each write has the preconditions of the same write in controllers/queuedjob.
type queuedWriter struct {
	*stepWriter
	queued *queuedjob.Snapshot
}

func (w *queuedWriter) writer() *queuedjob.Writer {
	one := func(write func(*queuedjob.Step) error) func(*queuedjob.Step) error {
		return func(step *queuedjob.Step) error { return each(w.stepWriter, []*queuedjob.Step{step}, write) }
	}
	nothing := func(*queuedjob.Step) error { return nil }
	return &queuedjob.Writer{
		Create: one(w.create), Change: one(w.change),
		Hold:     one(func(s *queuedjob.Step) error { return w.patchJob(s.Hold, suspended(s.Hold, true), sameUID) }),
		Conclude: one(func(s *queuedjob.Step) error { return w.patchJob(s.Conclude, suspended(s.Conclude, false), sameUID) }),
		ClearSuspended: one(func(s *queuedjob.Step) error {
			return w.patchJob(s.ClearSuspended, queuedjob.Unconfirmed(s.ClearSuspended), sameVersion)
		}),
		ClearStart: one(w.clearStart),
		Restore: one(func(s *queuedjob.Step) error {
			return w.patchJob(s.Restore, queuedjob.Restored(s.Restore), sameVersion)
		}),
		Release:  one(func(s *queuedjob.Step) error { return w.patchJob(s.Release.Before, s.Release.After, sameVersion) }),
		Resize:   one(w.resize),
		Progress: one(w.progress), Reclaim: one(w.reclaim), ReleaseQuota: one(w.releaseQuota),
		Reopen:           one(func(s *queuedjob.Step) error { return w.deleteWorkload(s.Reopen) }),
		RemoveFinalizers: func(s *queuedjob.Step) error { return each(w.stepWriter, s.RemoveFinalizers, w.removeFinalizer) },
		DeleteWorkloads: func(s *queuedjob.Step) error {
			return w.deleteWorkloads(&stages.Step{DeleteWorkloads: s.DeleteWorkloads})
		},
		// The Jobs of a simulation are not adopted and have no other finalizers, nothing is deleted after a while, and no user reads Events.
		Admit: nothing, Adopt: nothing, EndPods: nothing, DeleteExpired: nothing, Report: nothing,
	}
}

// create writes a quota Workload for the first time, unless its name is taken.
func (w *queuedWriter) create(step *queuedjob.Step) error {
	workload := step.Create
	if w.Workloads[cluster.KeyOf(workload)] != nil {
		return nil
	}
	if jobsetstate.GrowthNumber(workload) > 0 {
		w.Log("ask %s pods=%s", cluster.SubjectOf(workload), cluster.Counts(workload.Spec.PodSets))
	}
	w.PutWorkload(workload)
	return nil
}

func (w *queuedWriter) change(step *queuedjob.Step) error {
	return w.changeWorkload(step.Change.Before, step.Change.After)
}

func (w *queuedWriter) clearStart(step *queuedjob.Step) error {
	after := step.ClearStart.DeepCopy()
	after.Status.StartTime = nil
	return w.patchJob(step.ClearStart, after, sameVersion)
}

func (w *queuedWriter) resize(step *queuedjob.Step) error {
	before, after := step.Resize.Before, step.Resize.After
	w.Log("resize %s pods=%d", after.Name, *after.Spec.Parallelism)
	return w.patchJob(before, after, sameVersion)
}

func (w *queuedWriter) progress(step *queuedjob.Step) error {
	p := stages.ReportProgress{Workload: step.Progress.Workload, Ready: step.Progress.Ready, Finished: step.Progress.Finished}
	need := sameUID
	if p.Finished != nil {
		need = sameVersion
		p.HasSucceeded = p.Finished.Reason == kueue.WorkloadFinishedReasonSucceeded
	}
	return w.onWorkload(p.Workload, need, func(now *kueue.Workload) error {
		w.writeProgress(p, now)
		return nil
	})
}

func (w *queuedWriter) reclaim(step *queuedjob.Step) error {
	return w.onWorkload(step.Reclaim.Workload, sameVersion, func(now *kueue.Workload) error {
		after := now.DeepCopy()
		after.Status.ReclaimablePods = step.Reclaim.Pods
		w.PutWorkload(after)
		return nil
	})
}

func (w *queuedWriter) releaseQuota(step *queuedjob.Step) error {
	return w.onWorkload(step.ReleaseQuota, sameVersion, func(now *kueue.Workload) error {
		w.Log("stop %s", cluster.SubjectOf(now))
		w.PutWorkload(w.WithoutQuota(now))
		return nil
	})
}
