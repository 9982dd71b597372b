// Package idle finds the JobSets of a simulated cluster that wait for quota, and for which no controller has anything to do before a quota Workload of
// theirs changes. Of those that are equal but for names and times, controllers reconcile one, and the others only when something concerns them.
package idle

import (
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// maxKinds is how many different kinds of equal shape are compared with each JobSet. One that is of none of them is reconciled.
const maxKinds = 8

// JobSets are those that were taken from the work queues of a cluster.
type JobSets struct {
	cl    *cluster.Cluster
	kinds []*kind
}

// A kind has JobSets that are equal but for names and times: the first, which is reconciled, and the others, which are not.
type kind struct {
	first  *waiting
	others []*waiting
}

// A waiting JobSet waits for quota, with its objects in order.
type waiting struct {
	key       types.NamespacedName
	jobSet    *jobsetapi.JobSet
	workloads []*kueue.Workload
	jobs      []*batchv1.Job
}

// A shape is what is compared first.
type shape struct {
	namespace               string
	stages, workloads, jobs int
	pods, replicas          int32
	stageAdmission          string
}

// SetAside takes the JobSets that wait from the work queues, but for the first of each kind. All objects of the cluster are in its queues.
func SetAside(cl *cluster.Cluster) *JobSets {
	s := &JobSets{cl: cl}
	kinds, known := map[shape][]*kind{}, comparisons{}
	for _, key := range slices.SortedFunc(maps.Keys(cl.JobSets), cluster.CompareKeys) {
		w := s.waitingOf(key)
		if w == nil {
			continue
		}
		shape := w.shape(cl.UserJobs[key])
		i := slices.IndexFunc(kinds[shape], func(k *kind) bool { return known.areEqual(k.first, w) })
		switch {
		case i >= 0:
			kinds[shape][i].others = append(kinds[shape][i].others, w)
			delete(cl.JobSetQueue.Changed, key)
			for _, job := range w.jobs {
				delete(cl.JobQueue, job.UID)
			}
		case len(kinds[shape]) < maxKinds:
			k := &kind{first: w}
			kinds[shape], s.kinds = append(kinds[shape], k), append(s.kinds, k)
		}
	}
	return s
}

// Wake adds to the work queues all JobSets of a kind whose first one has been changed by a controller, other than by creating its Jobs, or has to be
// reconciled at a later time. It is called when all controllers have done what they have to do, before time passes. It reports whether there are any.
func (s *JobSets) Wake() bool {
	isAny := false
	for _, k := range s.kinds {
		if len(k.others) == 0 || s.isUnchanged(k.first) {
			continue
		}
		for _, w := range k.others {
			s.cl.JobSetQueue.Add(w.key)
			for _, job := range w.jobs {
				if s.cl.Jobs[job.UID] != nil {
					s.cl.JobQueue[job.UID] = true
				}
			}
		}
		isAny = true
	}
	s.kinds = nil
	return isAny
}

// isUnchanged reports whether the objects of a waiting JobSet are those of the beginning. Its Jobs may be new.
func (s *JobSets) isUnchanged(w *waiting) bool {
	_, isAwaited := s.cl.JobSetQueue.Awaited[w.key]
	return !isAwaited && s.cl.JobSets[w.key] == w.jobSet && slices.Equal(s.cl.WorkloadsOfJobSet(w.key), w.workloads) &&
		!slices.ContainsFunc(s.cl.JobsOf(w.jobSet.UID), func(job *batchv1.Job) bool { return !s.isHeld(job) }) &&
		!slices.ContainsFunc(w.jobs, func(job *batchv1.Job) bool { return s.cl.Jobs[job.UID] == nil })
}

// waitingOf returns the JobSet of a name with its objects if it waits for quota, or nil.
func (s *JobSets) waitingOf(key types.NamespacedName) *waiting {
	js, j := s.cl.JobSets[key], s.cl.UserJobs[key]
	if js.Status.TerminalState != "" || !js.DeletionTimestamp.IsZero() || js.Spec.Suspend == nil || !*js.Spec.Suspend || j.Plan == nil {
		return nil
	}
	w := &waiting{key: key, jobSet: js, workloads: s.cl.WorkloadsOfJobSet(key), jobs: s.cl.JobsOf(js.UID)}
	if len(w.workloads) != len(j.Plan.Stages) || slices.ContainsFunc(w.jobs, func(job *batchv1.Job) bool { return !s.isHeld(job) }) {
		return nil
	}
	for i, object := range w.workloads {
		if !isAsPlanned(object, i, js, j) {
			return nil
		}
	}
	return w
}

// isHeld reports whether a Job is suspended and has no pods.
func (s *JobSets) isHeld(job *batchv1.Job) bool {
	p := s.cl.Pods[job.UID]
	return childjob.IsHeld(job) && job.DeletionTimestamp.IsZero() && (p == nil || p.Terminating == 0 && p.Count(cluster.IsAny) == 0)
}

// shape returns what is compared first.
func (w *waiting) shape(j *cluster.UserJob) shape {
	sh := shape{namespace: w.key.Namespace, stages: len(j.Plan.Stages), workloads: len(w.workloads), jobs: len(w.jobs), stageAdmission: j.StageAdmission}
	for i, object := range w.workloads {
		for k := range object.Spec.PodSets {
			sh.pods = sh.pods*31 + object.Spec.PodSets[k].Count*int32(i+1)
		}
	}
	for i := range w.jobSet.Spec.ReplicatedJobs {
		sh.replicas = sh.replicas*31 + w.jobSet.Spec.ReplicatedJobs[i].Replicas
	}
	return sh
}
