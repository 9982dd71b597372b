package flavor

import (
	"cmp"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Mode is how quota can be obtained, from worst to best.
type Mode int

const (
	// NoFit means that the quota cannot be obtained.
	NoFit Mode = iota
	// NoCandidates means that preemption would be allowed, but there is no victim.
	NoCandidates
	// Preempt means that stages of the same ClusterQueue have to be preempted.
	Preempt
	// Reclaim means that only stages of other ClusterQueues have to be preempted.
	Reclaim
	// Fit means that the quota is available now.
	Fit
)

// A Verdict is how quota of one flavor, or of a whole Choice, can be obtained. Level is how far up the tree it has to borrow.
type Verdict struct {
	Mode  Mode
	Level int
}

func worst(a, b Verdict) Verdict { return Verdict{min(a.Mode, b.Mode), max(a.Level, b.Level)} }

// A Fungibility determines when the next flavor is tried. Its zero value is that of the API: a flavor that fits, borrowing or not, ends the
// search, and a flavor that needs preemption does not.
type Fungibility struct {
	TryNextBeforeBorrowing   bool
	PreemptBeforeTryingNext  bool
	PreferPreemptionToBorrow bool
}

// NewFungibility converts the policy of a ClusterQueue, which may be nil.
func NewFungibility(policy *kueue.FlavorFungibility) Fungibility {
	if policy == nil {
		return Fungibility{}
	}
	return Fungibility{
		TryNextBeforeBorrowing:   policy.WhenCanBorrow == kueue.TryNextFlavor,
		PreemptBeforeTryingNext:  policy.WhenCanPreempt == kueue.MayStopSearch,
		PreferPreemptionToBorrow: policy.Preference != nil && *policy.Preference == kueue.PreemptionOverBorrowing,
	}
}

// endsWith reports whether no other flavor is tried after this verdict.
func (f Fungibility) endsWith(v Verdict) bool {
	switch {
	case v.Mode <= NoCandidates, v.Mode < Fit && !f.PreemptBeforeTryingNext:
		return false
	default:
		return v.Level == 0 || !f.TryNextBeforeBorrowing
	}
}

// prefers reports whether a flavor is better than the best before it.
func (f Fungibility) prefers(a, best Verdict) bool {
	if a.Mode <= NoCandidates || best.Mode <= NoCandidates {
		return a.Mode > best.Mode
	}
	if f.PreferPreemptionToBorrow {
		return cmp.Or(cmp.Compare(best.Level, a.Level), cmp.Compare(a.Mode, best.Mode)) > 0
	}
	return cmp.Or(cmp.Compare(a.Mode, best.Mode), cmp.Compare(best.Level, a.Level)) > 0
}

// A Walk tries the flavors of each item in turn, as the flavorFungibility of a ClusterQueue determines.
type Walk struct {
	Node        *quota.Node
	Fungibility Fungibility
	// Preemption returns how an amount that is not available could be obtained. Nil means that it cannot.
	Preemption func(quota.ID, quota.Amount) Verdict
}

// Choose fills choice, and returns how it can be obtained. The usage of an item counts for those after it.
func (w *Walk) Choose(items []Item, choice Choice) Verdict {
	var used quota.Usage
	verdict := Verdict{Mode: Fit}
	for i := range items {
		best := Verdict{Mode: -1}
		for k := range items[i].Options {
			v := w.judge(used, items[i].Options[k].Usage)
			if w.Fungibility.prefers(v, best) {
				choice[i], best = k, v
			}
			if w.Fungibility.endsWith(v) {
				break
			}
		}
		verdict = worst(verdict, best)
		if i < len(items)-1 {
			used.AddAll(items[i].Options[choice[i]].Usage)
		}
	}
	return verdict
}

// judge returns how a usage can be obtained on top of another.
func (w *Walk) judge(used, usage quota.Usage) Verdict {
	verdict := Verdict{Mode: Fit}
	for _, c := range usage {
		amount := used.Of(c.ID).Plus(c.Amount)
		switch {
		case amount <= w.Node.Available(c.ID):
			verdict = worst(verdict, Verdict{Fit, w.Node.Level(c.ID, amount)})
		case w.Preemption == nil || amount > w.Node.Capacity(c.ID):
			return Verdict{Mode: NoFit}
		default:
			verdict = worst(verdict, w.Preemption(c.ID, amount))
		}
	}
	return verdict
}
