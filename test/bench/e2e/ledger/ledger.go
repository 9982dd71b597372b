// Package ledger records a benchmark's run from a watch: which quota Workloads wait and how much quota each holds, whether any limit was
// ever exceeded, and how long admissions took.
package ledger

import (
	"fmt"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
)

// A Life is a quota Workload from its creation on.
type Life struct {
	// Queue is the index of its ClusterQueue, and Class that of its class.
	Queue, Class int

	standing Standing
	created  time.Duration
	admitted bool // once at least
}

// A Standing is the state of a quota Workload.
type Standing int

// The standings.
const (
	Unseen Standing = iota
	Waiting
	Holding
	Finished
)

// A Charge is the charge of a quota Workload that holds quota, in thousandths of a CPU, and its ClusterQueue.
type Charge struct {
	Queue  int
	Amount int64
}

// A Ledger records every change in the order of the watch. It is not safe for concurrent use.
type Ledger struct {
	// Admissions is how often quota was admitted, and Finished how many lives have finished.
	Admissions, Finished int
	// Violations are the broken limits.
	Violations []string

	shape         *shape.Shape
	lives         []Life
	queues, trees []int64           // how much of each is used
	latencies     [][]time.Duration // of each class
}

// New returns an empty ledger of these lives.
func New(s *shape.Shape, lives []Life) *Ledger {
	return &Ledger{
		shape: s, lives: lives, queues: make([]int64, s.Queues()), trees: make([]int64, s.Cohorts), latencies: make([][]time.Duration, len(s.Classes)),
	}
}

// See records the state of one life. A charge is used only with Holding.
func (l *Ledger) See(at time.Duration, index int, standing Standing, charge Charge) {
	a := &l.lives[index]
	if a.standing == Unseen {
		a.standing, a.created = Waiting, at
	}
	if a.standing == standing {
		return
	}
	before := a.standing
	if a.standing = standing; before == Holding {
		l.use(a, -1)
	}
	switch standing {
	case Holding:
		l.admit(at, a, charge)
	case Finished:
		l.Finished++
		if before != Holding {
			l.violate("a quota Workload of class %d finished without quota at %s", a.Class, at)
		}
	case Waiting, Unseen:
	}
}

// admit charges a life what it asks for, and checks the limits.
func (l *Ledger) admit(at time.Duration, a *Life, charge Charge) {
	l.Admissions++
	if !a.admitted {
		a.admitted = true
		l.latencies[a.Class] = append(l.latencies[a.Class], at-a.created)
	}
	if want := (Charge{a.Queue, l.shape.Classes[a.Class].CPU.MilliValue()}); charge != want {
		l.violate("a quota Workload of class %d is charged %v at %s, want %v", a.Class, charge, at, want)
	}
	l.use(a, 1)
	tree, limit, treeLimit := l.shape.Tree(a.Queue), l.shape.QueueLimit(), l.shape.TreeLimit()
	if used := l.queues[a.Queue]; used > limit {
		l.violate("ClusterQueue %d uses %d of %d at %s", a.Queue, used, limit, at)
	}
	if used := l.trees[tree]; used > treeLimit {
		l.violate("cohort %d uses %d of %d at %s", tree, used, treeLimit, at)
	}
}

// use adds what a life asks for to what is used, or subtracts it.
func (l *Ledger) use(a *Life, sign int64) {
	amount := sign * l.shape.Classes[a.Class].CPU.MilliValue()
	l.queues[a.Queue] += amount
	l.trees[l.shape.Tree(a.Queue)] += amount
}

func (l *Ledger) violate(format string, args ...any) {
	l.Violations = append(l.Violations, fmt.Sprintf(format, args...))
}

// Standing returns the state of a life.
func (l *Ledger) Standing(index int) Standing { return l.lives[index].standing }

// Latencies returns, of one class and in ascending order, how long each life waited from its creation to its first admission.
func (l *Ledger) Latencies(class int) []time.Duration {
	return slices.Sorted(slices.Values(l.latencies[class]))
}

// Quantile returns the smallest of sorted values that a share q of them does not exceed, or 0 if there are none.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}
