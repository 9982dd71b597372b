package preempt

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue/ranking"
)

// A Finder finds victims in a Tree. It changes the Tree only inside WhatIf.
type Finder struct {
	History *History
	// LeastWork is true if, at equal priority, the Holder that loses the least work is preempted first. Then each search sorts.
	LeastWork bool

	tree       *quota.Tree
	meter      *fairshare.Meter
	strategies []Strategy
	queues     map[*quota.Node]*Queue
	// over has the children of Cohorts that use more than their own quota, in one state of the Tree.
	over   map[cohortResource][]*quota.Node
	overIn quota.State
	// Memory for reuse.
	heap             ranking.Ranking[*candidateStream]
	candidateStreams []candidateStream
	cursors          []cursor
	shareTree        shareTree
	memory           []shareNode
	// retryAt is the earliest time for Result.RetryAt.
	retryAt time.Time
}

// NewFinder returns a Finder of classic preemption if there are no strategies, else one of fair sharing.
func NewFinder(tree *quota.Tree, strategies ...Strategy) *Finder {
	return &Finder{
		History: NewHistory(), tree: tree, meter: fairshare.NewMeter(tree), strategies: strategies, queues: map[*quota.Node]*Queue{},
		over: map[cohortResource][]*quota.Node{},
	}
}

// Queue returns the Queue of a ClusterQueue, and creates it if there is none.
func (f *Finder) Queue(n *quota.Node) *Queue {
	q := f.queues[n]
	if q == nil {
		q = &Queue{node: n}
		f.queues[n] = q
	}
	return q
}

// Drop removes the Queue of a ClusterQueue, which must be empty.
func (f *Finder) Drop(n *quota.Node) { delete(f.queues, n) }

// Find returns the victims without which a request fits.
func (f *Finder) Find(r Request) Result {
	f.retryAt = time.Time{}
	result := f.findWithPeak(r)
	if result.Outcome != Found && result.Outcome != Fits && result.Outcome != EvictionsPending {
		result.RetryAt = f.retryAt
	}
	return result
}

// findWithPeak counts the peaks of the request.
func (f *Finder) findWithPeak(r Request) Result {
	result := f.find(r)
	if r.Peaks == nil || !result.takesFromOthers() || f.peakCanBeHad(&r) {
		return result
	}
	r.staysIn = true
	if result = f.find(r); result.Outcome != Found {
		return Result{Outcome: PeakTooLarge}
	}
	return result
}

// takesFromOthers reports whether Holders of other Queues than that of the request have to leave.
func (r *Result) takesFromOthers() bool {
	return slices.ContainsFunc(r.Victims, func(v Victim) bool { return v.Reason != kueue.InClusterQueueReason })
}

// peakCanBeHad reports whether one of the peaks could be obtained now. If not, the JobSet would hold its first stage and wait for more than it
// has a right to, and the victims could reclaim what was taken from them in the same way.
func (f *Finder) peakCanBeHad(r *Request) bool {
	peaks := r.Peaks()
	if len(peaks) == 0 {
		return true
	}
	return slices.ContainsFunc(peaks, func(peak quota.Usage) bool {
		whole := *r
		whole.Usage = peak
		result := f.find(whole)
		isOwn := func(v Victim) bool { return v.Holder.UID == r.JobSet }
		canBeHad := result.Outcome == Found || result.Outcome == Fits || result.Outcome == EvictionsPending
		return canBeHad && !slices.ContainsFunc(result.Victims, isOwn)
	})
}

func (f *Finder) find(r Request) Result {
	n := r.Queue.node
	for _, c := range r.Usage {
		if c.Amount > n.Capacity(c.ID) {
			return Result{Outcome: TooLarge}
		}
	}
	if n.Fits(r.Usage) {
		return Result{Outcome: Fits}
	}
	var result Result
	f.tree.WhatIfEvicted(func() bool {
		result = f.findLater(r)
		return true
	})
	return result
}

// findLater counts the quota of Holders that are being evicted already as free.
func (f *Finder) findLater(r Request) Result {
	n := r.Queue.node
	if n.Fits(r.Usage) {
		return Result{Outcome: EvictionsPending}
	}
	s := &search{Finder: f, request: r, node: n, taken: f.History.taken[r.UID]}
	for _, c := range r.Usage {
		if c.Amount > n.Available(c.ID) {
			s.short = append(s.short, c)
		}
	}
	s.request.reclaims = !exceeds(n, s.short)
	if len(f.strategies) > 0 {
		return s.fair()
	}
	return s.classic()
}

// A search has the state that is constant while one Request is answered.
type search struct {
	*Finder
	request Request
	node    *quota.Node
	// short is the part of the request of which not enough is available. Only that needs victims, so that only that decides whether the request has a right
	// to them: it may borrow the rest, which is free.
	short quota.Usage
	// taken is the history of the request.
	taken map[types.UID]int
}

// isOver reports whether a subtree uses more than its own quota of any missing resource.
func (s *search) isOver(n *quota.Node) bool {
	for _, c := range s.short {
		if n.Excess(c.ID, 0) > 0 {
			return true
		}
	}
	return false
}

// A cohortResource is a resource of a flavor in a Cohort.
type cohortResource struct {
	cohort *quota.Node
	id     quota.ID
}

// overQuota returns the children of a Cohort that use more than their own quota of a resource. As long as nothing is charged or released, it looks at
// each Cohort once: many requests are refused in the same state.
func (f *Finder) overQuota(cohort *quota.Node, id quota.ID) []*quota.Node {
	if state := f.tree.State(); state != f.overIn {
		clear(f.over)
		f.overIn = state
	}
	key := cohortResource{cohort, id}
	over, isKnown := f.over[key]
	if !isKnown {
		for _, n := range cohort.Children() {
			if n.Excess(id, 0) > 0 {
				over = append(over, n)
			}
		}
		f.over[key] = over
	}
	return over
}

// borrowing is whether a request may end up using more than its ClusterQueue has of what it takes from victims.
type borrowing int

const (
	mayBorrow borrowing = iota
	mayNotBorrow
)

func (s *search) fits(b borrowing) bool {
	return (b == mayBorrow || !s.node.BorrowsAny(s.short)) && s.node.Fits(s.request.Usage)
}

// mayPreempt reports whether a policy lets the request preempt a Holder now. The time at which it lets the request preempt one that has not run for
// its minimum runtime is noted.
func (s *search) mayPreempt(policy kueue.PreemptionPolicy, h *Holder) bool {
	if h.IsExempt || !s.request.isAllowed(policy, h) {
		return false
	}
	from := s.request.mayPreemptFrom(h)
	if !from.After(s.request.Now) {
		return true
	}
	if s.retryAt.IsZero() || from.Before(s.retryAt) {
		s.retryAt = from
	}
	return false
}

// mayPreemptFrom returns when a Holder has run for its minimum runtime, or the request has waited for as long and only takes its own quota back.
func (r *Request) mayPreemptFrom(h *Holder) time.Time {
	if h.queue.MinimumRuntime == 0 || h.Started.IsZero() {
		return time.Time{}
	}
	since := h.Started
	if r.reclaims && h.queue != r.Queue && r.Queued.Before(since) {
		since = r.Queued
	}
	return since.Add(h.queue.MinimumRuntime)
}

// isAllowed reports whether a policy lets the request preempt a Holder.
func (r *Request) isAllowed(policy kueue.PreemptionPolicy, h *Holder) bool {
	switch policy {
	case kueue.PreemptionPolicyAny:
		return true
	case kueue.PreemptionPolicyLowerPriority:
		return h.Priority < r.Priority
	case kueue.PreemptionPolicyLowerOrNewerEqualPriority:
		return h.Priority < r.Priority || h.Priority == r.Priority && r.Queued.Before(h.Queued) && r.precedes(h)
	case kueue.PreemptionPolicyNever:
	}
	return false
}

// precedes reports whether a request of equal priority comes before a Holder that would have to queue again. Otherwise the two would take turns: the
// Holder would be admitted first, and preempted again.
func (r *Request) precedes(h *Holder) bool {
	return (r.Continues || !h.Continues) && (r.Precedes == nil || r.Precedes(h))
}

// result spares the victims that can stay and returns the others.
func (s *search) result(victims []Victim, fits func() bool, isFair func(spared int, rest []Victim) bool) Result {
	for i := len(victims) - 2; i >= 0; i-- {
		v := victims[i].Holder
		v.queue.node.Charge(v.Usage)
		if fits() && (isFair == nil || isFair(i, victims)) {
			victims = slices.Delete(victims, i, i+1)
		} else {
			v.queue.node.Release(v.Usage)
		}
	}
	return Result{Victims: victims}
}
