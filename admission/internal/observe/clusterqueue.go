package observe

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/level"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/admission/preempt"
)

func (ev ClusterQueueObserved) apply(o *Observer) {
	object := ev.ClusterQueue
	q := o.m.ClusterQueue(object.Name)
	v := version.Of(object.UID, object.ResourceVersion)
	if v.IsOlderThan(q.Version) {
		return
	}
	q.Version = v
	if q.Generation != object.Generation {
		q.Generation = object.Generation
		o.m.Changes.NoteChange(q)
	}
	differs := q.Adopt(object, o.m.Config.Leader)
	q.IsTaken = q.IsTaken && q.Takeover.IsAsked()
	q.PendingQueue.SetStrategy(q.Strategy)
	if differs || !q.Exists || q.IsUnprotected != ev.IsUnprotected {
		q.Exists, q.IsUnprotected = true, ev.IsUnprotected
		o.renewClusterQueue(q)
	}
}

func (ev ClusterQueueGone) apply(o *Observer) {
	q := o.m.ClusterQueue(ev.Name)
	q.Spec, q.Version, q.Generation, q.Exists, q.IsUnprotected, q.IsTaken = queuespec.NewSpec(), version.Version{}, 0, false, false, false
	o.renewClusterQueue(q)
}

func (ev QueuesTaken) apply(o *Observer) {
	for _, name := range ev.ClusterQueues {
		if q := o.m.ClusterQueues[name]; q != nil && q.Exists && q.Takeover.IsAsked() && !q.IsTaken {
			q.IsTaken = true
			o.renewClusterQueue(q)
		}
	}
}

func (ev QueueReturned) apply(o *Observer) {
	if q := o.m.ClusterQueues[ev.ClusterQueue]; q != nil && q.IsTaken {
		q.IsTaken = false
		o.renewClusterQueue(q)
	}
}

// renewClusterQueue recomputes all that depends on the spec or on flavors.
func (o *Observer) renewClusterQueue(q *model.ClusterQueue) {
	o.renewFlavors(q)
	limits, remarks := o.limits(q.Groups)
	q.Remarks = remarks
	o.m.Tree.SetQuotas(q.Node, limits)
	o.m.SafetyTree.SetQuotas(q.Bare, limits)
	q.Node.Weight, q.Bare.Weight = q.Weight, q.Weight
	if q.IsUsageBased && o.m.Decay != nil {
		levelOf := func(c model.EquivalenceKey) float64 { return level.Of(o.m, c) }
		q.PendingQueue.SetLead(levelOf)
		q.Holders.Level = func(h *preempt.Holder) float64 {
			return levelOf(model.EquivalenceKey{LocalQueue: model.EvictionUnitOf(h).Stages[0].LocalQueue})
		}
	} else {
		q.PendingQueue.SetLead(nil)
		q.Holders.Level = nil
	}
	q.Holders.Preemption, q.Holders.MinimumRuntime = q.Preemption, o.m.Config.MinimumRuntimeOf(&q.Spec)
	if q.Cohort != "" {
		o.m.Cohorts.Get(q.Cohort)
	}
	o.m.Schedule.IsStale = true
	o.m.Changes.NoteChange(q)
	for _, lq := range o.m.LocalQueues {
		if lq.ClusterQueue == q.Name {
			o.m.Changes.NoteLocalChange(lq)
		}
	}
	for _, s := range q.Charged.All {
		o.m.NoteIfOverdue(s)
	}
}

// renewFlavors computes the flavor groups of a ClusterQueue, and the problems of its flavors.
func (o *Observer) renewFlavors(q *model.ClusterQueue) {
	q.FlavorGroups, q.Missing, q.Deleted, q.Topological = nil, nil, nil, nil
	for _, g := range q.Groups {
		var flavors []*flavor.Flavor
		for i := range g.Flavors {
			name := g.Flavors[i].Name
			f := o.flavors[name]
			if f == nil {
				q.Missing = append(q.Missing, string(name))
				continue
			}
			flavors = append(flavors, f.Fact)
			if f.Fact.IsDeleted {
				q.Deleted = append(q.Deleted, string(name))
			}
			if f.Fact.HasTopology {
				q.Topological = append(q.Topological, string(name))
			}
		}
		q.FlavorGroups = append(q.FlavorGroups, flavor.NewGroup(g.CoveredResources, flavors))
	}
}

func (ev FlavorObserved) apply(o *Observer) {
	object, name := ev.Flavor, kueue.ResourceFlavorReference(ev.Flavor.Name)
	v := version.Of(object.UID, object.ResourceVersion)
	known := o.flavors[name]
	if known != nil && v.IsOlderThan(known.Version) {
		return
	}
	f := flavor.New(object)
	o.flavors[name] = &version.Observed[*flavor.Flavor]{Fact: f, Version: v}
	if known == nil || !known.Fact.Same(f) {
		o.renewUsersOf(name)
	}
}

func (ev FlavorGone) apply(o *Observer) {
	name := kueue.ResourceFlavorReference(ev.Name)
	delete(o.flavors, name)
	o.renewUsersOf(name)
}

func (o *Observer) renewUsersOf(name kueue.ResourceFlavorReference) {
	for _, q := range o.m.ClusterQueues {
		for _, g := range q.Groups {
			if slices.ContainsFunc(g.Flavors, func(f kueue.FlavorQuotas) bool { return f.Name == name }) {
				o.renewClusterQueue(q)
				break
			}
		}
	}
}
