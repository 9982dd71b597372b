package flavor

import (
	"fmt"
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

// A Request is an amount of one resource that pods ask for.
type Request struct {
	Resource corev1.ResourceName
	Amount   quota.Amount
}

// CompareRequests orders by the name of the resource.
func CompareRequests(a, b Request) int {
	return strings.Compare(string(a.Resource), string(b.Resource))
}

// A PodSet is a number of pods of one shape.
type PodSet struct {
	Name  string
	Count int32
	// Min is the smallest number of pods that is enough, or 0 if all are needed.
	Min int32
	Pod Pod
	// Pinned names the flavor of each resource that must come from a certain flavor.
	Pinned map[corev1.ResourceName]kueue.ResourceFlavorReference
	// Requests of all the pods together, by name of the resource.
	Requests []Request
}

// Resize changes the number of pods, which must not have been zero, and their total requests.
func (p *PodSet) Resize(count int32) {
	requests := slices.Clone(p.Requests)
	for i := range requests {
		requests[i].Amount = requests[i].Amount / quota.Amount(p.Count) * quota.Amount(count)
	}
	p.Count, p.Requests = count, requests
}

// An Item is a choice of a flavor that has to be made: all that one PodSet asks for of one Group comes from one flavor.
type Item struct {
	// PodSet is the index of the PodSet.
	PodSet   int
	Requests []Request
	// Options to choose from, in the order in which they are tried.
	Options []Option
	// Objections has the reasons against the other flavors.
	Objections []string
}

// An Option is a flavor with its charge.
type Option struct {
	Flavor kueue.ResourceFlavorReference
	Usage  quota.Usage
}

// An Infeasibility is a PodSet that can never be admitted, whatever is free.
type Infeasibility struct {
	PodSet string
	// Uncovered is a resource that no Group has, or empty.
	Uncovered corev1.ResourceName
	// Oversized is true if pods may use some flavor, but none has enough quota, even if all of it were free.
	Oversized bool
	// Objections to each flavor.
	Objections []string
}

// A Supply has the flavors to choose from.
type Supply struct {
	Groups []Group
	Index  *quota.Index
	// Most returns the capacity.
	Most func(quota.ID) quota.Amount
}

// Items returns the choices for PodSets, or what is lacking for them.
func (s *Supply) Items(podSets []PodSet) ([]Item, *Infeasibility) {
	items := []Item{}
	for p := range podSets {
		podSet := &podSets[p]
		if infeasibility := s.uncovered(podSet); infeasibility != nil {
			return nil, infeasibility
		}
		for g := range s.Groups {
			requests := s.Groups[g].requests(podSet)
			if len(requests) == 0 {
				continue
			}
			item := Item{PodSet: p, Requests: requests}
			oversized := s.choose(&item, &s.Groups[g], podSet)
			if len(item.Options) == 0 {
				return nil, &Infeasibility{PodSet: podSet.Name, Oversized: oversized, Objections: item.Objections}
			}
			items = append(items, item)
		}
	}
	return items, nil
}

func (s *Supply) uncovered(podSet *PodSet) *Infeasibility {
	for _, r := range podSet.Requests {
		covers := func(g Group) bool { return slices.Contains(g.Resources, r.Resource) }
		if r.Amount > 0 && r.Resource != corev1.ResourcePods && !slices.ContainsFunc(s.Groups, covers) {
			return &Infeasibility{PodSet: podSet.Name, Uncovered: r.Resource}
		}
	}
	return nil
}

// requests returns what a PodSet asks for of the group. Each pod also requests one of the resource pods.
func (g *Group) requests(podSet *PodSet) []Request {
	var requests []Request
	for _, r := range podSet.Requests {
		if r.Resource != corev1.ResourcePods && slices.Contains(g.Resources, r.Resource) {
			requests = append(requests, r)
		}
	}
	if slices.Contains(g.Resources, corev1.ResourcePods) {
		pods := Request{corev1.ResourcePods, quota.Amount(podSet.Count)}
		i, _ := slices.BinarySearchFunc(requests, pods, CompareRequests)
		requests = slices.Insert(requests, i, pods)
	}
	return requests
}

// choose sets the options of an item, and reports whether a flavor was left out only because of its quota.
func (s *Supply) choose(item *Item, g *Group, podSet *PodSet) (oversized bool) {
	for _, f := range g.Flavors {
		if objection := podSet.objection(f, item, g); objection != "" {
			item.Objections = append(item.Objections, objection)
			continue
		}
		option := Option{Flavor: f.Name}
		var short []string
		for _, r := range item.Requests {
			id := s.Index.ID(quota.FlavorResource{Flavor: f.Name, Resource: r.Resource})
			option.Usage.Add(id, r.Amount)
			if most := s.Most(id); r.Amount > most {
				short = append(short, fmt.Sprintf("needs %s %s of flavor %s, but the quota is %s",
					r.Amount.Format(r.Resource), r.Resource, f.Name, most.Format(r.Resource)))
			}
		}
		if len(short) > 0 {
			oversized = true
			item.Objections = append(item.Objections, strings.Join(short, " and "))
			continue
		}
		item.Options = append(item.Options, option)
	}
	return oversized
}

// objection returns why an item of the PodSet cannot come from a flavor, or nothing if it can.
func (p *PodSet) objection(f *Flavor, item *Item, g *Group) string {
	for _, r := range item.Requests {
		if pinned, ok := p.Pinned[r.Resource]; ok && pinned != f.Name {
			return fmt.Sprintf("flavor %s is not %s, on which pods of the same Jobs have their %s already", f.Name, pinned, r.Resource)
		}
	}
	return f.Objection(&p.Pod, g.keys)
}
