package simulator

import (
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// workQueue has the objects of one kind that a controller has to reconcile.
type workQueue struct {
	// changed have to be reconciled now, and awaited at a time.
	changed map[types.NamespacedName]bool
	awaited map[types.NamespacedName]time.Duration
}

func newWorkQueue() workQueue {
	return workQueue{changed: map[types.NamespacedName]bool{}, awaited: map[types.NamespacedName]time.Duration{}}
}

func (w *workQueue) add(key types.NamespacedName) { w.changed[key] = true }

// addAll queues every quota Workload, after a change that may concern all of them.
func (w *workQueue) addAll(st *store) {
	for key := range st.workloads {
		w.add(key)
	}
}

// forget drops all awaited times, as a manager does that exits.
func (w *workQueue) forget() { clear(w.awaited) }

// isDue reports whether an object has to be reconciled by now.
func (w *workQueue) isDue(now time.Duration) bool {
	at, isAwaited := w.next()
	return len(w.changed) > 0 || isAwaited && at <= now
}

// next returns the time at which an object has to be reconciled without an event.
func (w *workQueue) next() (at time.Duration, isAwaited bool) {
	for _, one := range w.awaited {
		if !isAwaited || one < at {
			at, isAwaited = one, true
		}
	}
	return at, isAwaited
}

// wake adds the objects whose time has come.
func (w *workQueue) wake(now time.Duration) {
	for key, at := range w.awaited {
		if at <= now {
			w.add(key)
			delete(w.awaited, key)
		}
	}
}

// due removes and returns the objects that have to be reconciled by now.
func (w *workQueue) due(now time.Duration) []types.NamespacedName {
	w.wake(now)
	keys := slices.SortedFunc(maps.Keys(w.changed), compareKeys)
	clear(w.changed)
	for _, key := range keys {
		delete(w.awaited, key)
	}
	return keys
}

// runControllers does all due work that the engine need not decide.
func (s *simulation) runControllers() {
	for range maxReconciles {
		for f := s.eventQueue.due(s.now); f != nil; f = s.eventQueue.due(s.now) {
			f()
		}
		switch {
		case s.workQueue.isDue(s.now):
			for _, key := range s.workQueue.due(s.now) {
				if w := s.objects.workloads[key]; w != nil {
					s.reconcileWorkload(key, w)
				}
			}
		case len(s.dirtyJobs) > 0:
			s.controlJobs()
		case s.jobSetQueue.isDue(s.now):
			s.reconcileJobSets()
		default:
			return
		}
	}
	s.fail(errors.New("the controllers come to no end"))
}

// maxReconciles limits how often controllers reconcile objects while no time passes.
const maxReconciles = 100_000

// controlJobs reconciles the Jobs that have changed, or whose pods have.
func (s *simulation) controlJobs() {
	changed := sorted(s.dirtyJobs)
	clear(s.dirtyJobs)
	for _, uid := range changed {
		if job := s.objects.job(uid); job != nil {
			s.controlJob(job)
		}
	}
}

// reconcileJobSets reconciles the JobSets that have changed, and the jobs of other kinds.
func (s *simulation) reconcileJobSets() {
	for _, key := range s.jobSetQueue.due(s.now) {
		if j := s.jobs[key.Name]; j != nil && j.plain != nil {
			s.reconcilePlain(j)
			continue
		}
		if js := s.objects.jobSets[key]; js != nil {
			s.controlJobSet(js)
		}
		s.reconcileJobSet(key)
	}
}

// reconcileWorkload reconciles a quota Workload, as the controller of quota Workloads does.
func (s *simulation) reconcileWorkload(key admission.StageKey, w *kueue.Workload) {
	step := workloadstatus.Next(s.workloadSnapshot(w), &s.config.WaitForPodsReady, s.time())
	if step.RequeueAfter > 0 {
		s.workQueue.awaited[key] = s.now + step.RequeueAfter
	}
	after := w.DeepCopy()
	switch {
	case step.Deactivate:
		after.Spec.Active = new(false)
		after.Generation++
	case len(step.RemoveChecks) > 0:
		after.Status.AdmissionChecks = slices.DeleteFunc(after.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
			return slices.Contains(step.RemoveChecks, c.Name)
		})
	case step.Status == nil || !workloadstatus.Differs(w, step.Status):
		return
	default:
		after = workloadstatus.Merge(w, step.Status)
	}
	if evicted, is := step.Transition.(workloadstatus.EvictedTransition); is && quotaworkload.HoldsQuota(w) {
		s.evict(w, step.Status, evicted.Eviction.FullReason()+": "+evicted.Eviction.Message)
		return
	}
	if _, is := step.Transition.(workloadstatus.AdmittedTransition); is {
		s.say("admit %s%s", s.subjectOf(w), details(after))
	}
	s.put(after)
}

// workloadSnapshot returns the snapshot on which the next status of a quota Workload depends.
func (s *simulation) workloadSnapshot(w *kueue.Workload) *workloadstatus.Snapshot {
	snapshot := &workloadstatus.Snapshot{Workload: w}
	if w.Status.Admission != nil {
		snapshot.ReservedIn = s.objects.clusterQueues[string(w.Status.Admission.ClusterQueue)]
	}
	snapshot.LocalQueue = s.objects.localQueues[types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}]
	if snapshot.LocalQueue != nil {
		snapshot.ClusterQueue = s.objects.clusterQueues[string(snapshot.LocalQueue.Spec.ClusterQueue)]
	}
	return snapshot
}
