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
	w := &queuedWriter{&stepWriter{Manager: m}}
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
type queuedWriter struct{ *stepWriter }

func (w *queuedWriter) writer() *queuedjob.Writer {
	nothing := func(*queuedjob.Step) error { return nil }
	return &queuedjob.Writer{
		Quota: w.WriteQuota,
		Job:   func(step *queuedjob.Step) error { return Each(w.Manager, []*queuedjob.JobWrite{step.Job}, w.writeJob) },
		// No Job of a simulation ran before Tranche or has other finalizers, nothing is deleted after a while, and no user reads Events.
		EndPods: nothing, DeleteExpired: nothing, Report: nothing,
	}
}

func (w *queuedWriter) writeJob(write *queuedjob.JobWrite) error {
	need := sameUID
	if write.IsLocked() {
		need = sameVersion
	}
	if write.Kind == queuedjob.Resize {
		w.Log("resize %s pods=%d", write.After.Name, *write.After.Spec.Parallelism)
	}
	return w.patchJob(write.Before, write.After, need)
}
