package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// A ganging is a world of co-admitted gangs, and of other quota Workloads between them. Writes fail, gangs are evicted, and the manager is
// killed.
type ganging struct {
	*world
	groups []*gangGroup
	// left is how many groups and other quota Workloads are still to be submitted, and troubles how many more disturbances there are.
	left, troubles int
	// hasLimits is true if there are limits on what is borrowed and lent.
	hasLimits bool
}

// A gangGroup is a co-admission group of gangs.
type gangGroup struct {
	id    string
	gangs []string
	// queues and gpus are the ClusterQueue and the demand of each gang.
	queues []string
	gpus   []int
	made   int
	// wasWhole is true if all have held quota at once, so that they have started.
	wasWhole bool
}

func drawGanging(t *rapid.T) *ganging {
	config := admission.Config{FairSharing: rapid.IntRange(0, 3).Draw(t, "fair") == 0}
	config.Reservation.IsEnabled = rapid.Bool().Draw(t, "reserves") // at once
	m := &ganging{world: newWorld(t, config), left: rapid.IntRange(2, 8).Draw(t, "left"), troubles: rapid.IntRange(0, 4).Draw(t, "troubles")}
	m.hasLimits = rapid.Bool().Draw(t, "limits")
	amount := rapid.IntRange(0, 6)
	for _, name := range []string{"q", "p", "r"}[:rapid.IntRange(1, 3).Draw(t, "queues")] {
		m.queue(name, fmt.Sprintf("a: gpu=%d; b: gpu=%d", amount.Draw(t, "a"), amount.Draw(t, "b")), func(q *kueue.ClusterQueue) {
			q.Spec.QueueingStrategy = rapid.SampledFrom([]kueue.QueueingStrategy{kueue.BestEffortFIFO, kueue.StrictFIFO}).Draw(t, "strategy")
			if q.Spec.CohortName = rapid.SampledFrom([]kueue.CohortReference{"", "c"}).Draw(t, "cohort"); q.Spec.CohortName != "" && m.hasLimits {
				drawLimits(t, q)
			}
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: rapid.SampledFrom([]kueue.PreemptionPolicy{kueue.PreemptionPolicyNever, kueue.PreemptionPolicyAny}).Draw(t, "reclaim"),
				WithinClusterQueue:  rapid.SampledFrom([]kueue.PreemptionPolicy{kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority}).Draw(t, "within"),
			}
		})
	}
	return m
}

// come submits another group or another quota Workload.
func (m *ganging) come(t *rapid.T) {
	m.left--
	priority := int32(rapid.IntRange(0, 1).Draw(t, "priority"))
	if rapid.Bool().Draw(t, "alone") {
		m.important(m.drawQueue(t), fmt.Sprintf("lone%d", m.left), fmt.Sprintf("gpu=%d", rapid.IntRange(1, 6).Draw(t, "gpu")), priority)
		return
	}
	g := &gangGroup{id: fmt.Sprintf("g%d", m.left)}
	for i := range rapid.IntRange(1, 4).Draw(t, "gangs") {
		g.gangs = append(g.gangs, fmt.Sprintf("%s-%d", g.id, i))
		g.queues = append(g.queues, m.drawQueue(t))
		g.gpus = append(g.gpus, rapid.IntRange(1, 4).Draw(t, "gpu"))
	}
	m.groups = append(m.groups, g)
}

// make creates the quota Workload of the next gang of a group.
func (m *ganging) make(g *gangGroup) {
	i := g.made
	g.made++
	m.lone(g.queues[i], g.gangs[i], fmt.Sprintf("gpu=%d", g.gpus[i]), together(g.id, len(g.gangs)))
}

// decideOnGangs writes the decisions, some of them not at the first try.
func (m *ganging) decideOnGangs(t *rapid.T) int {
	decisions := m.engine.Decide(m.now())
	m.checkParts(t)
	decided, _ := m.write(t, decisions, func(d admission.Evict) { m.evict(d.Stage.Name, d.Reason) })
	m.checkQuota(t)
	for _, g := range m.groups {
		g.wasWhole = g.wasWhole || len(m.holders(g)) == len(g.gangs)
	}
	return decided
}

// holders returns the gangs of a group that hold quota, by their objects, or that have finished.
func (m *ganging) holders(g *gangGroup) []string {
	return slices.DeleteFunc(slices.Clone(g.gangs[:g.made]), func(name string) bool {
		wl := m.workloads[keyOf(name)]
		return wl.Status.Admission == nil && !isFinished(wl)
	})
}

// checkParts checks that no part of a group is charged alone, except what has been observed so.
func (m *ganging) checkParts(t *rapid.T) {
	charged := map[string]bool{}
	for _, s := range m.engine.ChargeSnapshot().Stages {
		charged[s.Key.Name] = s.ClusterQueue != ""
	}
	for _, g := range m.groups {
		n := 0
		for _, name := range g.gangs {
			if charged[name] {
				n++
			}
		}
		if n > 0 && n < len(g.gangs) && len(m.holders(g)) == 0 {
			t.Fatalf("%d of the %d gangs of %s are charged", n, len(g.gangs), g.id)
		}
	}
}

// checkAtRest checks that no group that has never been whole holds anything.
func (m *ganging) checkAtRest(t *rapid.T) {
	for _, g := range m.groups {
		if held := m.holders(g); !g.wasWhole && len(held) > 0 {
			t.Fatalf("of %v only %v hold quota: refusals %v", g.gangs, held, m.refusals)
		}
	}
}

// moves returns all that can happen next without another decision, in a fixed order.
func (m *ganging) moves(t *rapid.T) []func() {
	var moves []func()
	if m.left > 0 {
		moves = append(moves, func() { m.come(t) })
	}
	for _, g := range m.groups {
		if g.made < len(g.gangs) {
			moves = append(moves, func() { m.make(g) })
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(m.workloads), compareNames) {
		if wl := m.workloads[key]; wl.Status.Admission != nil && !isFinished(wl) {
			moves = append(moves, func() { m.change(key.Name, finish) })
			if m.troubles > 0 {
				moves = append(moves, func() {
					m.troubles--
					m.evict(key.Name, rapid.SampledFrom([]string{kueue.WorkloadEvictedByPodsReadyTimeout, kueue.WorkloadEvictedByPreemption}).Draw(t, "why"))
				})
			}
		}
	}
	if m.troubles > 0 && len(moves) > 0 {
		moves = append(moves, func() {
			m.troubles--
			m.restart()
		})
	}
	return moves
}

// isTooLarge tries all choices of flavors, and reports whether a group cannot fit even if nothing is charged.
func (m *ganging) isTooLarge(g *gangGroup) bool {
	for choice := range 1 << len(g.gangs) {
		used, nominal := map[string]int64{}, map[string]int64{}
		for name, q := range m.queues {
			for i, f := range []string{"a", "b"} {
				nominal[m.root(name)+f] += q.Spec.ResourceGroups[0].Flavors[i].Resources[0].NominalQuota.Value()
			}
		}
		fits := true
		for i, name := range g.queues {
			key := m.root(name) + string("ab"[choice>>i&1])
			used[key] += int64(g.gpus[i])
			fits = fits && used[key] <= nominal[key]
		}
		if fits {
			return false
		}
	}
	return true
}

func (m *ganging) root(queue string) string {
	if cohort := m.queues[queue].Spec.CohortName; cohort != "" {
		return "cohort " + string(cohort)
	}
	return "queue " + queue
}

// TestGangGroupsFinish: whatever happens, no part of a group holds quota alone, except what was written so by accident or after all have
// started; and in the end all that can ever fit have finished.
func TestGangGroupsFinish(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawGanging(t)
		for {
			m.comeToRest(t, m.decideOnGangs)
			m.checkAtRest(t)
			moves := m.moves(t)
			if len(moves) == 0 {
				break
			}
			for range rapid.IntRange(1, 3).Draw(t, "at once") {
				if len(moves) > 0 {
					m.clock += rapid.IntRange(0, 1).Draw(t, "later")
					moves[rapid.IntRange(0, len(moves)-1).Draw(t, "move")]()
					moves = m.moves(t)
				}
			}
		}
		for _, g := range m.groups {
			r := m.refusals[keyOf(g.gangs[0])]
			never := r.Reason == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota
			if !m.hasLimits && never != m.isTooLarge(g) {
				t.Fatalf("%s (%v gpus in %v): %s", g.id, g.gpus, g.queues, r)
			}
			if !never && len(m.holders(g)) < len(g.gangs) {
				t.Fatalf("%s (%v gpus in %v) waits forever: %v", g.id, g.gpus, g.queues, m.refusals)
			}
		}
	})
}
