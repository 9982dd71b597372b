package engine

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
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

// A backlog has the refusals that are not written yet: of each stage only the newest, with the time from which it may be written.
type backlog struct {
	settleAfter time.Duration
	queue       workqueue.TypedDelayingInterface[admission.StageKey]

	mu      sync.Mutex
	refused map[admission.StageKey]*unwritten
}

// An unwritten is the newest refusal of a stage.
type unwritten struct {
	refuse *admission.Refuse
	// first is when there was first something to write, since when the refusal has had its reason.
	first, since time.Time
	// notBefore is the time before which the refusal is not written, if only its amounts differ from what is written.
	notBefore time.Time
}

func newBacklog(settleAfter time.Duration) *backlog {
	return &backlog{
		settleAfter: settleAfter,
		queue:       workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[admission.StageKey]{Name: "tranche-refusals"}),
		refused:     map[admission.StageKey]*unwritten{},
	}
}

// add accepts a refusal, which replaces an earlier one of the stage.
func (b *backlog) add(d *admission.Refuse, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.refused[d.Stage]
	if u == nil {
		u = &unwritten{first: now, since: now}
		b.refused[d.Stage] = u
	} else if !differsInAmounts(u.refuse.Refusal.Wait(), d.Refusal.Wait()) {
		u.since = now
	}
	u.refuse = d
	b.queue.AddAfter(d.Stage, b.settleAfter)
}

// drop forgets the refusal of a stage.
func (b *backlog) drop(key admission.StageKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.refused, key)
}

// take removes the refusal of a stage and returns it, if it may be written.
func (b *backlog) take(key admission.StageKey, now time.Time) *unwritten {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.refused[key]
	if u == nil {
		return nil
	}
	settled := u.since.Add(b.settleAfter)
	if latest := u.first.Add(longestSettling * b.settleAfter); latest.Before(settled) {
		settled = latest
	}
	if wait := settled.Sub(now); wait > 0 {
		b.queue.AddAfter(key, wait)
		return nil
	}
	delete(b.refused, key)
	return u
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
	b.putBack(u, u.notBefore.Sub(now))
	return false
}

// putBack lets a refusal that was taken come back after a delay, unless there is a newer one of the stage by then.
func (b *backlog) putBack(u *unwritten, delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := u.refuse.Stage
	if newer := b.refused[key]; newer != nil {
		newer.notBefore = u.notBefore
		return
	}
	b.refused[key] = u
	b.queue.AddAfter(key, delay)
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
