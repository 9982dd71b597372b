package report

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/cohorts"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A Stats is the state of all queues at one instant. Its lists are ordered by name and share no memory with the Engine.
type Stats struct {
	ClusterQueues []ClusterQueueStats
	LocalQueues   []LocalQueueStats
	Cohorts       []CohortStats
}

// A Backlog counts the stages of a queue by state.
type Backlog struct {
	// Active stages are pending as Kueue counts them, and Inadmissible ones wait until something changes that the answer depends on. Stages of a
	// LocalQueue that is stopped are neither.
	Active, Inadmissible, Finished int32
	// Unadmitted counts stages that are not admitted, by cause.
	Unadmitted map[Cause]int32
}

// A Cause is why a stage is not admitted, as its conditions report it: the reasons of Admitted=False and of QuotaReserved=False.
type Cause struct{ Admitted, QuotaReserved string }

// Compare orders causes.
func (c Cause) Compare(other Cause) int {
	return cmp.Or(cmp.Compare(c.Admitted, other.Admitted), cmp.Compare(c.QuotaReserved, other.QuotaReserved))
}

// A ClusterQueueStats is the state of a ClusterQueue that exists.
type ClusterQueueStats struct {
	ClusterQueueView
	Backlog
	Name, Cohort, Root string
	// PreparedAhead counts the JobSets of which a stage without accelerators runs or has finished, and none with accelerators has been admitted.
	PreparedAhead int
	// Share is the weighted share, not rounded. It has no meaning without fair sharing.
	Share  float64
	Limits []Limit
	// Requested is the sum of the requests of all waiting stages.
	Requested map[corev1.ResourceName]quota.Amount
}

// A Limit is the quota of one flavor and resource. Limits that are not set are quota.MaxAmount.
type Limit struct {
	quota.FlavorResource
	quota.Quota
}

// A LocalQueueStats is the state of a LocalQueue that exists.
type LocalQueueStats struct {
	LocalQueueView
	Backlog
	Key          types.NamespacedName
	ClusterQueue string
	// Level is the usage by which admission fair sharing orders LocalQueues, or nil without admission fair sharing.
	Level *float64
}

// A CohortStats is the state of a Cohort with everything below it. The Cohort has an object, or has members and never had an object.
type CohortStats struct {
	CohortView
	Name, Parent, Root string
	// Share is the weighted share, not rounded. It has no meaning without fair sharing.
	Share    float64
	Admitted int32
	Amounts  []CohortAmount
}

// A CohortAmount is the nominal quota below a Cohort, and the part of it that is reserved.
type CohortAmount struct {
	quota.FlavorResource
	Nominal, Reserved quota.Amount
}

// Stats counts everything on each call, so that no decision pays for it. It takes time in proportion to the number of stages.
func (rp *Reporter) Stats() Stats {
	rp.m.RebuildTrees()
	c := rp.countStages()
	var all Stats
	for _, name := range slices.Sorted(maps.Keys(rp.m.ClusterQueues)) {
		if view, ok := rp.ClusterQueue(name); ok {
			q := rp.m.ClusterQueues[name]
			all.ClusterQueues = append(all.ClusterQueues, ClusterQueueStats{
				ClusterQueueView: view, Backlog: *backlogOf(c.clusterQueues, q), Name: name, Cohort: q.Cohort, Root: rootOf(q.Node),
				PreparedAhead: rp.check.Ahead.Count(q),
				Share:         rp.m.Meter.Share(q.Node, nil).Exact(),
				Limits:        rp.limitsOf(q), Requested: c.requested[q],
			})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(rp.m.LocalQueues), model.CompareKeys) {
		if view, ok := rp.LocalQueue(key); ok {
			q := rp.m.LocalQueues[key]
			stats := LocalQueueStats{LocalQueueView: view, Backlog: *backlogOf(c.localQueues, q), Key: key, ClusterQueue: q.ClusterQueue}
			if q.Account != nil {
				stats.Level = new(rp.m.Decay.Level(q.Account, q.Weight, rp.m.Now))
			}
			all.LocalQueues = append(all.LocalQueues, stats)
		}
	}
	for _, cohort := range rp.m.Cohorts.All() {
		if cohort.Exists || !cohort.IsLost && len(cohort.Node.Children()) > 0 {
			all.Cohorts = append(all.Cohorts, rp.cohortStats(cohort, c))
		}
	}
	return all
}

// A stageCounts is one count of all stages.
type stageCounts struct {
	clusterQueues map[*model.ClusterQueue]*Backlog
	localQueues   map[*model.LocalQueue]*Backlog
	requested     map[*model.ClusterQueue]map[corev1.ResourceName]quota.Amount
	// reserved and admitted are the amounts that ClusterQueues add to each Cohort above them.
	reserved map[*quota.Node]*quota.Sum
	admitted map[*quota.Node]int32
	// fits caches the answers of fitsBesidesReservations.
	fits map[model.QueuedDemand]bool
}

func (rp *Reporter) countStages() *stageCounts {
	c := &stageCounts{
		clusterQueues: map[*model.ClusterQueue]*Backlog{}, localQueues: map[*model.LocalQueue]*Backlog{},
		requested: map[*model.ClusterQueue]map[corev1.ResourceName]quota.Amount{},
		reserved:  map[*quota.Node]*quota.Sum{}, admitted: map[*quota.Node]int32{}, fits: map[model.QueuedDemand]bool{},
	}
	for _, s := range rp.m.Stages {
		isActive := s.Entry.Phase == model.Waiting && rp.isActive(c, s)
		backlogOf(c.clusterQueues, s.Entry.ClusterQueue).add(s, isActive)
		backlogOf(c.localQueues, s.Entry.LocalQueue).add(s, isActive)
		if s.Entry.Phase == model.Waiting {
			c.request(s)
		}
	}
	for _, q := range rp.m.ClusterQueues {
		usage := q.QueueTotals.Reserved.Usage()
		for n := q.Node.Parent(); n != nil; n = n.Parent() {
			if c.reserved[n] == nil {
				c.reserved[n] = &quota.Sum{}
			}
			c.reserved[n].Add(usage)
			c.admitted[n] += q.QueueTotals.Admitted
		}
	}
	return c
}

func backlogOf[Q comparable](backlogs map[Q]*Backlog, q Q) *Backlog {
	if backlogs[q] == nil {
		backlogs[q] = &Backlog{Unadmitted: map[Cause]int32{}}
	}
	return backlogs[q]
}

// request adds the requests of a waiting stage. It saturates.
func (c *stageCounts) request(s *model.Stage) {
	requested := c.requested[s.Entry.ClusterQueue]
	if requested == nil {
		requested = map[corev1.ResourceName]quota.Amount{}
		c.requested[s.Entry.ClusterQueue] = requested
	}
	for i := range s.Demand.PodSets {
		for _, r := range s.Demand.PodSets[i].Requests {
			requested[r.Resource] = requested[r.Resource].Plus(r.Amount)
		}
	}
}

// add counts a stage.
func (b *Backlog) add(s *model.Stage, isActive bool) {
	cause := Cause{Admitted: kueue.WorkloadAdmittedReasonNoReservation, QuotaReserved: kueue.WorkloadQuotaReservedReasonPendingEvaluation}
	switch s.Entry.Phase {
	case model.Admitted:
		return
	case model.Finished:
		b.Finished++
		return
	case model.Reserving:
		cause = Cause{Admitted: kueue.WorkloadAdmittedReasonUnsatisfiedAdmissionChecks}
	case model.Ineligible:
		if s.ClosedBy != nil {
			cause.QuotaReserved = s.ClosedBy.Reason
		}
	case model.Waiting:
		switch {
		case s.Entry.IsHeld:
		case isActive:
			b.Active++
		default:
			b.Inadmissible++
		}
		if s.LastRefusal != nil {
			cause.QuotaReserved = s.LastRefusal.Reason
		}
	}
	b.Unadmitted[cause]++
}

// limitsOf lists the quotas of a ClusterQueue in the order of its spec.
func (rp *Reporter) limitsOf(q *model.ClusterQueue) []Limit {
	var limits []Limit
	for _, g := range q.Groups {
		for i := range g.Flavors {
			for _, r := range g.Flavors[i].Resources {
				fr := quota.FlavorResource{Flavor: g.Flavors[i].Name, Resource: r.Name}
				limits = append(limits, Limit{fr, q.Node.Quota(rp.m.Tree.Index.ID(fr))})
			}
		}
	}
	return limits
}

func (rp *Reporter) cohortStats(c *cohorts.Cohort, count *stageCounts) CohortStats {
	stock := CohortStats{
		CohortView: CohortView{FairSharing: rp.shareOf(c.Node)}, Name: c.Name, Root: c.Node.Root().Name, Admitted: count.admitted[c.Node],
		Share: rp.m.Meter.Share(c.Node, nil).Exact(),
	}
	if parent := c.Node.Parent(); parent != nil {
		stock.Parent = parent.Name
	}
	for id := range quota.ID(rp.m.Tree.Index.Len()) { //nolint:gosec // far from 2^31
		amount := CohortAmount{FlavorResource: rp.m.Tree.Index.Name(id), Nominal: c.Node.Subtree(id)}
		if reserved := count.reserved[c.Node]; reserved != nil {
			amount.Reserved = reserved.Of(id)
		}
		if amount.Nominal > 0 || amount.Reserved > 0 {
			stock.Amounts = append(stock.Amounts, amount)
		}
	}
	slices.SortFunc(stock.Amounts, func(a, b CohortAmount) int { return a.Compare(b.FlavorResource) })
	return stock
}

// rootOf returns the name of the root Cohort of a ClusterQueue, or nothing.
func rootOf(n *quota.Node) string {
	if n.Parent() == nil {
		return ""
	}
	return n.Root().Name
}
