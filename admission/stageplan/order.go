package stageplan

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Hold is quota that a stage releases at one time: that of its ReplicatedJobs on whose success the same later stages depend. A stage has
// several Holds only if a later stage waits for some of its ReplicatedJobs to succeed and not for the others: their quota is released when these
// have succeeded, while the stage still holds the rest.
type Hold struct {
	// Stage is the index of the stage.
	Stage int
	// PodSets are indexes into the PodSets of the stage.
	PodSets []int
}

// Holds returns the Holds of all stages, in the order of Stages and then of their first pod sets. Each stage has at least one.
func (p *Plan) Holds() []Hold {
	succeeded := p.succeeded()
	var holds []Hold
	for s := range p.Stages {
		first := len(holds)
		for podSet := range p.Stages[s].PodSets {
			sameLater := func(h Hold) bool { return p.sameLater(succeeded, s, h.PodSets[0], podSet) }
			if h := slices.IndexFunc(holds[first:], sameLater); h >= 0 {
				holds[first+h].PodSets = append(holds[first+h].PodSets, podSet)
				continue
			}
			holds = append(holds, Hold{Stage: s, PodSets: []int{podSet}})
		}
		if len(holds) == first {
			holds = append(holds, Hold{Stage: s})
		}
	}
	return holds
}

// sameLater reports whether two ReplicatedJobs of a stage have the same dependents: the stages that can only open after they have succeeded.
func (p *Plan) sameLater(succeeded [][]uint64, stage, one, other int) bool {
	for b := range p.Stages {
		if bits := succeeded[b][stage]; bits>>one&1 != bits>>other&1 {
			return false
		}
	}
	return true
}

// Precedence reports, for each pair of these Holds of the plan, whether the quota of the first is released before the stage of the second can open.
func (p *Plan) Precedence(holds []Hold) [][]bool {
	succeeded := p.succeeded()
	before := make([][]bool, len(holds))
	for a, earlier := range holds {
		before[a] = make([]bool, len(holds))
		for b, later := range holds {
			before[a][b] = len(earlier.PodSets) > 0 && succeeded[later.Stage][earlier.Stage]>>earlier.PodSets[0]&1 == 1
		}
	}
	return before
}

// finishedBefore reports, for all stages a and then b, whether b can only open after a has finished, that is, after every ReplicatedJob of a has
// succeeded. The conditions on the way to b count together: if b waits for a part of a, and another stage that b waits for waited
// for the rest, then a has finished. A condition Ready finishes no stage, nor does Succeeded of a part. It is a strict partial order.
func (p *Plan) finishedBefore() [][]bool {
	succeeded := p.succeeded()
	before := make([][]bool, len(p.Stages))
	for a := range p.Stages {
		before[a] = make([]bool, len(p.Stages))
		jobs := len(p.Stages[a].ReplicatedJobs)
		for b := range p.Stages {
			before[a][b] = jobs > 0 && succeeded[b][a] == 1<<jobs-1
		}
	}
	return before
}

// succeeded returns, for each stage b and then each stage a, which ReplicatedJobs of a have succeeded whenever b is open: bit i for the i-th of
// them. MaxReplicatedJobs is less than 64.
func (p *Plan) succeeded() [][]uint64 {
	rows := make([][]uint64, len(p.Stages))
	for b := range p.Stages {
		row := make([]uint64, len(p.Stages))
		for _, c := range p.Stages[b].After {
			// Either status implies that the stage of the condition has opened, and so all that this implies in turn.
			for a, bits := range rows[c.Stage] {
				row[a] |= bits
			}
			if c.Status == Succeeded {
				row[c.Stage] |= p.Stages[c.Stage].bits(c.Targets)
			}
		}
		rows[b] = row
	}
	return rows
}

func (s *Stage) bits(targets []string) uint64 {
	var bits uint64
	for i, job := range s.ReplicatedJobs {
		if slices.Contains(targets, job) {
			bits |= 1 << i
		}
	}
	return bits
}

// HoldSegments divides the stages into runs between which the JobSet holds nothing: when a stage of one run opens, all stages of the
// runs before it have finished. No run could be divided further, so policy Reserve must reserve the peak of each at once.
//
// `a -Ready-> b -Succeeded-> c` is one run, not two: no stage waits until a has finished, so it may run beside c.
//
// In a plan of any form, join two stages when neither finishes before the other. Of two stages that are not connected by such
// joins, one finishes before the other, and so does everything connected with it; hence the connected parts come one after the
// other, and since a stage comes after those that finish before it, each is a run of neighbours in Stages.
func (p *Plan) HoldSegments() [][]int {
	before := p.finishedBefore()
	var segments [][]int
	var segment []int
	for s := range p.Stages {
		if s > 0 && cutAt(before, s) {
			segments = append(segments, segment)
			segment = nil
		}
		segment = append(segment, s)
	}
	if segment != nil {
		segments = append(segments, segment)
	}
	return segments
}

// cutAt reports whether every stage below s finishes before every other.
func cutAt(before [][]bool, s int) bool {
	for a := range s {
		if slices.Contains(before[a][s:], false) {
			return false
		}
	}
	return true
}

// MostAtOnce returns the most that a JobSet may hold at once when each of some Holds with this Precedence has the given amount from when its stage
// opens until its ReplicatedJobs have succeeded. Amounts below zero count as zero. If the sum of all does not fit, it returns quota.MaxAmount.
//
// Holds that exist at the same time are an antichain of Precedence: none is released before another begins. The heaviest antichain is
// reached: let only those ReplicatedJobs succeed that must for its stages to open.
//
// By Dilworth's theorem the heaviest antichain weighs as much as the fewest chains that cover each Hold as often as its weight
// says; those are all the copies less the most that can be matched, each to a copy of a later Hold (D. R. Fulkerson, Note on
// Dilworth's decomposition theorem for partially ordered sets, Proc. Amer. Math. Soc. 7, 1956). Copies are counted, not listed:
// the matching is a maximum flow. Holds without an amount cost nothing.
func MostAtOnce(before [][]bool, amounts []quota.Amount) quota.Amount {
	var weights []quota.Amount
	var holds []int
	for h, a := range amounts {
		if a > 0 {
			weights, holds = append(weights, a), append(holds, h)
		}
	}
	sum := total(weights)
	if sum == quota.MaxAmount {
		return sum
	}
	among := make([][]bool, len(holds))
	for i, a := range holds {
		among[i] = make([]bool, len(holds))
		for k, b := range holds {
			among[i][k] = before[a][b]
		}
	}
	m := newMatching(among, weights)
	for found := m.augment(); found > 0; found = m.augment() {
		sum -= found
	}
	return sum
}

// A matching assigns copies of Holds to copies of later Holds. It grows along shortest augmenting paths (J. Edmonds and
// R. M. Karp, Theoretical improvements in algorithmic efficiency for network flow problems, J. ACM 19, 1972), so that the number
// of paths does not depend on the weights.
type matching struct {
	before [][]bool
	// earlier and later count the copies of each Hold that are not assigned yet to a later, or from an earlier one.
	earlier, later []quota.Amount
	// assigned counts copies from the first Hold to the second.
	assigned [][]quota.Amount
}

func newMatching(before [][]bool, weights []quota.Amount) *matching {
	m := &matching{before: before, earlier: slices.Clone(weights), later: slices.Clone(weights)}
	for range weights {
		m.assigned = append(m.assigned, make([]quota.Amount, len(weights)))
	}
	return m
}

// augment assigns more copies along one shortest path, and returns how many: zero if the matching is maximal.
func (m *matching) augment() quota.Amount {
	n := len(m.earlier)
	// Nodes below n are Holds as the earlier of a pair, the others as the later. A path begins at a node that is its own parent.
	parent := make([]int, 2*n)
	var queue []int
	for s := range parent {
		parent[s] = -1
		if s < n && m.earlier[s] > 0 {
			parent[s] = s
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		if node >= n && m.later[node-n] > 0 {
			return m.assign(parent, node)
		}
		for next := range parent {
			if parent[next] < 0 && m.leads(node, next) {
				parent[next] = node
				queue = append(queue, next)
			}
		}
	}
	return 0
}

// leads reports whether a path may continue from one node to another: forwards to any later Hold, backwards where assigned copies can be
// unassigned.
func (m *matching) leads(from, to int) bool {
	n := len(m.earlier)
	switch {
	case from < n && to >= n:
		return m.before[from][to-n]
	case from >= n && to < n:
		return m.assigned[to][from-n] > 0
	default:
		return false
	}
}

// assign assigns as many copies as fit on the path that ends at a node.
func (m *matching) assign(parent []int, end int) quota.Amount {
	n := len(m.earlier)
	room := m.later[end-n]
	node := end
	for ; parent[node] != node; node = parent[node] {
		if node < n {
			room = min(room, m.assigned[node][parent[node]-n])
		}
	}
	room = min(room, m.earlier[node])
	m.earlier[node] -= room
	m.later[end-n] -= room
	for node = end; parent[node] != node; node = parent[node] {
		if node < n {
			m.assigned[node][parent[node]-n] -= room
		} else {
			m.assigned[parent[node]][node-n] += room
		}
	}
	return room
}
