package manager

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// ReconcileJobSet takes the next step of the manager for the JobSet of a name.
func (m *Manager) ReconcileJobSet(key types.NamespacedName) {
	delete(m.Previous, key)
	m.reconcile(key, &cluster.Cache{Cluster: m.Cluster})
}

// ReconcileStale does the same while the cache of the manager has not received the last event of one object. The manager reconciles the JobSet
// again when the cache receives it.
func (m *Manager) ReconcileStale(key types.NamespacedName, stale cluster.ObjectName) {
	m.reconcile(key, &cluster.Cache{Cluster: m.Cluster, Stale: stale, Shown: m.Previous[key][stale]})
}

func (m *Manager) reconcile(key types.NamespacedName, cache *cluster.Cache) {
	snapshot := m.snapshot(key, cache)
	step := stages.Next(snapshot)
	if step.EndsQuota() {
		snapshot = m.refresh(snapshot)
		step = stages.Next(snapshot)
	}
	w := &stepWriter{Manager: m, snapshot: snapshot}
	m.wrote(key, step.Write(w.writer()), step.RequeueAfter)
}

// wrote ends the reconciliation of an owner of quota Workloads: err is that of its writes, and requeueAfter when it is due again, if positive.
func (m *Manager) wrote(key types.NamespacedName, err error, requeueAfter time.Duration) {
	switch {
	case errors.Is(err, ErrCut):
		m.Restart()
		// The new manager may decide before it reconciles this owner again.
		for _, decision := range m.Decide() {
			m.Write(decision)
		}
		return
	case errors.Is(err, ErrConflict):
		m.Touch(key.Namespace, key.Name)
		return
	case err != nil:
		m.Fail(err)
		return
	}
	delete(m.JobSetQueue.Awaited, key)
	if requeueAfter > 0 {
		m.JobSetQueue.Awaited[key] = m.Now + requeueAfter
	}
}

// snapshot returns the objects that belong to the JobSet of a name, or to deleted JobSets of that name, as the cache has them.
func (m *Manager) snapshot(key types.NamespacedName, cache *cluster.Cache) *jobsetstate.Snapshot {
	snapshot := &jobsetstate.Snapshot{
		Key: key, Orphans: map[types.UID]jobsetstate.Objects{}, Now: m.Time(), Charged: map[types.UID]bool{},
		Flavors: map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{},
	}
	owned := map[types.UID]jobsetstate.Objects{}
	if js := cache.JobSet(key); js != nil {
		j := m.UserJobs[key]
		snapshot.JobSet, snapshot.Priority = js, jobsetstate.Priority{Value: j.Priority, Class: j.ClassRef()}
		snapshot.Plan = m.planOf(js)
		owned[js.UID] = jobsetstate.Objects{}
	}
	for _, w := range cache.WorkloadsOfJobSet(key) {
		uid := types.UID(w.Labels[apis.JobUIDLabel])
		objects := owned[uid]
		objects.Workloads = append(objects.Workloads, w)
		owned[uid] = objects
		// The manager asks the engine, not the cache.
		snapshot.Charged[w.UID] = m.Engine.ChargedAs(w)
	}
	for uid, objects := range owned {
		objects.Jobs = cache.JobsOf(uid)
		objects.Pods = m.podsBeyond(objects.Jobs)
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

// planOf returns the plan of a version of a JobSet.
func (m *Manager) planOf(js *jobsetapi.JobSet) *stageplan.Plan {
	j := m.UserJobs[types.NamespacedName{Namespace: js.Namespace, Name: js.Name}]
	if js == m.JobSets[j.Key()] {
		return j.Plan
	}
	plan, err := stageplan.New(&js.Spec)
	if err != nil {
		m.Fail(fmt.Errorf("plan JobSet %s: %w", js.Name, err))
	}
	return plan
}

// refresh reads the objects of the JobSets past the cache, but not the JobSet.
func (m *Manager) refresh(snapshot *jobsetstate.Snapshot) *jobsetstate.Snapshot {
	live := *snapshot
	live.Orphans = map[types.UID]jobsetstate.Objects{}
	for uid := range snapshot.Orphans {
		live.Orphans[uid] = m.readLive(snapshot.Key, uid)
	}
	if snapshot.JobSet != nil {
		live.Owned = m.readLive(snapshot.Key, snapshot.JobSet.UID)
	}
	return &live
}

func (m *Manager) readLive(key types.NamespacedName, jobSet types.UID) jobsetstate.Objects {
	objects := jobsetstate.Objects{Jobs: m.JobsOf(jobSet)}
	for _, w := range m.WorkloadsOfJobSet(key) {
		if w.Labels[apis.JobUIDLabel] == string(jobSet) {
			objects.Workloads = append(objects.Workloads, w)
		}
	}
	objects.Pods = m.podsBeyond(objects.Jobs)
	return objects
}

// podsBeyond returns the pods that terminate, and those that a Job still runs beyond its size. The status of a Job counts all others, unless it
// is a previous version: then podsBeyond returns all pods.
func (m *Manager) podsBeyond(jobs []*batchv1.Job) []*corev1.Pod {
	var all []*corev1.Pod
	for _, job := range jobs {
		p := m.Pods[job.UID]
		if p == nil {
			continue
		}
		counted := childjob.PodsAtOnce(job)
		if job != m.Jobs[job.UID] {
			counted = 0
		}
		for i := range p.Terminating + max(0, p.Count(cluster.IsRunning)-counted) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Labels: map[string]string{}}}
			for _, label := range []string{jobset.JobSetUIDKey, jobset.ReplicatedJobNameKey, jobset.JobIndexKey, constants.RestartsKey} {
				pod.Labels[label] = job.Labels[label]
			}
			pod.Labels[batchv1.JobNameLabel] = job.Name
			pod.Labels[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(int(counted + i))
			all = append(all, pod)
		}
	}
	return all
}
