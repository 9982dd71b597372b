package forecast

import (
	"cmp"
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/queue/ranking"
)

// writtenWithin is how long after its publication an answer counts that the JobSet does not have yet. The controller of JobSets writes conditions within
// ten seconds, unless the stage is admitted meanwhile. Then it must not get this answer when it waits again.
const writtenWithin = 30 * time.Second

// A Board has the answers that the conditions of JobSets are to contain. What is written is kept in the JobSets alone, so that it survives a restart
// of the manager. Its methods may be called from any goroutine.
type Board struct {
	cache    client.Reader
	interval time.Duration
	limiter  flowcontrol.RateLimiter
	metrics  *metrics.Metrics
	changes  chan event.GenericEvent
	wake     chan struct{}

	mu sync.Mutex
	// proposals are the answers that wait for their publication, those that start first in front.
	proposals map[types.UID]*proposal
	order     ranking.Ranking[*proposal]
	// published are the answers that the JobSets do not have yet, and at has when an answer to each JobSet was last published or seen to be written.
	published map[types.UID]publication
	at        map[types.UID]time.Time
	// completeSince is the time of the objects since which each part was predicted, or zero if one was not predicted yet.
	completeSince time.Time
}

// A publication is an answer that is about to be written.
type publication struct {
	expected *jobsetstatus.ExpectedStart
	at       time.Time
}

// A proposal is an answer that differs from what is written.
type proposal struct {
	Answer
	place int
}

// Precedes implements ranking.Member: answers with a start come before others, the first start and the first position in front.
func (p *proposal) Precedes(other *proposal) bool {
	a, isKnown := startOf(p.Expected)
	b, isOtherKnown := startOf(other.Expected)
	if isKnown != isOtherKnown {
		return isKnown
	}
	return cmp.Or(a.Compare(b), cmp.Compare(p.Expected.Position, other.Expected.Position), cmp.Compare(p.UID, other.UID)) < 0
}

// Place implements ranking.Member.
func (p *proposal) Place() *int { return &p.place }

func newBoard(cache client.Reader, interval time.Duration, writesPerSecond int, m *metrics.Metrics) *Board {
	return &Board{
		cache: cache, interval: interval, limiter: flowcontrol.NewTokenBucketRateLimiter(float32(writesPerSecond), 1), metrics: m,
		changes: make(chan event.GenericEvent), wake: make(chan struct{}, 1),
		proposals: map[types.UID]*proposal{}, published: map[types.UID]publication{}, at: map[types.UID]time.Time{},
	}
}

// NeedLeaderElection returns true: only the leader writes.
func (b *Board) NeedLeaderElection() bool { return true }

// Changes returns a channel that has an event for each JobSet with a new answer.
func (b *Board) Changes() <-chan event.GenericEvent { return b.changes }

// ExpectedStart returns the answer that the condition of a JobSet is to contain while the stage waits: a new one, or the one that it has. It
// returns nil if there is none.
func (b *Board) ExpectedStart(js *jobsetapi.JobSet) *jobsetstatus.ExpectedStart {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.expectedStart(js, time.Now())
}

func (b *Board) expectedStart(js *jobsetapi.JobSet, now time.Time) *jobsetstatus.ExpectedStart {
	p, isPublished := b.published[js.UID]
	if !isPublished {
		return b.written(js, now)
	}
	isWritten := jobsetstatus.Has(js.Status.Conditions, p.expected.Condition(js))
	if isWritten {
		b.at[js.UID] = now
	}
	if isWritten || now.Sub(p.at) > writtenWithin {
		delete(b.published, js.UID)
		return b.written(js, now)
	}
	return p.expected
}

// written returns the answer that a JobSet has. It returns nil if that has a start that has passed, and each part was predicted since, but there is no
// other answer: then predictions no longer cover the JobSet.
func (b *Board) written(js *jobsetapi.JobSet, now time.Time) *jobsetstatus.ExpectedStart {
	e := jobsetstatus.ExpectedStartOf(js)
	if e == nil || !e.Computed.Before(b.completeSince) || b.proposals[js.UID] != nil || !hasPassed(e.By, now) && !hasPassed(e.About, now) {
		return e
	}
	if at, wasWritten := b.at[js.UID]; wasWritten && now.Sub(at) < b.interval {
		return e // another answer may wait for the interval to end
	}
	return nil
}

func hasPassed(start, now time.Time) bool { return !start.IsZero() && start.Before(now) }

// propose takes the answers about all JobSets of some queues that wait. Those that hardly differ from what is written are dropped, and so are those
// about JobSets that got another one within the interval: the next prediction proposes them again.
func (b *Board) propose(ctx context.Context, all []Answer, now time.Time) {
	for _, a := range all {
		var js jobsetapi.JobSet
		// None of them is changed.
		if b.cache.Get(ctx, a.JobSet, &js, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}) == nil && js.UID == a.UID {
			b.consider(a, &js, now)
		}
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// consider proposes an answer, or withdraws an earlier one.
func (b *Board) consider(a Answer, js *jobsetapi.JobSet, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.proposals[a.UID]
	if at, wasWritten := b.at[a.UID]; wasWritten && now.Sub(at) < b.interval || !a.Expected.Differs(b.expectedStart(js, now)) {
		if before != nil {
			b.drop(before)
		}
		return
	}
	if before == nil {
		before = &proposal{Answer: a}
		b.proposals[a.UID] = before
		b.order.Push(before)
		return
	}
	before.Answer = a
	b.order.Fix(before)
}

func (b *Board) drop(p *proposal) {
	b.order.Drop(p)
	delete(b.proposals, p.UID)
}

// setCompleteSince sets since when each part was predicted, or zero if one never was.
func (b *Board) setCompleteSince(since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.completeSince = since
}

// forget drops what is no longer needed: answers that were proposed or published long ago, and times that no longer prevent a write.
func (b *Board) forget(now, proposedBefore time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, at := range b.at {
		if now.Sub(at) >= b.interval {
			delete(b.at, uid)
		}
	}
	for uid, p := range b.published {
		if now.Sub(p.at) > writtenWithin {
			delete(b.published, uid)
		}
	}
	for _, p := range b.proposals {
		if p.Expected.Computed.Before(proposedBefore) {
			b.drop(p)
		}
	}
}

// Start publishes answers until the context ends.
func (b *Board) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		}
		for b.hasProposals() {
			if b.limiter.Wait(ctx) != nil {
				return nil //nolint:nilerr // the context has ended
			}
			key, isNew := b.publish(time.Now())
			if !isNew {
				continue
			}
			b.metrics.ExpectedStartPublished()
			select {
			case b.changes <- event.GenericEvent{Object: &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func (b *Board) hasProposals() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.order.Len() > 0
}

// publish publishes the first answer that is proposed.
func (b *Board) publish(now time.Time) (jobSet types.NamespacedName, isNew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.order.Len() == 0 {
		return jobSet, false
	}
	p := b.order.First()
	b.drop(p)
	b.published[p.UID], b.at[p.UID] = publication{p.Expected, now}, now
	return p.JobSet, true
}
