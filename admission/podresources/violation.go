package podresources

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

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

// Kueue has no texts for these: it admits such pods.
const (
	belowContainers = "requests must not be below those of the containers together"
	abovePodLimit   = "limits must not exceed those of the pod"
	noLimit         = "limits must be set because of the limitRange max"
	noRequest       = "requests must be set because of the limitRange min"
	aboveRatio      = "limits must not be above the requests times the limitRange maxLimitRequestRatio, and both must be set"
)

// A PodSet is the pod spec of a pod set of a quota Workload, as Effective returns it.
type PodSet struct {
	Name string
	// Index is that of the pod set in the quota Workload.
	Index int
	Spec  *corev1.PodSpec
}

func (p *PodSet) field() string { return fmt.Sprintf("spec.podSets[%d].template.spec", p.Index) }

// Violation returns why the API server will reject the pods of some pod sets, and what to change. It is empty if the API server will accept their
// resources.
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

// ownLimits compares the resources of a pod with each other, as the API server does when it validates a pod.
func ownLimits(p *PodSet) []string {
	var all []string
	p.eachContainer(func(child string, r *corev1.ResourceRequirements) {
		all = p.appendViolation(all, child, above(r.Requests, r.Limits), aboveLimit)
	})
	if p.Spec.Resources == nil {
		return all
	}
	pod := corev1.Pod{Spec: *stageplan.WithDefaultRequests(p.Spec)}
	ofPod := pod.Spec.Resources
	all = p.appendViolation(all, ".resources", above(ofPod.Requests, ofPod.Limits), aboveLimit)
	sum := resourcehelper.AggregateContainerRequests(&pod, resourcehelper.PodResourcesOptions{})
	all = p.appendViolation(all, ".resources", above(sum, ofPod.Requests), belowContainers)
	for i := range pod.Spec.Containers {
		all = p.appendViolation(all, containerField(i), above(pod.Spec.Containers[i].Resources.Limits, ofPod.Limits), abovePodLimit)
	}
	return all
}

// outside compares requests and limits with the LimitRanges, as the LimitRanger of the API server does.
func (l *Limits) outside(p *PodSet) []string {
	var all []string
	effective := PodSet{Name: p.Name, Index: p.Index, Spec: stageplan.WithDefaultRequests(p.Spec)}
	effective.eachContainer(func(child string, r *corev1.ResourceRequirements) {
		all = p.appendOutside(all, child, &l.Container, r)
	})
	return p.appendOutside(all, "", &l.Pod, total(effective.Spec))
}

// total returns the resources of a pod as the LimitRanger counts them: the sum of its containers, or the CPU and memory of the pod as a whole if
// it has them. The overhead of a RuntimeClass does not count.
func total(spec *corev1.PodSpec) *corev1.ResourceRequirements {
	pod, options := &corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{}
	all := &corev1.ResourceRequirements{
		Requests: resourcehelper.AggregateContainerRequests(pod, options), Limits: resourcehelper.AggregateContainerLimits(pod, options),
	}
	if spec.Resources == nil {
		return all
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if request, has := spec.Resources.Requests[name]; has {
			all.Requests[name] = request
		}
		if limit, has := spec.Resources.Limits[name]; has {
			all.Limits[name] = limit
		}
	}
	return all
}

// appendOutside appends the violations of an item of the LimitRanges by the resources of a container or a pod.
func (p *PodSet) appendOutside(all []string, child string, item *corev1.LimitRangeItem, r *corev1.ResourceRequirements) []string {
	tooHigh := above(merge(r.Requests, r.Limits, higher), item.Max)
	all = p.appendViolation(all, child, tooHigh, aboveMax)
	// A request above the maximum needs no second violation.
	all = p.appendViolation(all, child, without(missing(item.Max, r.Limits), tooHigh), noLimit)
	all = p.appendViolation(all, child, above(item.Min, merge(r.Requests, r.Limits, lower)), belowMin)
	all = p.appendViolation(all, child, missing(item.Min, r.Requests), noRequest)
	return p.appendViolation(all, child, aboveRatioOf(item.MaxLimitRequestRatio, r), aboveRatio)
}

// aboveRatioOf returns the resources whose limit is too many times the request, or which lack one of them. The arithmetic is that of the
// LimitRanger.
func aboveRatioOf(ratios corev1.ResourceList, r *corev1.ResourceRequirements) []string {
	var names []string
	for name, ratio := range ratios {
		values := sameUnit(r.Requests[name], r.Limits[name], ratio)
		request, limit := values[0], values[1]
		if request == 0 || limit == 0 || float64(limit)/float64(request)*1000 > float64(ratio.MilliValue()) {
			names = append(names, string(name))
		}
	}
	return names
}

func (p *PodSet) eachContainer(f func(child string, r *corev1.ResourceRequirements)) {
	for i := range p.Spec.InitContainers {
		f(".initContainers["+strconv.Itoa(i)+"]", &p.Spec.InitContainers[i].Resources)
	}
	for i := range p.Spec.Containers {
		f(containerField(i), &p.Spec.Containers[i].Resources)
	}
}

func containerField(i int) string { return ".containers[" + strconv.Itoa(i) + "]" }

// above returns the resources of which a has more than b. Resources that b lacks are not limited.
func above(a, b corev1.ResourceList) []string {
	var names []string
	for name, amount := range a {
		if bound, isBound := b[name]; isBound {
			if values := sameUnit(amount, bound); values[0] > values[1] {
				names = append(names, string(name))
			}
		}
	}
	return names
}

// missing returns the resources that a list lacks.
func missing(wanted, list corev1.ResourceList) []string {
	var names []string
	for name := range wanted {
		if _, has := list[name]; !has {
			names = append(names, string(name))
		}
	}
	return names
}

func without(names, excluded []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(excluded, name) })
}

// sameUnit returns amounts in the unit in which the API server compares them: thousandths, or wholes if one of them is very large.
func sameUnit(amounts ...resource.Quantity) []int64 {
	values, isLarge := make([]int64, len(amounts)), false
	for i := range amounts {
		values[i] = amounts[i].Value()
		isLarge = isLarge || values[i] > resource.MaxMilliValue
	}
	for i := range amounts {
		if !isLarge {
			values[i] = amounts[i].MilliValue()
		}
	}
	return values
}

func (p *PodSet) appendViolation(all []string, child string, resources []string, text string) []string {
	if len(resources) == 0 {
		return all
	}
	slices.Sort(resources)
	quoted := make([]string, len(resources))
	for i, name := range resources {
		quoted[i] = strconv.Quote(name)
	}
	return append(all, fmt.Sprintf("%s%s: Invalid value: [%s]: %s", p.field(), child, strings.Join(quoted, ","), text))
}
