package report

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/quota"
)

const cannotSubmit = "Can't submit new workloads to clusterQueue"

// A ClusterQueueView has all values for the status of a ClusterQueue. FlavorsReservation and FlavorsUsage have every flavor and resource of the
// spec, in its order, including unused ones.
type ClusterQueueView struct {
	// Generation is that of the spec in use.
	Generation                   int64
	Active                       queuespec.Activity
	Pending, Reserving, Admitted int32
	// FlavorsReservation includes the peak reservations of policy Reserve; FlavorsHeld does not.
	FlavorsReservation, FlavorsHeld []kueue.FlavorUsage
	FlavorsUsage                    []kueue.FlavorUsage
	// FairSharing is nil without fair sharing.
	FairSharing *kueue.FairSharingStatus
}

// A CohortView has all values for the status of a Cohort.
type CohortView struct {
	// FairSharing is nil without fair sharing.
	FairSharing *kueue.FairSharingStatus
}

// Cohort returns the view of a Cohort, if it exists.
func (rp *Reporter) Cohort(name string) (CohortView, bool) {
	c := rp.m.Cohorts.Find(name)
	if c == nil || !c.Exists {
		return CohortView{}, false
	}
	rp.m.RebuildTrees()
	return CohortView{FairSharing: rp.shareOf(c.Node)}, true
}

func (rp *Reporter) shareOf(n *quota.Node) *kueue.FairSharingStatus {
	if !rp.m.Config.FairSharing {
		return nil
	}
	return &kueue.FairSharingStatus{WeightedShare: rp.m.Meter.Share(n, nil).Weighted()}
}

// A LocalQueueView has all values for the status of a LocalQueue.
type LocalQueueView struct {
	Active                       queuespec.Activity
	Pending, Reserving, Admitted int32
	FlavorsReservation           []kueue.LocalQueueFlavorUsage
	FlavorsUsage                 []kueue.LocalQueueFlavorUsage
	// FairSharing is nil without admission fair sharing. It changes once in a sampling interval.
	FairSharing *kueue.LocalQueueFairSharingStatus
}

// ClusterQueue returns the view of a ClusterQueue, if it exists.
func (rp *Reporter) ClusterQueue(name string) (ClusterQueueView, bool) {
	q := rp.m.ClusterQueues[name]
	if q == nil || !q.Exists {
		return ClusterQueueView{}, false
	}
	rp.m.RebuildTrees()
	return ClusterQueueView{
		Generation: q.Generation, Active: rp.m.Activity(q),
		Pending: q.QueueTotals.Pending, Reserving: q.QueueTotals.Reserving, Admitted: q.QueueTotals.Admitted,
		FlavorsReservation: rp.flavorUsages(q, reserved(q, nil)),
		FlavorsHeld:        rp.flavorUsages(q, &q.QueueTotals.Reserved),
		FlavorsUsage:       rp.flavorUsages(q, &q.QueueTotals.Used),
		FairSharing:        rp.shareOf(q.Node),
	}, true
}

// LocalQueue returns the view of a LocalQueue, if it exists.
func (rp *Reporter) LocalQueue(key types.NamespacedName) (LocalQueueView, bool) {
	lq := rp.m.LocalQueues[key]
	if lq == nil || !lq.Exists {
		return LocalQueueView{}, false
	}
	q := rp.m.ClusterQueue(lq.ClusterQueue)
	return LocalQueueView{
		Active:  rp.localActivity(lq),
		Pending: lq.QueueTotals.Pending, Reserving: lq.QueueTotals.Reserving, Admitted: lq.QueueTotals.Admitted,
		FlavorsReservation: localUsages(rp.flavorUsages(q, reserved(q, lq))),
		FlavorsUsage:       localUsages(rp.flavorUsages(q, &lq.QueueTotals.Used)),
		FairSharing:        fairSharing(lq),
	}, true
}

// maxUsages is the limit of flavors, and of resources of a flavor, in the status of a queue (maxItems of its CRD). The limit of its spec is
// higher.
const maxUsages = 64

// flavorUsages lists each flavor and each of its resources once, in the order of the spec: the keys of these lists are their names, and the
// API server refuses a status that repeats one.
func (rp *Reporter) flavorUsages(q *model.ClusterQueue, sum *quota.Sum) []kueue.FlavorUsage {
	var usages []kueue.FlavorUsage
	for _, g := range q.Groups {
		for i := range g.Flavors {
			name := g.Flavors[i].Name
			at := slices.IndexFunc(usages, func(u kueue.FlavorUsage) bool { return u.Name == name })
			if at < 0 {
				if at = len(usages); at == maxUsages {
					return usages
				}
				usages = append(usages, kueue.FlavorUsage{Name: name})
			}
			for _, r := range g.Flavors[i].Resources {
				usages[at].Resources = rp.withUsage(usages[at].Resources, q, sum, quota.FlavorResource{Flavor: name, Resource: r.Name})
			}
		}
	}
	return usages
}

// withUsage appends the usage of a resource unless it is listed already.
func (rp *Reporter) withUsage(listed []kueue.ResourceUsage, q *model.ClusterQueue, sum *quota.Sum, of quota.FlavorResource) []kueue.ResourceUsage {
	isListed := slices.ContainsFunc(listed, func(u kueue.ResourceUsage) bool { return u.Name == of.Resource })
	if isListed || len(listed) == maxUsages {
		return listed
	}
	id := rp.m.Tree.Index.ID(of)
	total, borrowed := sum.Of(id), quota.Amount(0)
	if q.Cohort != "" {
		borrowed = max(0, total.Minus(q.Node.Quota(id).Nominal))
	}
	return append(listed, kueue.ResourceUsage{
		Name: of.Resource, Total: total.Quantity(of.Resource), Borrowed: borrowed.Quantity(of.Resource),
	})
}

// localUsages leaves out what a LocalQueue does not show.
func localUsages(usages []kueue.FlavorUsage) []kueue.LocalQueueFlavorUsage {
	var local []kueue.LocalQueueFlavorUsage
	for _, u := range usages {
		usage := kueue.LocalQueueFlavorUsage{Name: u.Name}
		for _, r := range u.Resources {
			usage.Resources = append(usage.Resources, kueue.LocalQueueResourceUsage{Name: r.Name, Total: r.Total})
		}
		local = append(local, usage)
	}
	return local
}

// Charged reports whether a stage is charged for an admission that has been observed, and not revoked by a later observation. It is false while
// the write is in flight, and for another object of the same name.
func (rp *Reporter) Charged(key decision.StageKey, uid types.UID) bool {
	s := rp.m.Stages[key]
	return s != nil && s.UID == uid && s.Reservation != nil && s.Entry.IsCharged()
}

// Admitted reports whether a stage is charged for an admission, also while the write is in flight.
func (rp *Reporter) Admitted(key decision.StageKey, uid types.UID) bool {
	s := rp.m.Stages[key]
	return s != nil && s.UID == uid && s.Entry.IsCharged()
}

// ChargedAs reports whether a stage is charged for all pods for which a version of its quota Workload holds quota. Other stages may use the quota
// of reclaimable pods that the version lacks.
func (rp *Reporter) ChargedAs(w *kueue.Workload) bool {
	key := decision.StageKey{Namespace: w.Namespace, Name: w.Name}
	return rp.Charged(key, w.UID) && !slices.ContainsFunc(rp.m.Stages[key].Reclaimable, func(known kueue.ReclaimablePod) bool {
		return !slices.ContainsFunc(w.Status.ReclaimablePods, func(pods kueue.ReclaimablePod) bool {
			return pods.Name == known.Name && pods.Count >= known.Count
		})
	})
}

// Holding returns the sum of what the stages of a JobSet are charged.
func (rp *Reporter) Holding(jobSet types.UID) quota.Usage {
	var held quota.Usage
	if j := rp.m.JobSets[jobSet]; j != nil {
		for _, s := range j.Members {
			held.AddAll(s.Entry.Usage)
		}
	}
	return held
}

// ChangedCohorts returns the Cohorts that exist and whose views may have changed since the last call: those that were observed since, and those
// above the ClusterQueues that Changed is about to return. Without fair sharing there are none.
func (rp *Reporter) ChangedCohorts() []string {
	changed := rp.m.Changes.ChangedCohorts
	rp.m.Changes.ChangedCohorts = map[string]struct{}{}
	if !rp.m.Config.FairSharing {
		return nil
	}
	for _, q := range rp.m.Changes.ChangedClusterQueues {
		for n := q.Node.Parent(); n != nil; n = n.Parent() {
			changed[n.Name] = struct{}{}
		}
	}
	maps.DeleteFunc(changed, func(name string, _ struct{}) bool {
		c := rp.m.Cohorts.Find(name)
		return c == nil || !c.Exists
	})
	return slices.Sorted(maps.Keys(changed))
}

// localActivity reports whether a LocalQueue leads to a ClusterQueue that takes new reservations.
func (rp *Reporter) localActivity(q *model.LocalQueue) queuespec.Activity {
	target := rp.m.ClusterQueue(q.ClusterQueue)
	switch {
	case q.Stop != kueue.None:
		return queuespec.Activity{Status: metav1.ConditionFalse, Reason: "Stopped", Message: "LocalQueue is stopped"}
	case !target.Exists:
		return queuespec.Activity{Status: metav1.ConditionFalse, Reason: "ClusterQueueDoesNotExist", Message: cannotSubmit}
	case rp.m.Activity(target).Status != metav1.ConditionTrue:
		return queuespec.Activity{Status: metav1.ConditionFalse, Reason: "ClusterQueueIsInactive", Message: cannotSubmit}
	}
	return queuespec.Activity{Status: metav1.ConditionTrue, Reason: "Ready", Message: "Can submit new workloads to localQueue"}
}

// reserved returns the reserved amounts of a ClusterQueue, or the part of them for one of its LocalQueues: what stages hold, and the peak
// reservations of policy Reserve.
func reserved(q *model.ClusterQueue, of *model.LocalQueue) *quota.Sum {
	sum := q.QueueTotals.Reserved.Usage()
	if of != nil {
		sum = of.QueueTotals.Reserved.Usage()
	}
	var total quota.Sum
	total.Add(sum)
	for j := range q.PeakReservers {
		if of == nil || j.LocalQueue() == of {
			total.Add(j.PeakReserved)
		}
	}
	return &total
}

// fairSharing returns the part of the status of a LocalQueue for its account.
func fairSharing(q *model.LocalQueue) *kueue.LocalQueueFairSharingStatus {
	if q.Sampled == nil {
		return nil
	}
	return &kueue.LocalQueueFairSharingStatus{AdmissionFairSharingStatus: q.Sampled}
}
