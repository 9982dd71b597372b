package flavor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Group is a resource group of a ClusterQueue with the flavors that exist, in the order of the spec.
type Group struct {
	Resources []corev1.ResourceName
	Flavors   []*Flavor
	// keys of all node labels of these flavors.
	keys map[string]struct{}
}

// NewGroup makes a Group.
func NewGroup(resources []corev1.ResourceName, flavors []*Flavor) Group {
	g := Group{Resources: slices.Clone(resources), Flavors: flavors, keys: map[string]struct{}{}}
	for _, f := range flavors {
		for key := range f.nodeLabels {
			g.keys[key] = struct{}{}
		}
	}
	return g
}

// A PodSet is pods of one shape.
type PodSet struct {
	Name  string
	Count int32
	Pod   Pod
	// Total of what all the pods ask for.
	Total map[corev1.ResourceName]quota.Amount
}

// An Item is a choice of a flavor that is to be made: what one PodSet asks for of one Group comes from one flavor.
type Item struct {
	// PodSet is the index of the PodSet.
	PodSet  int
	Request map[corev1.ResourceName]quota.Amount
	// Options to choose from, in the order in which they are tried.
	Options []kueue.ResourceFlavorReference
	// Objections has the reasons why the others are none.
	Objections []string
}

// A Lack is a PodSet that cannot be served, whatever is free.
type Lack struct {
	PodSet string
	// Uncovered is a resource that no Group has, or empty.
	Uncovered corev1.ResourceName
	// Oversized tells that pods may use some flavor, but none has enough quota, even if all of it were free.
	Oversized bool
	// Objections to each flavor.
	Objections []string
}

// Items finds the choices that PodSets have, and what is lacking for them. The limit is the most that can be had of a flavor.
func Items(groups []Group, podSets []PodSet, limit func(quota.FlavorResource) quota.Amount) ([]Item, *Lack) {
	items := []Item{}
	for p := range podSets {
		podSet := &podSets[p]
		if lack := uncovered(groups, podSet); lack != nil {
			return nil, lack
		}
		for g := range groups {
			request := groups[g].request(podSet)
			if len(request) == 0 {
				continue
			}
			item := Item{PodSet: p, Request: request}
			oversized := groups[g].choose(&item, &podSet.Pod, limit)
			if len(item.Options) == 0 {
				return nil, &Lack{PodSet: podSet.Name, Oversized: oversized, Objections: item.Objections}
			}
			items = append(items, item)
		}
	}
	return items, nil
}

func uncovered(groups []Group, podSet *PodSet) *Lack {
	for _, name := range slices.Sorted(maps.Keys(podSet.Total)) {
		covers := func(g Group) bool { return slices.Contains(g.Resources, name) }
		if podSet.Total[name] > 0 && name != corev1.ResourcePods && !slices.ContainsFunc(groups, covers) {
			return &Lack{PodSet: podSet.Name, Uncovered: name}
		}
	}
	return nil
}

// request is what a PodSet asks for of the group. Pods are a resource of which each asks for one.
func (g *Group) request(podSet *PodSet) map[corev1.ResourceName]quota.Amount {
	request := map[corev1.ResourceName]quota.Amount{}
	for _, name := range g.Resources {
		if name == corev1.ResourcePods {
			request[name] = quota.Amount(podSet.Count)
		} else if amount, asks := podSet.Total[name]; asks {
			request[name] = amount
		}
	}
	return request
}

// choose sets the options of an item, and tells whether a flavor was left out for its quota alone.
func (g *Group) choose(item *Item, pod *Pod, limit func(quota.FlavorResource) quota.Amount) (oversized bool) {
	for _, f := range g.Flavors {
		if objection := f.Objection(pod, g.keys); objection != "" {
			item.Objections = append(item.Objections, objection)
			continue
		}
		var short []string
		for _, name := range slices.Sorted(maps.Keys(item.Request)) {
			if most := limit(quota.FlavorResource{Flavor: f.Name, Resource: name}); item.Request[name] > most {
				short = append(short, fmt.Sprintf("needs %s %s of flavor %s, of which the quota is %s",
					item.Request[name].Format(name), name, f.Name, most.Format(name)))
			}
		}
		if len(short) > 0 {
			oversized = true
			item.Objections = append(item.Objections, strings.Join(short, " and "))
			continue
		}
		item.Options = append(item.Options, f.Name)
	}
	return oversized
}
