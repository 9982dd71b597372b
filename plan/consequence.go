package plan

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator"
)

// A Stage is a quota Workload and what it stands for.
type Stage struct {
	Namespace string `json:"namespace"`
	// Workload is the name of the quota Workload.
	Workload string `json:"workload"`
	// JobSet, Stage and Growth are empty if it belongs to no JobSet. Then Job is the queued Job that it belongs to, if any.
	JobSet string `json:"jobSet,omitempty"`
	Stage  string `json:"stage,omitempty"`
	Job    string `json:"job,omitempty"`
	Growth int    `json:"growth,omitempty"`
}

// A Consequence is one difference that a change makes for a quota Workload.
type Consequence struct {
	Kind Kind `json:"kind"`
	Stage
	// Before and After are when it happens without and with the change: the start or the eviction. Nil is not before the end of the simulation.
	Before *time.Time `json:"before,omitempty"`
	After  *time.Time `json:"after,omitempty"`
	// DelaySeconds is by how much a start is delayed, if both times are known. It is negative if the start is earlier.
	DelaySeconds int64 `json:"delaySeconds,omitempty"`
	// Reason and Message are those of the condition Evicted, or of the condition tranche.dev/Waiting at the end of the simulation.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Preemptor is the quota Workload for which it is evicted, if it is preempted.
	Preemptor *Stage `json:"preemptor,omitempty"`
	// IsUnsafe is true if it is evicted because its JobSet could no longer finish, or others could not because of it.
	IsUnsafe bool `json:"isUnsafe,omitempty"`
	// Lost is the work that an eviction loses.
	Lost *Lost `json:"lost,omitempty"`
	// Again is when it starts again after an eviction. Nil is not before the end of the simulation.
	Again *time.Time `json:"again,omitempty"`
	// Blockers hold the quota that it needs, and release it at no known time.
	Blockers []string `json:"blockers,omitempty"`
	// BeforeBasis, AfterBasis and AgainBasis say from which earlier runs Before, After and Again are estimated. They are empty for times that follow
	// from maximum execution times alone.
	BeforeBasis string `json:"beforeBasis,omitempty"`
	AfterBasis  string `json:"afterBasis,omitempty"`
	AgainBasis  string `json:"againBasis,omitempty"`
}

// Lost is the work of one stage since its start. An eviction repeats it. Work of finished stages is kept.
type Lost struct {
	// Seconds is how long the stage was admitted.
	Seconds int64 `json:"seconds"`
	// AcceleratorSeconds are the amounts of each resource that not every node has, times the seconds for which they were held.
	AcceleratorSeconds map[corev1.ResourceName]int64 `json:"acceleratorSeconds,omitempty"`
}

// A Kind is the kind of a Consequence.
type Kind string

const (
	// Evicted loses its quota with the change, and not without.
	Evicted Kind = "Evicted"
	// Unsafe holds quota with the change at the end of the simulation, and can no longer finish: a later stage can never start.
	Unsafe Kind = "Unsafe"
	// NeverFits can, with the change, not be admitted however long it waits.
	NeverFits Kind = "NeverFits"
	// Delayed starts later with the change, or not before the end of the simulation.
	Delayed Kind = "Delayed"
	// EvictionMoved is evicted in either case, at another time or for another reason.
	EvictionMoved Kind = "EvictionMoved"
	// Restarted is evicted with the change only, after a start that it does not have without the change. It starts again no later than it starts
	// without the change, so that it loses nothing.
	Restarted Kind = "Restarted"
	// Earlier starts earlier with the change.
	Earlier Kind = "Earlier"
	// NotEvicted is evicted without the change only.
	NotEvicted Kind = "NotEvicted"
	// FitsAgain could never be admitted without the change, and only waits with it.
	FitsAgain Kind = "FitsAgain"
	// Waiting is new with the change, or no longer suspended, and does not start before the end of the simulation.
	Waiting Kind = "Waiting"
	// NewlyAdmitted starts before the end of the simulation with the change only.
	NewlyAdmitted Kind = "NewlyAdmitted"
)

// Kinds returns the kinds of consequences, the worst first.
func Kinds() []Kind {
	return []Kind{Evicted, Unsafe, NeverFits, Delayed, EvictionMoved, Restarted, Earlier, NotEvicted, FitsAgain, NewlyAdmitted, Waiting}
}

func (k Kind) severity() Severity {
	if k == Evicted || k == Unsafe || k == NeverFits {
		return Harms
	}
	return Follows
}

// A comparison collects the differences of two outcomes.
type comparison struct {
	consequences []Consequence
	// holds has the JobSets that hold quota at the end of the simulation with the change, and stages all quota Workloads with it.
	holds  map[admission.StageKey]bool
	stages map[admission.StageKey]Stage
}

// compare returns the differences between the outcomes without and with a change.
func compare(before, after *simulator.Outcome) []Consequence {
	c := &comparison{holds: map[admission.StageKey]bool{}, stages: map[admission.StageKey]Stage{}}
	old := map[admission.StageKey]*simulator.History{}
	for i := range before.Histories {
		old[before.Histories[i].Workload] = &before.Histories[i]
	}
	for i := range after.Histories {
		h := &after.Histories[i]
		c.stages[h.Workload] = stageOf(h)
		if h.End == simulator.Holds && h.JobSet != "" {
			c.holds[jobSetOf(h)] = true
		}
	}
	for i := range after.Histories {
		now := &after.Histories[i]
		was := old[now.Workload]
		if was == nil {
			was = &simulator.History{Record: simulator.Record{Workload: now.Workload, End: simulator.Gone}}
		}
		c.compare(was, now)
		delete(old, now.Workload)
	}
	for _, was := range old {
		gone := simulator.Record{Workload: was.Workload, JobSet: was.JobSet, Stage: was.Stage, Job: was.Job, Growth: was.Growth, IsAdmitted: was.IsAdmitted, End: simulator.Gone}
		c.compare(was, &simulator.History{Record: gone})
	}
	c.addBases(before, after)
	order := Kinds()
	slices.SortFunc(c.consequences, func(a, b Consequence) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), compareTimes(a.After, b.After), compareTimes(a.Before, b.Before),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload))
	})
	return c.consequences
}

// compareTimes orders times, and no time after all others.
func compareTimes(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}

func jobSetOf(h *simulator.History) admission.StageKey {
	return admission.StageKey{Namespace: h.Workload.Namespace, Name: h.JobSet}
}

func stageOf(h *simulator.History) Stage {
	return Stage{Namespace: h.Workload.Namespace, Workload: h.Workload.Name, JobSet: h.JobSet, Stage: h.Stage, Job: h.Job, Growth: h.Growth}
}

// startsOf returns the starts of a quota Workload: each eviction is that after the start with the same index. The first start of one that was admitted
// before the snapshot is nil.
func startsOf(h *simulator.History) []*time.Time {
	var all []*time.Time
	if h.IsAdmitted {
		all = append(all, nil)
	}
	for i := range h.Starts {
		all = append(all, &h.Starts[i])
	}
	return all
}

// compare compares the starts and evictions of one quota Workload one by one, and its states at the end.
func (c *comparison) compare(was, now *simulator.History) {
	oldStarts, newStarts := startsOf(was), startsOf(now)
	for i := range max(len(oldStarts), len(newStarts)) {
		c.compareStarts(was, now, i)
		c.compareEvictions(was, now, i)
	}
	if now.End != simulator.Waits {
		return
	}
	isWorse := len(newStarts) < len(oldStarts) || len(now.Evictions) > len(was.Evictions) || was.End != simulator.Waits
	switch {
	case isStuck(now) && (isWorse || !isStuck(was)):
		kind := NeverFits
		if c.holds[jobSetOf(now)] && now.JobSet != "" {
			kind = Unsafe
		}
		c.add(now, Consequence{Kind: kind, Reason: now.Reason, Message: now.Message})
	case isQueuedBy(was, now) && !isStuck(now):
		c.add(now, Consequence{Kind: Waiting, Reason: now.Reason, Message: now.Message, Blockers: namesOf(now.Blockers)})
	case isStuck(was) && !isStuck(now):
		c.add(now, Consequence{Kind: FitsAgain, Reason: now.Reason, Message: now.Message, Blockers: namesOf(now.Blockers)})
	}
}

// isQueuedBy reports whether a quota Workload that never starts asks for quota because of the change: it is new, or its user no longer suspends it.
func isQueuedBy(was, now *simulator.History) bool {
	if was.End == simulator.Gone {
		return len(startsOf(now)) == 0
	}
	return was.IsSuspended && !now.IsSuspended && len(startsOf(now)) <= len(startsOf(was))
}

// isStuck reports whether a quota Workload waits without the chance to be admitted, as long as the queues are as they are.
func isStuck(h *simulator.History) bool {
	return h.End == simulator.Waits && slices.Contains([]string{
		kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, kueue.WorkloadQuotaReservedReasonMisconfigured,
		apis.DeadlockedReason,
	}, h.Reason)
}

func (c *comparison) add(h *simulator.History, consequence Consequence) {
	consequence.Stage = stageOf(h)
	c.consequences = append(c.consequences, consequence)
}

func (c *comparison) compareStarts(was, now *simulator.History, i int) {
	oldStarts, newStarts := startsOf(was), startsOf(now)
	isPlanned := func(h *simulator.History) bool { return i == 0 || i <= len(h.Evictions) }
	switch {
	case i < len(oldStarts) && i < len(newStarts):
		before, after := oldStarts[i], newStarts[i]
		if before == nil || after == nil || before.Equal(*after) {
			return
		}
		kind, delay := Delayed, after.Sub(*before)
		if delay < 0 {
			kind = Earlier
		}
		c.add(now, Consequence{Kind: kind, Before: before, After: after, DelaySeconds: int64(delay.Seconds())})
	case i < len(newStarts) && isPlanned(was):
		c.add(now, Consequence{Kind: NewlyAdmitted, After: newStarts[i]})
	case i < len(oldStarts) && isPlanned(now) && !isStuck(now):
		message := now.Message
		if now.End == simulator.Gone {
			message = "its quota Workload does not exist"
		}
		c.add(now, Consequence{Kind: Delayed, Before: oldStarts[i], Reason: now.Reason, Message: message, Blockers: namesOf(now.Blockers)})
	}
}

func (c *comparison) compareEvictions(was, now *simulator.History, i int) {
	switch {
	case i < len(was.Evictions) && i < len(now.Evictions):
		before, after := &was.Evictions[i], &now.Evictions[i]
		if before.At.Equal(after.At) && before.Reason == after.Reason {
			return
		}
		c.add(now, c.evicted(EvictionMoved, now, i, &before.At))
	case i < len(now.Evictions):
		kind := Evicted
		if losesNothing(was, now) {
			kind = Restarted
		}
		c.add(now, c.evicted(kind, now, i, nil))
	case i < len(was.Evictions) && i < len(startsOf(now)):
		c.add(now, Consequence{Kind: NotEvicted, Before: &was.Evictions[i].At, Reason: was.Evictions[i].Reason})
	}
}

// losesNothing reports whether a quota Workload starts for the last time no later with the change than without it, although it is evicted more often with
// it: it only loses work of starts that it does not have without the change. A start before the snapshot is earlier than all others, and one that
// does not happen before the end of the simulation later. A quota Workload that is new with the change has nothing to be compared with.
func losesNothing(was, now *simulator.History) bool {
	oldStarts, newStarts := startsOf(was), startsOf(now)
	if was.End == simulator.Gone || len(newStarts) <= len(now.Evictions) {
		return false
	}
	if len(oldStarts) <= len(was.Evictions) {
		return true
	}
	last, without := newStarts[len(now.Evictions)], oldStarts[len(was.Evictions)]
	return without != nil && last != nil && !last.After(*without)
}

// addBases adds what the times of the consequences come from.
func (c *comparison) addBases(before, after *simulator.Outcome) {
	basis := func(o *simulator.Outcome, s *Stage, at *time.Time) string {
		if at == nil {
			return ""
		}
		return o.BasisOf(admission.StageKey{Namespace: s.Namespace, Name: s.Workload}, *at).String()
	}
	for i := range c.consequences {
		one := &c.consequences[i]
		one.BeforeBasis, one.AfterBasis, one.AgainBasis = basis(before, &one.Stage, one.Before), basis(after, &one.Stage, one.After), basis(after, &one.Stage, one.Again)
	}
}

// evicted describes an eviction, and what follows.
func (c *comparison) evicted(kind Kind, h *simulator.History, i int, before *time.Time) Consequence {
	e := &h.Evictions[i]
	eviction := Consequence{Kind: kind, Before: before, After: &e.At, Reason: e.Reason, IsUnsafe: e.IsUnsafe, Lost: lostBy(e)}
	if preemptor, isKnown := c.stages[e.Preemptor]; isKnown {
		eviction.Preemptor = &preemptor
	} else {
		eviction.Message = e.Message
	}
	if starts := startsOf(h); i+1 < len(starts) {
		eviction.Again = starts[i+1]
	} else {
		eviction.Blockers = namesOf(h.Blockers)
	}
	return eviction
}

func lostBy(e *simulator.Eviction) *Lost {
	lost := &Lost{Seconds: int64(e.Ran.Seconds())}
	for name, amount := range e.Held {
		if !charge.IsAccelerator(name) || amount.IsZero() {
			continue
		}
		if lost.AcceleratorSeconds == nil {
			lost.AcceleratorSeconds = map[corev1.ResourceName]int64{}
		}
		lost.AcceleratorSeconds[name] = accelerators(amount, lost.Seconds)
	}
	return lost
}

// accelerators returns an amount times seconds, or the largest number if the product is larger.
func accelerators(amount resource.Quantity, seconds int64) int64 {
	product := milliOf(amount)
	product.Quo(product.Mul(product, big.NewInt(seconds)), big.NewInt(thousandths))
	if !product.IsInt64() {
		return math.MaxInt64
	}
	return product.Int64()
}
