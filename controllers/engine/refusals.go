package engine

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/queue/ranking"
)

// No accelerator is idle because a refusal is not written yet. So a refusal is written when its reason has stood for a while, changed amounts
// are written rarely, and the rate of all refusals is limited.
const (
	amountsEvery = time.Minute
	// longestSettling is after how many times the usual delay a refusal is written although its reasons change.
	longestSettling = 10

	refusalsPerSecond = 50
	refusalBurst      = 50
	// refusalsForOther is by how many fewer refusals are written for each other decision: an admission lets the API server do more than one write.
	refusalsForOther = 2
	// fewestRefusals is how many refusals are written in a second although other decisions are.
	fewestRefusals = 1
	// spendingWindow is the time over which the rate of other decisions is averaged, in seconds.
	spendingWindow = 5
)

// A backlog has the refusals that are not written yet: of each stage only the newest, in the order in which they may be written. It is safe for concurrent
// use, by one writer. With a hundred thousand stages that wait, it has as many refusals for half an hour, so it keeps little for each.
type backlog struct {
	settleAfter time.Duration

	mu      sync.Mutex
	refused map[admission.StageKey]*unwritten
	byTime  ranking.Ranking[*unwritten]
	// earlier has a value when a refusal has become the first one, so that the writer must not sleep longer.
	earlier chan struct{}
}

// An unwritten is the newest refusal of a stage.
type unwritten struct {
	refuse admission.Refuse
	// first is when there was first something to write, and due is from when on it is written.
	first, due time.Time
	// notBefore is the time before which the refusal is not written, if only its amounts differ from what is written.
	notBefore time.Time
	index     int
}

// Precedes is for package ranking.
func (u *unwritten) Precedes(other *unwritten) bool { return u.due.Before(other.due) }

// Place is for package ranking.
func (u *unwritten) Place() *int { return &u.index }

func newBacklog(settleAfter time.Duration) *backlog {
	return &backlog{settleAfter: settleAfter, refused: map[admission.StageKey]*unwritten{}, earlier: make(chan struct{}, 1)}
}

// add accepts a refusal, which replaces an earlier one of the stage.
func (b *backlog) add(d *admission.Refuse, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	settled := now.Add(b.settleAfter)
	u := b.refused[d.Stage]
	if u == nil {
		b.put(&unwritten{refuse: *d, first: now, due: settled})
		return
	}
	if latest := u.first.Add(longestSettling * b.settleAfter); latest.Before(settled) {
		settled = latest
	}
	if settled.Before(u.due) || !differsInAmounts(u.refuse.Refusal.Wait(), d.Refusal.Wait()) {
		u.due = settled
		b.byTime.Fix(u)
		b.announce(u)
	}
	u.refuse = *d
}

// put adds the refusal of a stage that has none.
func (b *backlog) put(u *unwritten) {
	b.refused[u.refuse.Stage] = u
	b.byTime.Push(u)
	b.announce(u)
}

// announce wakes the writer if a refusal is the first one.
func (b *backlog) announce(u *unwritten) {
	if b.byTime.First() == u {
		select {
		case b.earlier <- struct{}{}:
		default:
		}
	}
}

// drop forgets the refusal of a stage.
func (b *backlog) drop(key admission.StageKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u := b.refused[key]; u != nil {
		b.remove(u)
	}
}

func (b *backlog) remove(u *unwritten) {
	delete(b.refused, u.refuse.Stage)
	b.byTime.Drop(u)
}

// next removes and returns the first refusal as soon as it may be written, or nil if the context ends.
func (b *backlog) next(ctx context.Context) *unwritten {
	for ctx.Err() == nil {
		u, wait := b.take(time.Now())
		if u != nil {
			return u
		}
		timer := time.NewTimer(wait)
		select {
		case <-b.earlier:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// take removes and returns the first refusal, if it may be written now. Otherwise it returns how long to wait, unless another one is announced.
func (b *backlog) take(now time.Time) (*unwritten, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byTime.Len() == 0 {
		return nil, time.Hour
	}
	u := b.byTime.First()
	if wait := u.due.Sub(now); wait > 0 {
		return nil, wait
	}
	b.remove(u)
	return u, 0
}

// mayWrite reports whether a refusal that was taken is written over another one now. If only amounts differ, it comes back later.
func (b *backlog) mayWrite(u *unwritten, written *quotaworkload.Wait, now time.Time) bool {
	if written == nil || !differsInAmounts(*written, u.refuse.Refusal.Wait()) {
		return true
	}
	if u.notBefore.IsZero() {
		u.notBefore = now.Add(amountsEvery)
	}
	if !now.Before(u.notBefore) {
		return true
	}
	b.putBack(u, now, u.notBefore.Sub(now))
	return false
}

// putBack lets a refusal that was taken come back after a delay, unless there is a newer one of the stage by then. Another reason then has to settle, too.
func (b *backlog) putBack(u *unwritten, now time.Time, delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if newer := b.refused[u.refuse.Stage]; newer != nil {
		newer.notBefore = u.notBefore
		return
	}
	u.due = now.Add(delay)
	u.first = u.due
	b.put(u)
}

// differsInAmounts reports whether two refusals have the same reason, and messages that differ only in numbers, if at all. That of another flavor differs
// in its name.
func differsInAmounts(a, b quotaworkload.Wait) bool {
	return a.Reason == b.Reason && workloadstatus.WithoutAmounts(a.Message) == workloadstatus.WithoutAmounts(b.Message)
}

// A budget limits the rate of refusals to what other decisions leave of it.
type budget struct {
	limiter *rate.Limiter

	mu    sync.Mutex
	spent float64 // other decisions a second, on average
	at    time.Time
}

func newBudget() *budget { return &budget{limiter: rate.NewLimiter(refusalsPerSecond, refusalBurst)} }

// spend records that another decision is written.
func (b *budget) spend(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.decay(now)
	b.spent += 1.0 / spendingWindow
	b.limiter.SetLimitAt(now, b.limit())
}

// wait returns when the next refusal may be written, or with an error if the context ends.
func (b *budget) wait(ctx context.Context, now time.Time) error {
	b.mu.Lock()
	b.decay(now)
	b.limiter.SetLimitAt(now, b.limit())
	b.mu.Unlock()
	return b.limiter.Wait(ctx)
}

// decay lets the average fall until now.
func (b *budget) decay(now time.Time) {
	b.spent *= math.Exp(-now.Sub(b.at).Seconds() / spendingWindow)
	b.at = now
}

func (b *budget) limit() rate.Limit {
	return rate.Limit(max(refusalsPerSecond-refusalsForOther*b.spent, fewestRefusals))
}
