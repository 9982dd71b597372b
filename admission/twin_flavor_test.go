package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// An item is a choice of a flavor that a twin has to make for a pod set.
type item struct {
	podSet  int
	options []option
}

type option struct {
	flavor kueue.ResourceFlavorReference
	bill   bill
}

// A pod set as it counts: its number of pods, or at least min of them if that is not 0.
type podSet struct {
	name       kueue.PodSetReference
	count, min int32
	spec       *corev1.PodSpec
	requests   map[corev1.ResourceName]quota.Amount
}

// choose selects for each item the first flavor that fits on top of those before, or with TryNextFlavor the one that borrows from least far up.
// If these do not lead to a full choice, it selects the first combination that fits.
func (p *place) choose(items []item, fungibility *kueue.FlavorFungibility) []int {
	tryNext := fungibility != nil && fungibility.WhenCanBorrow == kueue.TryNextFlavor
	choice := []int{}
	used := bill{}
	for _, it := range items {
		best, bestLevel := -1, 0
		for k, o := range it.options {
			both := bill{}
			for fr, a := range o.bill {
				if a > 0 {
					both[fr] = used[fr] + a
				}
			}
			if !p.fits(both) {
				continue
			}
			if level := p.level(both); best < 0 || tryNext && level < bestLevel {
				best, bestLevel = k, level
			}
		}
		if best < 0 {
			break
		}
		choice = append(choice, best)
		used.add(it.options[best].bill)
	}
	if len(choice) == len(items) {
		return choice
	}
	return firstOf(items, p.fits)
}

// firstOf returns the first combination of flavors that passes, or nil.
func firstOf(items []item, passes func(bill) bool) []int {
	for _, choice := range combinations(items) {
		if passes(total(items, choice)) {
			return choice
		}
	}
	return nil
}

func combinations(items []item) [][]int {
	if len(items) == 0 {
		return [][]int{{}}
	}
	var all [][]int
	for k := range items[0].options {
		for _, rest := range combinations(items[1:]) {
			all = append(all, append([]int{k}, rest...))
		}
	}
	return all
}

func total(items []item, choice []int) bill {
	sum := bill{}
	for i, k := range choice {
		sum.add(items[i].options[k].bill)
	}
	return sum
}

// takes reports whether pods may run on nodes of a flavor. Of selectors and affinity, only labels count that some flavor of the group has.
func takes(f *kueue.ResourceFlavor, keys map[string]bool, spec *corev1.PodSpec) bool {
	tolerations := append(slices.Clone(spec.Tolerations), f.Spec.Tolerations...)
	for _, taint := range f.Spec.NodeTaints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			return t.Key == taint.Key && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value) && (t.Effect == "" || t.Effect == taint.Effect)
		}) {
			return false
		}
	}
	for key, value := range spec.NodeSelector {
		if keys[key] && f.Spec.NodeLabels[key] != value {
			return false
		}
	}
	if spec.Affinity == nil {
		return true
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			return keys[r.Key] && slices.Contains(r.Values, f.Spec.NodeLabels[r.Key]) != (r.Operator == corev1.NodeSelectorOpIn)
		})
	})
}

// items returns the choices to make, or the check that refuses since there are none.
func (w *twin) items(q *kueue.ClusterQueue, bare *place, podSets []podSet) ([]item, string) {
	items := []item{}
	for i, p := range podSets {
		for r, a := range p.requests {
			covers := func(g kueue.ResourceGroup) bool { return slices.Contains(g.CoveredResources, r) }
			if a > 0 && p.count > 0 && !slices.ContainsFunc(q.Spec.ResourceGroups, covers) {
				return nil, "ResourcesAreCovered"
			}
		}
		for _, g := range q.Spec.ResourceGroups {
			it, lack := w.item(g, bare, p)
			if lack != "" {
				return nil, lack
			}
			if it.podSet = i; len(it.options) > 0 {
				items = append(items, it)
			}
		}
	}
	return items, ""
}

// item returns the choice of a flavor of one group, without options if nothing is requested.
func (w *twin) item(g kueue.ResourceGroup, bare *place, p podSet) (item, string) {
	requests := map[corev1.ResourceName]quota.Amount{}
	for _, r := range g.CoveredResources {
		if a, ok := p.requests[r]; ok {
			requests[r] = a * quota.Amount(p.count)
		}
		if r == corev1.ResourcePods {
			requests[r] = quota.Amount(p.count)
		}
	}
	if len(requests) == 0 {
		return item{}, ""
	}
	keys := map[string]bool{}
	for _, f := range g.Flavors {
		for key := range w.flavors[string(f.Name)].Spec.NodeLabels {
			keys[key] = true
		}
	}
	var it item
	lack := "FlavorMatches"
	for _, f := range g.Flavors {
		o := option{f.Name, bill{}}
		for r, a := range requests {
			o.bill[quota.FlavorResource{Flavor: f.Name, Resource: r}] = a
		}
		switch {
		case !takes(w.flavors[string(f.Name)], keys, p.spec):
		case bare.fits(o.bill):
			it.options = append(it.options, o)
		default:
			lack = "WithinLimits"
		}
	}
	if len(it.options) > 0 {
		lack = ""
	}
	return it, lack
}

func admissionOf(queue string, podSets []podSet, items []item, choice []int) kueue.Admission {
	a := kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue)}
	for _, p := range podSets {
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
			Name: p.name, Count: &p.count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{}, ResourceUsage: corev1.ResourceList{},
		})
	}
	for i, k := range choice {
		p := &a.PodSetAssignments[items[i].podSet]
		for fr, amount := range items[i].options[k].bill {
			p.Flavors[fr.Resource], p.ResourceUsage[fr.Resource] = fr.Flavor, amount.Quantity(fr.Resource)
		}
	}
	return a
}

// checksOf returns the AdmissionChecks that an admission has to pass.
func (w *twin) checksOf(a kueue.Admission) []kueue.AdmissionCheckReference {
	used := map[kueue.ResourceFlavorReference]bool{}
	for _, p := range a.PodSetAssignments {
		for _, f := range p.Flavors {
			used[f] = true
		}
	}
	var checks []kueue.AdmissionCheckReference
	for _, rule := range rulesOf(w.queues[string(a.ClusterQueue)]) {
		if len(rule.OnFlavors) == 0 || slices.ContainsFunc(rule.OnFlavors, func(f kueue.ResourceFlavorReference) bool { return used[f] }) {
			checks = append(checks, rule.Name)
		}
	}
	return checks
}

func describe(a kueue.Admission, checks []kueue.AdmissionCheckReference) string {
	var b strings.Builder
	b.WriteString(string(a.ClusterQueue))
	for _, p := range a.PodSetAssignments {
		fmt.Fprintf(&b, " %s x %d", p.Name, *p.Count)
		for _, r := range slices.Sorted(maps.Keys(p.Flavors)) {
			q := p.ResourceUsage[r]
			fmt.Fprintf(&b, " %s %s of %s", q.String(), r, p.Flavors[r])
		}
	}
	return fmt.Sprint(b.String(), checks)
}
