package simulator

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// lives are the quota Workloads whose next step outside of the engine has to be computed. The results are in the objects.
type lives struct {
	// changed have to be reconciled now, and awaited at a time.
	changed map[admission.StageKey]bool
	awaited map[admission.StageKey]time.Duration
}

func newLives() lives {
	return lives{changed: map[admission.StageKey]bool{}, awaited: map[admission.StageKey]time.Duration{}}
}

func (l *lives) add(key admission.StageKey) { l.changed[key] = true }

// addAll queues every quota Workload, after a change that may concern all of them.
func (l *lives) addAll(st *store) {
	for key := range st.workloads {
		l.add(key)
	}
}

// forget drops all awaited times, as a manager does that exits.
func (l *lives) forget() { clear(l.awaited) }

// isDue reports whether a quota Workload has to be reconciled by now.
func (l *lives) isDue(now time.Duration) bool {
	at, isAwaited := l.next()
	return len(l.changed) > 0 || isAwaited && at <= now
}

// next returns the time at which a quota Workload has to be reconciled without an event.
func (l *lives) next() (at time.Duration, isAwaited bool) {
	for _, one := range l.awaited {
		if !isAwaited || one < at {
			at, isAwaited = one, true
		}
	}
	return at, isAwaited
}

// due removes and returns the quota Workloads that have to be reconciled by now.
func (l *lives) due(now time.Duration) []admission.StageKey {
	for key, at := range l.awaited {
		if at <= now {
			l.add(key)
		}
	}
	keys := slices.SortedFunc(maps.Keys(l.changed), compareKeys)
	clear(l.changed)
	for _, key := range keys {
		delete(l.awaited, key)
	}
	return keys
}

// withoutEngine does all due work that the engine need not decide.
func (s *simulation) withoutEngine() {
	for {
		for f := s.agenda.due(s.now); f != nil; f = s.agenda.due(s.now) {
			f()
		}
		if !s.lives.isDue(s.now) {
			return
		}
		for _, key := range s.lives.due(s.now) {
			if w := s.objects.workloads[key]; w != nil {
				s.live(key, w)
			}
		}
	}
}

// live reconciles a quota Workload, as the controller of quota Workloads does.
func (s *simulation) live(key admission.StageKey, w *kueue.Workload) {
	step := workloadstatus.Next(s.seen(w), &s.config.WaitForPodsReady, s.time())
	if step.Again > 0 {
		s.lives.awaited[key] = s.now + step.Again
	}
	after := w.DeepCopy()
	switch {
	case step.Deactivate:
		after.Spec.Active = new(false)
		after.Generation++
	case len(step.Drop) > 0:
		after.Status.AdmissionChecks = slices.DeleteFunc(after.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
			return slices.Contains(step.Drop, c.Name)
		})
	case step.Status == nil || !workloadstatus.Differs(w, step.Status):
		return
	default:
		after = workloadstatus.Merge(w, step.Status)
	}
	j, p := s.find(key)
	if evicted, is := step.News.(workloadstatus.EvictedNews); is && quotaworkload.HoldsQuota(w) {
		s.evict(j, p, step.Status, evicted.Eviction.FullReason()+": "+evicted.Eviction.Message)
		return
	}
	if _, is := step.News.(workloadstatus.AdmittedNews); is {
		s.say("admit %s%s", j.subject(p), details(after))
	}
	s.put(after)
	s.lead(j)
}

// seen returns the snapshot on which the next status of a quota Workload depends.
func (s *simulation) seen(w *kueue.Workload) *workloadstatus.Seen {
	seen := &workloadstatus.Seen{Workload: w}
	if w.Status.Admission != nil {
		seen.ReservedIn = s.objects.clusterQueues[string(w.Status.Admission.ClusterQueue)]
	}
	seen.LocalQueue = s.objects.localQueues[types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}]
	if seen.LocalQueue != nil {
		seen.ClusterQueue = s.objects.clusterQueues[string(seen.LocalQueue.Spec.ClusterQueue)]
	}
	return seen
}
