package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// onTheWay is how long a decision may take to be written that was made before the manager observed a change of quota.
const onTheWay = 5 * time.Second

// A world is the set of specifications of all queues between two changes of them.
type world struct {
	ledger.Quotas
	// from is when it began. It has ended for the manager when the manager has reported that it knows the next state.
	from    uint64
	changed *kueue.ClusterQueue // that ends it, or nil
	ended   time.Time
}

func newWorld() *world {
	return &world{Quotas: ledger.Quotas{ClusterQueues: map[string]*kueue.ClusterQueue{}, Cohorts: map[string]*kueue.Cohort{}}}
}

// next begins a new world.
func (a *Auditor) next(now moment) (old, begun *world) {
	old = a.worlds[len(a.worlds)-1]
	begun = &world{Quotas: ledger.Quotas{ClusterQueues: maps.Clone(old.ClusterQueues), Cohorts: maps.Clone(old.Cohorts)}, from: now.earliest}
	a.worlds = append(a.worlds, begun)
	return old, begun
}

// seeCohort records a Cohort. No status reports when the manager has observed it, so it counts as observed at once.
func (a *Auditor) seeCohort(c *kueue.Cohort, now moment) {
	known := a.worlds[len(a.worlds)-1].Cohorts[c.Name]
	if known != nil && known.UID == c.UID && known.Generation == c.Generation {
		return
	}
	old, begun := a.next(now)
	old.ended, begun.Cohorts[c.Name] = time.Now(), c
}

func (a *Auditor) seeClusterQueue(q *kueue.ClusterQueue, now moment) {
	if active := apimeta.FindStatusCondition(q.Status.Conditions, kueue.ClusterQueueActive); active != nil {
		a.acknowledge(q, active.ObservedGeneration)
	}
	known := a.worlds[len(a.worlds)-1].ClusterQueues[q.Name]
	if known != nil && known.UID == q.UID && known.Generation == q.Generation {
		return
	}
	old, begun := a.next(now)
	old.changed, begun.ClusterQueues[q.Name] = q, q
}

// acknowledge ends the worlds before a generation of a ClusterQueue that the manager has observed.
func (a *Auditor) acknowledge(q *kueue.ClusterQueue, generation int64) {
	for _, w := range a.worlds {
		if w.ended.IsZero() && w.changed != nil && w.changed.UID == q.UID && w.changed.Generation <= generation {
			w.ended = time.Now()
		}
	}
}

// checkQuota checks I1 for the queue of a quota Workload that has just reserved, and for the Cohorts above it.
func (a *Auditor) checkQuota(newcomer *holder, now moment) {
	for key := range newcomer.usage {
		usage := map[string]int64{}
		for _, h := range a.holders {
			if amount := h.usage[key]; amount != 0 {
				usage[h.queue] += amount
			}
		}
		if a.worlds[len(a.worlds)-1].excess(newcomer.queue, key, usage) != "" {
			a.suspects = append(a.suspects, suspect{
				newcomer: newcomer.name, queue: newcomer.queue, key: key, usage: usage, at: now, seen: time.Now(), isOfKueue: newcomer.isOfKueue, held: a.describe(key),
			})
		}
	}
}

// breaches returns the suspects that exceed every world that the manager could have observed. These worlds are certain only now: each kind
// has a watch of its own.
func (a *Auditor) breaches() []string {
	var found []string
	for i := range a.suspects {
		s := &a.suspects[i]
		why, knowsAll := "", a.knowsAllQueues(s)
		isAllowed := slices.ContainsFunc(a.worlds, func(w *world) bool {
			if w.from > s.at.latest || !w.ended.IsZero() && s.seen.Sub(w.ended) > onTheWay {
				return false
			}
			why = w.excess(s.queue, s.key, s.usage)
			return why == "" || !knowsAll && w.withoutBorrowers(s).excess(s.queue, s.key, s.usage) == ""
		})
		if !isAllowed {
			found = append(found, fmt.Sprintf("I1: at %d (%s), with %s, %s: %s", s.at.latest, s.seen.Format(time.RFC3339Nano), s.newcomer, why, strings.Join(s.held, "; ")))
		}
	}
	return found
}

// excess describes what has reserved more than it may, on the path up from a ClusterQueue. It is empty if nothing has.
func (w *world) excess(queue string, key quota.FlavorResource, usage map[string]int64) string {
	if w.ClusterQueues[queue] == nil {
		return fmt.Sprintf("there is no ClusterQueue %s", queue)
	}
	if e := w.Exceeded(queue, key, usage); e != nil {
		return fmt.Sprintf("%s %s has reserved %d of %d thousandths of %s of flavor %s", e.Kind, e.Name, e.Reserved, e.Limit, key.Resource, key.Flavor)
	}
	return ""
}
