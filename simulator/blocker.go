package simulator

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// A Blocker holds quota, and nothing says when it releases it.
type Blocker struct {
	// Kind is JobSet, Gang or Workload.
	Kind      visibility.HolderKind
	Namespace string
	Name      string
}

func compareBlockers(a, b Blocker) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
}

// String returns the kind and the name.
func (b Blocker) String() string { return fmt.Sprintf("%s %s/%s", b.Kind, b.Namespace, b.Name) }

// explained is why a quota Workload still waits at the end.
type explained struct {
	check, reason, waits string
	blockers             []Blocker
}

// explainUnknown explains the quota Workloads without an expected start, as of the end of the simulation. An explanation takes time in proportion to
// the quota Workloads in a tree, so that the error says if it was interrupted.
func (f *forecast) explainUnknown(starts []Start) error {
	f.blockers = map[admission.StageKey]explained{}
	for i := range starts {
		s := &starts[i]
		if s.Certainty() != Unknown || s.IsBeyond {
			continue
		}
		if f.failIfInterrupted(); f.Problem != nil {
			return f.Problem
		}
		why := f.explanationOf(s.Workload)
		s.Waits, s.Blockers = why.waits, why.blockers
	}
	return nil
}

// explanationOf follows what a quota Workload waits for: the holders of missing quota, the one before it in its queue, and the earlier stages of
// its JobSet.
func (f *forecast) explanationOf(key admission.StageKey) explained {
	if known, ok := f.blockers[key]; ok {
		return known
	}
	f.blockers[key] = explained{} // what waits for itself has no blocker on this path
	w := f.Workloads[key]
	if w == nil {
		return explained{}
	}
	x, ok := f.Engine.Explanation(key)
	if !ok {
		return explained{}
	}
	var all []Blocker
	if x.Behind != nil {
		all = append(all, f.explanationOf(types.NamespacedName{Namespace: x.Behind.Namespace, Name: x.Behind.Name}).blockers...)
	}
	for _, alternative := range x.Alternatives {
		for i := range alternative.Shortages {
			all = append(all, f.endlessAmong(alternative.Shortages[i].Holders)...)
		}
	}
	if quotaworkload.HasGate(w, apis.StageGate) {
		all = append(all, f.earlierStages(w)...)
	}
	slices.SortFunc(all, compareBlockers)
	why := explained{check: x.Check, reason: x.Reason, waits: x.Message, blockers: slices.Compact(all)}
	f.blockers[key] = why
	return why
}

// endlessAmong returns the holders that release their quota at no known time.
func (f *forecast) endlessAmong(holders []visibility.Holder) []Blocker {
	var all []Blocker
	for i := range holders {
		h := &holders[i]
		if slices.ContainsFunc(f.workloadsOf(h), f.course.IsEndless) {
			all = append(all, Blocker{Kind: h.Kind, Namespace: h.Namespace, Name: h.Name})
		}
	}
	return all
}

// workloadsOf returns the quota Workloads of a holder.
func (f *forecast) workloadsOf(h *visibility.Holder) []*kueue.Workload {
	key := types.NamespacedName{Namespace: h.Namespace, Name: h.Name}
	switch h.Kind {
	case visibility.JobSet:
		return f.WorkloadsOfJobSet(key)
	case visibility.Gang:
		var all []*kueue.Workload
		for _, part := range f.partsOf(key) {
			if w := f.Workloads[part]; w != nil {
				all = append(all, w)
			}
		}
		return all
	case visibility.Workload:
		if w := f.Workloads[key]; w != nil {
			return []*kueue.Workload{w}
		}
	}
	return nil
}

// partsOf returns the quota Workloads of a gang of pods.
func (f *forecast) partsOf(gang admission.StageKey) []admission.StageKey {
	if f.gangs == nil {
		f.gangs = map[admission.StageKey][]admission.StageKey{}
		for _, key := range f.WorkloadKeys() {
			plan, isPart := f.Plans[types.UID(f.Workloads[key].Labels[apis.PlanUIDLabel])]
			if isPart {
				f.gangs[plan.Owner.Key] = append(f.gangs[plan.Owner.Key], key)
			}
		}
	}
	return f.gangs[gang]
}

// earlierStages returns what keeps the stages from ending that a gated stage waits for.
func (f *forecast) earlierStages(w *kueue.Workload) []Blocker {
	jobSet := types.NamespacedName{Namespace: w.Namespace, Name: w.Labels[apis.JobSetLabel]}
	j, index := f.UserJobs[jobSet], cluster.StageIndex(w)
	if j == nil || index >= len(j.Plan.Stages) {
		return nil
	}
	var all []Blocker
	for _, condition := range j.Plan.Stages[index].After {
		for _, earlier := range f.WorkloadsOfJobSet(jobSet) {
			if cluster.StageIndex(earlier) != condition.Stage || growthOf(earlier) > 0 || earlier.Labels[apis.JobUIDLabel] != w.Labels[apis.JobUIDLabel] {
				continue
			}
			if f.course.IsEndless(earlier) {
				all = append(all, Blocker{Kind: visibility.JobSet, Namespace: jobSet.Namespace, Name: jobSet.Name})
			} else {
				all = append(all, f.explanationOf(cluster.KeyOf(earlier)).blockers...)
			}
		}
	}
	return all
}

func growthOf(w *kueue.Workload) int { return jobsetstate.GrowthNumber(w) }
