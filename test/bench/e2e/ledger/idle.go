package ledger

import (
	"cmp"
	"slices"
	"time"
)

// An Idleness describes for how long quota was idle.
type Idleness struct {
	// Share is the mean over all groups of ClusterQueues of the share of time in which quota of theirs lay idle.
	Share float64
	// Longest is the longest time without interruption in which quota of one group lay idle.
	Longest time.Duration
}

// Idle computes how much quota lay idle from the beginning to the last entry.
//
// Quota of a group is idle at an instant if one of its ClusterQueues has a quota Workload that has waited for longer than the grace and
// would fit even into less than the free quota: without the quota released in the ClusterQueue, and in the group, within the grace before.
// With the order Strict only pending Workloads of the highest class in the ClusterQueue count.
//
// So quota that is admitted again within the grace is never idle.
func (l *Ledger) Idle() Idleness {
	var sum time.Duration
	var idleness Idleness
	for tree := range l.trees {
		total, longest := l.sweep(tree)
		sum += total
		idleness.Longest = max(idleness.Longest, longest)
	}
	if l.end > 0 {
		idleness.Share = float64(sum) / float64(l.end) / float64(len(l.trees))
	}
	return idleness
}

// A step changes what a sweep looks at.
type step struct {
	at time.Duration
	do func(*group)
}

// A group is the state of a sweep over the time of one tree.
type group struct {
	used, fresh  int64
	queueUsed    map[int]int64
	queueFresh   map[int]int64
	waiting, due map[Life]int // due are those that have waited for longer than the grace
}

// steps turns the log of a tree into events, including those that happen only because time passes.
func (l *Ledger) steps(tree int) []step {
	grace := l.config.Grace
	var steps []step
	add := func(at time.Duration, do func(*group)) { steps = append(steps, step{at, do}) }
	wait := func(life Life, from, to time.Duration) {
		add(from, func(g *group) { g.waiting[life]++ })
		add(to, func(g *group) { g.waiting[life]-- })
		if to-from > grace {
			add(from+grace, func(g *group) { g.due[life]++ })
			add(to, func(g *group) { g.due[life]-- })
		}
	}
	for _, e := range l.log[tree] {
		if e.waited {
			wait(e.life, e.since, e.at)
			continue
		}
		add(e.at, func(g *group) {
			g.used += e.used
			g.queueUsed[e.life.Queue] += e.used
		})
		if freed := -e.used; freed > 0 {
			add(e.at, func(g *group) { g.free(e.life.Queue, freed) })
			add(e.at+grace, func(g *group) { g.free(e.life.Queue, -freed) })
		}
	}
	for i := range l.lives {
		if a := &l.lives[i]; a.standing == Waiting && l.config.Trees[a.life.Queue] == tree {
			wait(a.life, a.since, l.end)
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}

func (g *group) free(queue int, amount int64) {
	g.fresh += amount
	g.queueFresh[queue] += amount
}

// sweep goes through the time of one tree and adds up when quota lay idle.
func (l *Ledger) sweep(tree int) (total, longest time.Duration) {
	g := &group{queueUsed: map[int]int64{}, queueFresh: map[int]int64{}, waiting: map[Life]int{}, due: map[Life]int{}}
	steps := l.steps(tree)
	idle, since := false, time.Duration(0)
	for i := 0; i < len(steps); {
		at := steps[i].at
		for ; i < len(steps) && steps[i].at == at; i++ {
			steps[i].do(g)
		}
		now := l.isIdle(g, tree)
		switch {
		case now && !idle:
			since = at
		case !now && idle:
			total += at - since
			longest = max(longest, at-since)
		}
		idle = now
	}
	return total, longest
}

func (l *Ledger) isIdle(g *group, tree int) bool {
	for queue := range l.config.Trees {
		if l.config.Trees[queue] != tree {
			continue
		}
		free := min(l.config.TreeLimit-g.used-g.fresh, l.config.QueueLimit-g.queueUsed[queue]-g.queueFresh[queue])
		if free <= 0 {
			continue
		}
		for class := range l.config.Classes {
			if g.due[Life{queue, class}] > 0 && l.config.Classes[class].Amount <= free && l.mayGo(g, queue, class) {
				return true
			}
		}
	}
	return false
}

// mayGo reports whether the order allows Workloads of a class to be admitted while others wait.
func (l *Ledger) mayGo(g *group, queue, class int) bool {
	if l.config.Order == Overtaking {
		return true
	}
	for other := range l.config.Classes {
		if l.config.Classes[other].Priority > l.config.Classes[class].Priority && g.waiting[Life{queue, other}] > 0 {
			return false
		}
	}
	return true
}
