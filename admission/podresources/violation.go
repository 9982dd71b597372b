package podresources

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/stageplan"
)

// The texts are those of Kueue.
const (
	invalidResources  = "resources validation failed"
	outsideLimitRange = "resources didn't satisfy LimitRange constraints"

	aboveLimit = "requests must not exceed its limits"
	aboveMax   = "requests must not be above the limitRange max"
	belowMin   = "requests must not be below the limitRange min"
)

// A PodSet is the pod spec of a pod set of a quota Workload, as Effective returns it.
type PodSet struct {
	Name string
	// Index is that of the pod set in the quota Workload.
	Index int
	Spec  *corev1.PodSpec
}

func (p *PodSet) field() string { return fmt.Sprintf("spec.podSets[%d].template.spec", p.Index) }

// Violation reports why the API server will reject the pods of some pod sets, and what to change. It is empty if the API server will accept
// them as far as their resources are concerned.
func (l *Limits) Violation(podSets []PodSet) string {
	if violations, names := collect(podSets, ownLimits); len(violations) > 0 {
		return fmt.Sprintf("%s: %s; lower the requests or raise the limits of the pods of %s", invalidResources, join(violations), names)
	}
	if len(l.Names) == 0 {
		return ""
	}
	if violations, names := collect(podSets, l.outside); len(violations) > 0 {
		return fmt.Sprintf("%s: %s; change the pods of %s, or LimitRange %s", outsideLimitRange, join(violations), names, strings.Join(l.Names, ", "))
	}
	return ""
}

// collect returns the violations of all pod sets, and names the pod sets that have some.
func collect(podSets []PodSet, of func(*PodSet) []string) (violations []string, names string) {
	var guilty []string
	for i := range podSets {
		if some := of(&podSets[i]); len(some) > 0 {
			violations = append(violations, some...)
			guilty = append(guilty, fmt.Sprintf("%q", podSets[i].Name))
		}
	}
	return violations, strings.Join(guilty, ", ")
}

func join(violations []string) string {
	if len(violations) == 1 {
		return violations[0]
	}
	return "[" + strings.Join(violations, ", ") + "]"
}

// ownLimits compares requests with the limits beside them.
func ownLimits(p *PodSet) []string {
	var all []string
	check := func(child string, r *corev1.ResourceRequirements) {
		all = p.appendViolation(all, child, above(r.Requests, r.Limits), aboveLimit)
	}
	p.eachContainer(check)
	if p.Spec.Resources != nil {
		check(".resources", p.Spec.Resources)
	}
	return all
}

// outside compares requests and limits with the LimitRanges.
func (l *Limits) outside(p *PodSet) []string {
	var all []string
	p.eachContainer(func(child string, r *corev1.ResourceRequirements) {
		all = p.appendViolation(all, child, above(merge(r.Requests, r.Limits, higher), l.Container.Max), aboveMax)
		all = p.appendViolation(all, child, above(l.Container.Min, merge(r.Requests, r.Limits, lower)), belowMin)
	})
	if len(l.Pod.Max) > 0 || len(l.Pod.Min) > 0 {
		total := stageplan.PodRequests(p.Spec)
		all = p.appendViolation(all, "", above(total, l.Pod.Max), aboveMax)
		all = p.appendViolation(all, "", above(l.Pod.Min, total), belowMin)
	}
	return all
}

func (p *PodSet) eachContainer(f func(child string, r *corev1.ResourceRequirements)) {
	for i := range p.Spec.InitContainers {
		f(".initContainers["+strconv.Itoa(i)+"]", &p.Spec.InitContainers[i].Resources)
	}
	for i := range p.Spec.Containers {
		f(".containers["+strconv.Itoa(i)+"]", &p.Spec.Containers[i].Resources)
	}
}

// above returns the resources of which a has more than b. What b does not have is not limited.
func above(a, b corev1.ResourceList) []string {
	var names []string
	for name, amount := range a {
		if bound, isBound := b[name]; isBound && amount.Cmp(bound) > 0 {
			names = append(names, fmt.Sprintf("%q", name))
		}
	}
	slices.Sort(names)
	return names
}

func (p *PodSet) appendViolation(all []string, child string, resources []string, text string) []string {
	if len(resources) == 0 {
		return all
	}
	return append(all, fmt.Sprintf("%s%s: Invalid value: [%s]: %s", p.field(), child, strings.Join(resources, ","), text))
}
