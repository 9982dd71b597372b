// Package ledger records a benchmark's run from a watch: which quota Workloads wait and how much quota each holds, whether any limit was
// ever exceeded, how long admissions took, and for how long quota was idle although a pending quota Workload could have used it.
package ledger

import (
	"fmt"
	"slices"
	"time"
)

// A Config describes the queues and classes. Amounts are in thousandths of a CPU.
type Config struct {
	// Trees has, for each ClusterQueue, the index of the group that it shares quota with.
	Trees []int
	// QueueLimit and TreeLimit are the most that may be used in each ClusterQueue and in each group.
	QueueLimit, TreeLimit int64
	// Classes are the kinds of quota Workloads.
	Classes []Class
	// Order defines which quota Workloads may be admitted before others.
	Order Order
	// Grace is for how long quota may be free, while a quota Workload that could use it waits, before the quota counts as idle.
	Grace time.Duration
}

// A Class describes a kind of quota Workload.
type Class struct {
	// Amount is what one of them asks for.
	Amount int64
	// Priority orders classes.
	Priority int32
}

// An Order defines which quota Workloads may be admitted before others in one ClusterQueue.
type Order int

const (
	// Overtaking allows admission of every quota Workload that fits.
	Overtaking Order = iota
	// Strict allows no admission before the pending ones of a higher class.
	Strict
)

// A Life is a quota Workload from its creation on.
type Life struct{ Queue, Class int }

// A Standing is the state of a quota Workload.
type Standing int

// The standings.
const (
	Unseen Standing = iota
	Waiting
	Holding
	Finished
)

// A Charge is the charge of a quota Workload that holds quota, and its ClusterQueue.
type Charge struct {
	Queue  int
	Amount int64
}

// A Ledger records every change in the order of the watch. It is not safe for concurrent use.
type Ledger struct {
	config Config
	lives  []account
	queues []int64
	trees  []int64
	log    [][]entry // of each tree

	admissions int
	finished   int
	latencies  [][]time.Duration // of each class
	violations []string
	end        time.Duration
}

// An account is the record of one life.
type account struct {
	life     Life
	standing Standing
	since    time.Duration
	created  time.Duration
	charge   Charge
	admitted bool // once at least
}

// An entry records that a quota Workload has stopped waiting, or that the use of quota has changed.
type entry struct {
	life   Life
	at     time.Duration
	waited bool // since
	since  time.Duration
	used   int64
}

// New returns an empty ledger of these lives.
func New(config Config, lives []Life) *Ledger {
	l := &Ledger{
		config: config, lives: make([]account, len(lives)), queues: make([]int64, len(config.Trees)),
		trees: make([]int64, slices.Max(config.Trees)+1), latencies: make([][]time.Duration, len(config.Classes)),
	}
	l.log = make([][]entry, len(l.trees))
	for i, life := range lives {
		l.lives[i].life = life
	}
	return l
}

// See records the state of one life. A charge is used only with Holding.
func (l *Ledger) See(at time.Duration, index int, standing Standing, charge Charge) {
	a := &l.lives[index]
	l.end = at
	if a.standing == Unseen {
		a.standing, a.since, a.created = Waiting, at, at
	}
	if a.standing == standing {
		return
	}
	before := a.standing
	l.leave(at, a)
	a.standing, a.since = standing, at
	switch standing {
	case Holding:
		a.charge = charge
		l.enter(at, a, charge)
	case Finished:
		l.finished++
		if before != Holding {
			l.violate("a quota Workload of class %d finished without quota at %s", a.life.Class, at)
		}
	case Waiting, Unseen:
	}
}

// leave removes the charges of a life.
func (l *Ledger) leave(at time.Duration, a *account) {
	switch a.standing {
	case Waiting:
		tree := l.config.Trees[a.life.Queue]
		l.log[tree] = append(l.log[tree], entry{life: a.life, at: at, waited: true, since: a.since})
	case Holding:
		l.use(at, a, -a.charge.Amount)
	case Unseen, Finished:
	}
}

// enter charges a life and checks the limits.
func (l *Ledger) enter(at time.Duration, a *account, charge Charge) {
	l.admissions++
	if !a.admitted {
		a.admitted = true
		l.latencies[a.life.Class] = append(l.latencies[a.life.Class], at-a.created)
	}
	if want := (Charge{a.life.Queue, l.config.Classes[a.life.Class].Amount}); charge != want {
		l.violate("a quota Workload of class %d is charged %v at %s, want %v", a.life.Class, charge, at, want)
	}
	l.use(at, a, charge.Amount)
	queue, tree := a.charge.Queue, l.config.Trees[a.charge.Queue]
	if used := l.queues[queue]; used > l.config.QueueLimit {
		l.violate("ClusterQueue %d uses %d of %d at %s", queue, used, l.config.QueueLimit, at)
	}
	if used := l.trees[tree]; used > l.config.TreeLimit {
		l.violate("cohort %d uses %d of %d at %s", tree, used, l.config.TreeLimit, at)
	}
}

func (l *Ledger) use(at time.Duration, a *account, amount int64) {
	queue := a.charge.Queue
	tree := l.config.Trees[queue]
	l.queues[queue] += amount
	l.trees[tree] += amount
	l.log[tree] = append(l.log[tree], entry{life: Life{queue, a.life.Class}, at: at, used: amount})
}

func (l *Ledger) violate(format string, args ...any) {
	l.violations = append(l.violations, fmt.Sprintf(format, args...))
}

// Standing returns the state of a life.
func (l *Ledger) Standing(index int) Standing { return l.lives[index].standing }

// Finished returns how many lives have finished.
func (l *Ledger) Finished() int { return l.finished }

// Admissions returns how often quota was admitted.
func (l *Ledger) Admissions() int { return l.admissions }

// Violations are the broken limits.
func (l *Ledger) Violations() []string { return l.violations }

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
