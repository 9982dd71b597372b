// Package podresources computes how the API server changes the resources of a pod, which a pod template does not show yet: the defaults of
// the LimitRanges of its namespace, and the overhead of its RuntimeClass. It also predicts whether the API server will create the pod.
//
//	template: limits {cpu: 4}                 -> pod: requests {cpu: 4}, limits {cpu: 4}
//	template: no resources, LimitRange {2, 1} -> pod: requests {cpu: 1}, limits {cpu: 2}
//	template: requests {cpu: 3}, same range   -> rejected: the default limit is below the request
package podresources

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/stageplan"
)

// Limits are the merged limits of the LimitRanges of one namespace. The zero Limits have no limit.
type Limits struct {
	// Names are those of the LimitRanges, sorted.
	Names []string
	// Container has the limits of each container, and Pod those of a pod as a whole.
	Container, Pod corev1.LimitRangeItem
}

// Merge returns the merged limits of LimitRanges of a namespace: the lowest maximum and ratio, the highest minimum, and of several defaults the
// one of the LimitRange whose name comes first.
func Merge(ranges []*corev1.LimitRange) Limits {
	var all Limits
	for _, r := range slices.SortedFunc(slices.Values(ranges), func(a, b *corev1.LimitRange) int { return cmp.Compare(a.Name, b.Name) }) {
		all.Names = append(all.Names, r.Name)
		for i := range r.Spec.Limits {
			switch item := &r.Spec.Limits[i]; item.Type {
			case corev1.LimitTypeContainer:
				tighten(&all.Container, item)
			case corev1.LimitTypePod:
				tighten(&all.Pod, item)
			case corev1.LimitTypePersistentVolumeClaim:
			}
		}
	}
	return all
}

func tighten(all, item *corev1.LimitRangeItem) {
	all.Max = merge(all.Max, item.Max, lower)
	all.Min = merge(all.Min, item.Min, higher)
	all.MaxLimitRequestRatio = merge(all.MaxLimitRequestRatio, item.MaxLimitRequestRatio, lower)
	all.Default = merge(all.Default, item.Default, first)
	all.DefaultRequest = merge(all.DefaultRequest, item.DefaultRequest, first)
}

// Effective returns the spec of a pod as the API server creates it: with the default resources of its containers, and with this overhead, which
// is that of its RuntimeClass, unless the spec has one. It returns the spec itself if nothing has to be added, and never changes it.
func (l *Limits) Effective(spec *corev1.PodSpec, overhead corev1.ResourceList) *corev1.PodSpec {
	addsOverhead := len(spec.Overhead) == 0 && len(overhead) > 0
	lacksDefaults := func(c corev1.Container) bool {
		return lacks(c.Resources.Limits, l.Container.Default) || lacks(c.Resources.Requests, l.Container.DefaultRequest)
	}
	addsDefaults := slices.ContainsFunc(spec.InitContainers, lacksDefaults) || slices.ContainsFunc(spec.Containers, lacksDefaults)
	if !addsOverhead && !addsDefaults {
		return spec
	}
	effective := *spec
	if addsDefaults {
		// A limit of its own is the request of a container, or of the pod as a whole, and comes before the default request.
		effective = *stageplan.WithDefaultRequests(spec)
		l.addDefaults(effective.InitContainers)
		l.addDefaults(effective.Containers)
	}
	if addsOverhead {
		effective.Overhead = overhead
	}
	return &effective
}

// addDefaults adds the default resources of containers.
func (l *Limits) addDefaults(containers []corev1.Container) {
	for i := range containers {
		r := &containers[i].Resources
		r.Limits, r.Requests = merge(r.Limits, l.Container.Default, first), merge(r.Requests, l.Container.DefaultRequest, first)
	}
}

func lacks(list, defaults corev1.ResourceList) bool {
	for name := range defaults {
		if _, has := list[name]; !has {
			return true
		}
	}
	return false
}

// merge returns a list with all resources of both, where pick chooses between two amounts of the same resource.
func merge(a, b corev1.ResourceList, pick func(corev1.ResourceList, corev1.ResourceList, corev1.ResourceName)) corev1.ResourceList {
	if len(b) == 0 {
		return a
	}
	merged := maps.Clone(a)
	if merged == nil {
		merged = corev1.ResourceList{}
	}
	for name, amount := range b {
		if _, inBoth := a[name]; inBoth {
			pick(merged, b, name)
		} else {
			merged[name] = amount
		}
	}
	return merged
}

func first(corev1.ResourceList, corev1.ResourceList, corev1.ResourceName) {}

func lower(to, from corev1.ResourceList, name corev1.ResourceName) {
	if known, other := to[name], from[name]; other.Cmp(known) < 0 {
		to[name] = other
	}
}

func higher(to, from corev1.ResourceList, name corev1.ResourceName) {
	if known, other := to[name], from[name]; other.Cmp(known) > 0 {
		to[name] = other
	}
}
